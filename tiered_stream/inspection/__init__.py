"""Reports of the commands `segments` and `lag`. They read no records, except one for each partition in `lag`.

The commands in `cli` import each module.

- `tier_contents`: tiered segments and the offsets that are read from each.
- `segment_report`: report of `segments` on them.
- `lag_report`: lag of a streaming query, for `lag`.
"""

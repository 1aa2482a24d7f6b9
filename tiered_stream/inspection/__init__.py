"""Reports of the commands `segments` and `lag`. They read no records, except one for each partition in `lag`.

The commands in `cli` import each module.

- `tier_contents`: tiered segments, and the offsets that are read from each segment.
- `segment_report`: report of the command `segments` on the tiered segments.
- `lag_report`: report of the command `lag` on a streaming query.
"""

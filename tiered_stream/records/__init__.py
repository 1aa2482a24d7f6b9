"""Kafka's log format, without network: from bytes to Arrow.

Files that other packages import:

- `decoder`: record batches to Arrow batches
- `arrow`: schema and columns of the source's rows
- `header`: layout of a batch's header, and searches by headers alone
- `values`, `value_scan`: values of an internal topic's records, in plain Python and compiled
- `flexible_versions`: types of Kafka's flexible versions (KIP-482)
- `row_hash`: hashes of rows
- `codecs`: decompression
- `compiled`: compilation of kernels, and the cache of their machine code
- `intrinsics`, `memory`: parts for kernels

`kernels`, `hash_kernels` and `legacy` are compiled, and for this package alone.
"""

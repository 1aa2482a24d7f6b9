"""Decoding of Kafka's log format, from bytes to Arrow. This package uses no network.

Files that other packages import:

- `decoder`: record batches to Arrow batches
- `arrow`: schema and columns of the source's rows
- `header`: layout of a batch's header, and searches by headers alone
- `values`, `value_scan`: readers of the values in an internal topic, in plain Python (`values`) and compiled
- `flexible_versions`: types of Kafka's flexible versions (KIP-482)
- `row_hash`: hashes of rows
- `codecs`: decompression
- `compiled`: compilation of kernels (functions that numba compiles), and the cache of their machine code
- `intrinsics`: functions that kernels call
- `memory`: arrays for kernels

Only this package imports `kernels`, `hash_kernels` and `legacy`, which are compiled.
"""

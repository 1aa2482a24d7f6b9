"""Locators, which find the tiered segments that hold an offset range, and the range's bytes in these segments.

Files that other packages import:

- `log_source`: offset reader and locator of a query, as the query's options choose them
- `locator`: interface of locators
- `broker_locator`: locator that asks brokers (KIP-1248)
- `segment_metadata_locator`: base of the locators that read index files themselves
- `segment_columns`: metadata of many segments in arrays
- `visible_segments`: segments whose records belong to the log, by the log's leader epochs
- `storage_failures`: check of the storage at the start of a query, and segments that are left to brokers

Only locators use three files. `index_files` parses and caches the index files that belong to a segment.
`offset_index` finds bytes by offset indexes. `aborted_transactions` finds aborted transactions by transaction indexes.
"""

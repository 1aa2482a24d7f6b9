"""Location of tiered segments, and of the bytes of offset ranges in them.

Files that other packages import:

- `log_source`: offset reader and locator of a query, as its options choose them
- `locator`: interface of locators
- `broker_locator`: locator that asks brokers (KIP-1248)
- `segment_metadata_locator`: base of the locators that read index files themselves
- `segment_columns`: metadata of many segments in arrays
- `visible_segments`: segments that belong to the log, by its lineage
- `storage_failures`: check of the storage at the start of a query, and segments that are left to brokers

Three files are for locators alone: `index_files` parses and caches the index files that belong to a segment.
`offset_index` finds bytes by offset indexes. `aborted_transactions` finds aborted transactions by transaction indexes.
"""

"""Locator that reads the topic in which brokers record the state of each tiered segment (KIP-405).

Files that other packages import:

- `metadata_topic_locator`: locations of offset ranges
- `metadata_log`: reader of the topic's records
- `metadata_snapshots`: snapshots of the records on disk
- `remote_log_metadata`: decoder and encoder of a record
- `segment_table`: state of the segments that results from the records

`compacted_segments` completes segments from the storage if compaction of the topic has left only an update of them.
"""

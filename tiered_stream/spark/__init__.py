"""Spark's data source `tiered_stream`, the choice of Python for its processes, and reports on a session's queries.

Files that other packages import:

- `source`: data source `tiered_stream`, and its registration
- `stream_reader`: stream reader for the installed version of Spark
- `split_partition`: input partition with one split
- `executor_python`: choice of the Python for planners and executors
- `session`: Spark Connect, local masters, and copies of sessions
- `report_addresses`: addresses to which tasks report
- `reporting`: reports of micro-batches (`report_queries`)

`pushdown` translates Spark's filters.
"""

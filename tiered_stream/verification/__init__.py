"""Comparison of Delta tables with their topics, and of the tiered storage with the brokers.

The function `tiered_stream.verify` and the command `verify` use this package.

Other packages import `verify_table`, `verify_report` and `storage_comparison`; replays also import SQL conditions from
`record_comparison`.

- `verify_table`: function `verify`, also for tables of the latest state.
- `verify_report`: reports of `verify`, as text and as JSON.
- `scope`: the table at one version, and the offsets to compare.
- `record_comparison`: comparison of records by sums of row hashes.
- `sums_source`: Spark sources of these sums and of row hashes.
- `latest_comparison`: comparison of a table of the latest state by sums of row hashes.
- `latest_rows_source`: Spark source of the last rows of keys.
- `statistics_comparison`: comparison of the statistics in a table's log with its rows.
- `storage_comparison`: comparison of the storage with the brokers.
"""

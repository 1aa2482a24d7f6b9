"""Commits to tables, exactly once: by delta-spark or deltalake, to one table or to many.

Files that other packages import:

- `commit_attempts`: the driver's commits into one table, each tried until it succeeds or is refused
- `commit_library`: access to a table's storage, and the library that commits to it (`ingest.commit`)
- `dead_letters`: commits of a query's dead letters to a table for dead letters
- `delta_spark_commit`: commits by the session's own delta-spark, through py4j
- `deltalake_commit`: access to Delta tables through the `deltalake` library, without a JVM
- `key_order`: search by Spark's SQL for the last row of each key, before a MERGE
- `many_tables`: the driver's commits for a query that writes many tables
- `merge`: commits by Spark's MERGE to a table of the latest state, which has one row for each key
- `open_table`: tables opened for commits in the direct lane, in which tasks write the files; missing tables are created
- `query_commits`: the driver's commits for one query, to one table or to many
- `table_log`: commits of queries in a table's log, and the offsets that they name
- `transaction`: interface of Delta transactions, independent of the library that commits: delta-spark or deltalake

Files of this package alone:

- `compaction`: compaction of a table's small files into larger ones, in the background
- `deltalake_merge`: commits by deltalake to a table of the latest state
- `deltalake_statistics`: choice of the columns for which deltalake writes statistics
"""

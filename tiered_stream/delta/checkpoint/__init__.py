"""Checkpoint of a streaming query: Spark's own files, and the files of this package for queries that write many tables.

Files that other packages import:

- `checkpoint_folder`: access to the files in a checkpoint's folder through Spark's JVM
- `query_run`: start of a streaming query with its checkpoint, trigger and name
- `query_tables`: state of a query that writes many tables, in files `tables/N` of the checkpoint
- `spark_checkpoint`: reader of Spark's own files in a query's checkpoint
- `folder_without_spark`: access without Spark to a checkpoint's folder, local or in an object store
"""

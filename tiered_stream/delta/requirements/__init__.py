"""Requirements of tables and sessions for writers, and ways by which tasks reach a table's store.

Files that other packages import:

- `hadoop_settings`: Hadoop's settings in a session, and the settings of Hadoop's file system for one object store
- `lane`: choice of who writes a table's files: tasks (direct lane), or Spark's Delta sink (Spark lane)
- `merge_requirements`: rules for a MERGE into a table with `ingest.mode=upsert`, such as the columns that it sets
- `s3a`: settings for the tasks' access to a table's bucket: the session's `fs.s3a.*`
- `session_requirements`: settings of Spark's session for the compression of files and the properties of new tables
- `store_access`: access of tasks to a table's object store, by the scheme of the table's URI: Azure, Google and HDFS
- `writer_requirements`: list of all requirements that tables, columns and sessions can set for a writer
"""

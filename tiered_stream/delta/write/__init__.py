"""Data files of Delta tables that Spark's tasks write themselves, and the uploads of these files.

Files that other packages import:

- `data_files`: rows by which a task reports its data files to the driver
- `file_systems`: access to a table's folder
- `latest_rows`: rows of one task that wait to be written to files for a MERGE: only the last row of each key
- `parquet_properties`: encodings, compression and page sizes of the table's Parquet files
- `task_writer`: writer of one task: it reads the task's splits and writes their rows to data files of all tables
- `waiting_rows`: rows of one table that wait in a task's memory until there are enough rows to write

Files of this package alone:

- `data_folder`: folders of tables to which tasks write data files: local folders, whose files grow there, and uploads
- `file_statistics`: statistics of a data file in the JSON of Delta's log (protocol: "Per-file Statistics")
- `s3_upload`: uploads of data files to S3, each with one PUT and its checksum
- `table_writer`: writer of record batches to one table's Parquet files, on an executor
"""

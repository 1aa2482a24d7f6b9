"""Export of records into local files, without Spark.

Other packages import `run_export`.

- `run_export`: function `export`, its arguments and its report.
- `export_plan`: offsets to read, and rows of each topic.
- `file_formats`: writers of Parquet, Arrow, JSON lines and CSV.
- `row_texts`: conversion of rows to texts for JSON lines and CSV.
- `target_files`: files, folders, and the manifest of a folder.
"""

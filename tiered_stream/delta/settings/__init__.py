"""Declaration, parsing and checks of the settings `ingest.*`.

Files that other packages import:

- `ingest_settings`: declaration and parsing of the `ingest.*` settings for a table's files
- `query_settings`: checks of a query's settings that need neither Spark nor the table
- `row_settings`: declaration and parsing of the settings that describe a table's rows
- `upsert_settings`: declaration and checks of the settings for tables of the latest state (`ingest.mode=upsert`)
"""

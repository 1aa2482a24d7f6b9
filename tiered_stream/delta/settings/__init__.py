"""Declaration, parsing and checks of the settings `ingest.*`.

Files that other packages import:

- `ingest_settings`: declaration and parsing of the settings for one table, which become a `TableSpec`
- `query_settings`: settings of a query for one table or for many, parsed once and checked
- `row_settings`: declaration and parsing of the settings that describe a table's rows, and which rows replace others
"""

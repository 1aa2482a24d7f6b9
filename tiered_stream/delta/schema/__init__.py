"""Columns of tables, the formats of their rows, and the table of each topic.

Files that other packages import:

- `routing`: routing, which decides for each topic the table that gets the topic's rows
- `row_plan`: functions that make a table's `RowFormat` from settings, and from schemas in settings
- `row_schema`: columns of tables in Arrow and in Spark: conversions, and checks of new columns
- `sql_types`: types of columns as SQL text, as Arrow types and in Spark's JSON
"""

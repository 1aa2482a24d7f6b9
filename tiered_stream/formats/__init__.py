"""Decoding of keys and values to the columns of a table's rows, on Arrow and without Spark.

Other packages use `row_decoder`, `open_decoder`, and the modules that the `__init__` of a package in here names.
Errors say what is wrong with a schema or a value. A caller that has read settings adds which setting it was.

    open_decoder   decoder of a table's keys or values, by their format
    row_decoder    records to rows and dead letters, in the tasks that read
    columns/       columns that kernels write, and conversion of columns to a table's types
    rows/          format of a table's rows, table rules, changes of rows
    sql/           SQL of conditions, select lists and lists of columns
    json/, avro/, protobuf/    decoders of the formats
    registry/      values that name their schema in a schema registry
"""

"""Decoding of Kafka keys and values to the columns of a table's rows, on Arrow and without Spark.

Other packages use `row_decoder`, `open_decoder`, and the modules that the `__init__` of a subpackage names.
Error messages say what is wrong with a schema or a value. A caller that parses settings adds the setting's name.

    open_decoder   factory of the decoder of a table's keys or values, by their format
    row_decoder    Kafka records to rows and dead letters, in Spark's tasks
    columns/       columns that kernels write, and conversion of columns to a table's types
    rows/          format of a table's rows, table rules, changes of rows
    sql/           SQL of conditions, select lists and lists of columns
    json/, avro/, protobuf/    decoders of the formats
    registry/      values that name their schema in a schema registry
"""

"""Decoder of Avro, with the results of Spark's `from_avro`.

Other packages use `open_decoder` instead.

    avro_schema    parser of schemas
    avro_types     Arrow types of schemas, and growth of schemas
    avro_kernels   the kernel
    avro_decoder   decoder of values to a column, and the kernel's program
"""

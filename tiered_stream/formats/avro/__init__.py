"""Decoder of Avro, with the results of Spark's `from_avro`.

Other packages create the decoder by `formats/open_decoder.py`.

    avro_schema      parser of schemas
    avro_types       Arrow types of schemas, and growth of schemas
    avro_kernels     compiled functions that read values into columns
    avro_decoder     decoder of values to a column, and compiler of the program that the compiled functions run
    large_decimals   conversion of decimals of more than 38 digits to texts or DOUBLE
"""

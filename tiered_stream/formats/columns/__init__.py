"""Columns that kernels write, and conversion of columns to a table's types.

Other packages use `conform`.

    column_kernels   kernels that append values to columns, and read bytes that several formats have
    column_builder   memory of the columns, and its estimate for a batch
    decoded          values as kernels take them, and interfaces of all decoders
    conform          conversion of columns and growth of types, without changing a value
"""

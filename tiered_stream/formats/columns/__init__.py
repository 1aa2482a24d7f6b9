"""Columns that kernels write, and conversion of columns to a table's types.

Other packages use `conform`.

    column_kernels   compiled functions (kernels) that append values to columns, and read bytes for several formats
    column_builder   allocation of the columns' memory, and Arrow arrays from it
    decoded          byte strings as kernels take them, and interfaces of all decoders
    conform          conversion of columns and growth of types, without changing a value
"""

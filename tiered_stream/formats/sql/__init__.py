"""SQL that gives the same result here as in Spark: conditions, select lists, CHECK constraints, and lists of columns.

Only the functions and operators in `functions` are supported. Other packages use `parser` (trees of SQL), `bound`
(trees with types, ready for batches), `functions` (for the documentation) and `sql_reader` (schemas as SQL text).

    sql_reader    tokens, names of types, lists of columns
    parser        expressions to trees
    functions     supported functions and operators
    bound         trees with the types of columns
    sql_values    expressions with types, and the type conversions that Spark makes implicitly
    operators, text_functions, sql_times, casts    the functions and operators
"""

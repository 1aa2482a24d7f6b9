"""Part of Spark SQL, evaluated on Arrow batches with Spark's results: conditions, select lists and CHECK constraints.

Only the functions and operators in `functions` are supported. Other packages import `parser`, `bound`, `functions` (for
the documentation) and `sql_reader` (schemas as lists of columns in SQL).

    sql_reader    tokens, names of types, lists of columns
    parser        parser of SQL texts to trees
    functions     supported functions and operators
    bound         expressions made of trees and the types of columns, which can be evaluated for a batch
    sql_values    class of these expressions, and the type conversions that Spark makes implicitly
    operators, text_functions, sql_times, casts    the functions and operators
"""

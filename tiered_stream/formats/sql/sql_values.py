"""SQL expressions that can be evaluated for a batch (`Bound`), and the type conversions that Spark makes implicitly.

Most functions of this package take and return expressions (`Bound`), not values.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql.sql_reader import (
    BIGINT,
    DOUBLE,
    FLOAT,
    INT,
    MAX_PRECISION,
    NULL,
    STRING,
    SqlTypeError,
    sql_name,
)

BLANKS = "".join(map(chr, (*range(33), 127)))
"""Characters that Spark's casts ignore at both ends of a text: blanks and control characters of ASCII.

Spark looks at single bytes (`UTF8String.trimAll`), so it keeps control characters that have two bytes in UTF-8.
"""
Values = Any
"""Result of an expression for a batch: an Arrow array, or an Arrow scalar if all rows have the same value."""
_DIGITS = {pa.int8(): 3, pa.int16(): 5, INT: 10, BIGINT: 20}
"""Precision of the DECIMAL to which Spark converts values of an integer type."""


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """SQL expression that can be evaluated for a batch of decoded rows. Its type is `kind`.

    `values` returns the expression's values for a batch. `literal` is the Python value of a literal; it has no meaning
    unless `is_literal` is True. `ops` are the operations that may be outermost after Spark's optimizer has simplified
    the expression. For example, the optimizer may simplify `if(a, upper(b), c)` to `upper(b)`.
    """

    kind: pa.DataType
    values: Callable[[pa.RecordBatch], Values]
    is_literal: bool = False
    literal: Any = None
    ops: frozenset[str] = frozenset()


def literal(value: Any, kind: pa.DataType) -> Bound:
    """Return a literal of the type `kind` as an expression. The value None stands for NULL."""
    scalar = pa.scalar(value, kind)
    return Bound(kind, lambda batch: scalar, True, value)


def call(kind: pa.DataType, function: Callable[..., Values], *args: Bound) -> Bound:
    """Return the expression of the type `kind` that applies `function` to the values of `args`."""
    return Bound(kind, lambda batch: function(*(arg.values(batch) for arg in args)))


def type_names(args: Sequence[Bound]) -> str:
    return " and ".join(sql_name(arg.kind) for arg in args)


def is_integer(kind: pa.DataType) -> bool:
    return kind in _DIGITS


def is_floating(kind: pa.DataType) -> bool:
    return kind in (FLOAT, DOUBLE)


def is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind))


def is_number(kind: pa.DataType) -> bool:
    return is_integer(kind) or is_floating(kind) or is_decimal(kind)


def digits(kind: pa.DataType) -> int:
    """Return the precision of the DECIMAL to which Spark converts the integer type `kind`."""
    return _DIGITS[kind]


def as_decimal(arg: Bound) -> Bound:
    """Return an integer expression, converted to the DECIMAL type that Spark gives it next to a DECIMAL operand.

    An expression of a DECIMAL type is returned unchanged.
    """
    if is_decimal(arg.kind):
        return arg
    if arg.is_literal and arg.literal is not None:
        return literal(Decimal(arg.literal), pa.decimal128(len(str(abs(arg.literal))), 0))
    return widened(arg, pa.decimal128(digits(arg.kind), 0))


def widened(arg: Bound, kind: pa.DataType) -> Bound:
    """Return `arg`, converted to the type `kind`.

    `kind` must hold all values of the type of `arg`, or be DOUBLE or FLOAT, to which values are rounded.
    """
    if arg.kind == kind:
        return arg
    if arg.is_literal:
        value = arg.literal
        return literal(float(value) if is_floating(kind) and value is not None else value, kind)
    if is_decimal(arg.kind) and is_floating(kind):
        # By the text, because Arrow's own conversion does not round as Java does.
        return call(kind, lambda values: values.cast(STRING).cast(kind), arg)
    if is_integer(arg.kind) and is_decimal(kind):
        whole = pa.decimal128(19, 0)  # Arrow wants room for all of a type's digits
        return call(kind, lambda values: values.cast(BIGINT).cast(whole).cast(kind), arg)
    return call(kind, lambda values: values.cast(kind, safe=False), arg)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type to which Spark converts values of two types, for a comparison or for the branches of CASE.

    The result is None if no common type is supported. For example, Spark's common type of a FLOAT and an integer
    depends on `spark.sql.ansi.enabled`.
    """
    if left == right:
        return left
    if is_integer(left) and is_integer(right):
        return max(left, right, key=digits)
    if DOUBLE in (left, right) and is_number(left) and is_number(right):
        return DOUBLE
    if is_decimal(left) and is_decimal(right):
        scale = max(left.scale, right.scale)
        whole = max(kind.precision - kind.scale for kind in (left, right))
        return pa.decimal128(whole + scale, scale) if whole + scale <= MAX_PRECISION else None
    return None


def common(args: Sequence[Bound], what: str) -> list[Bound]:
    """Return `args`, all converted to one type, as Spark converts the branches of CASE or the sides of a comparison.

    NULL gets the type of the other arguments. `what` is the name of the SQL operation, for error messages.

    Raises:
        SqlTypeError: all arguments are NULL, or their types have no supported common type.
    """
    kinds = [arg.kind for arg in args if arg.kind != NULL]
    if not kinds:
        raise SqlTypeError(f"{what} has only NULL: give one a type by CAST(NULL AS …)")
    kind = kinds[0]
    for other in kinds[1:]:
        wider = common_type(kind, other)
        if wider is None:
            names = f"{sql_name(kind)} and {sql_name(other)}"
            raise SqlTypeError(f"{what} has {names}: give both one type by CAST or TRY_CAST")
        kind = wider
    return [literal(None, kind) if arg.kind == NULL else widened(arg, kind) for arg in args]


def of_arrays(function: Callable[[pa.Array], pa.Array]) -> Callable[[Values], Values]:
    """Return a function that applies `function`, which takes and returns an array, to an array or to a scalar."""
    return lambda values: function(as_array(values, 1))[0] if isinstance(values, pa.Scalar) else function(values)


def within(kind: pa.DataType, numbers: pa.Array) -> pa.Array:
    """Cast `numbers` to the integer type `kind`. A number that does not fit becomes null.

    `numbers` are integers, or DECIMAL numbers without a fraction: an array, or a scalar. The result has the same form.
    """
    largest = (1 << (kind.bit_width - 1)) - 1
    fits = pc.and_(pc.greater_equal(numbers, -largest - 1), pc.less_equal(numbers, largest))
    return pc.if_else(fits, numbers, pa.scalar(None, numbers.type)).cast(kind)


def as_array(values: Values, rows: int) -> pa.Array:
    """Return `values` as an array. A scalar is repeated `rows` times."""
    if isinstance(values, pa.Scalar):
        return pa.repeat(values, rows)
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def if_else(condition: Values, then: Values, otherwise: Values) -> Values:
    """Return `then` where the condition is true, and `otherwise` where it is false or null."""
    return pc.if_else(pc.coalesce(condition, pa.scalar(False)), then, otherwise)


def fitted(number: Decimal, precision: int, scale: int) -> Decimal | None:
    """Return `number` rounded half up to `scale` decimal places, or None if it has more digits than `precision`."""
    context = decimal.Context(
        prec=precision, rounding=decimal.ROUND_HALF_UP, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX
    )
    try:
        return number.quantize(Decimal((0, (1,), -scale)), context=context)
    except decimal.InvalidOperation:
        return None

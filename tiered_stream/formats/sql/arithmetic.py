"""SQL's arithmetic that cannot fail: of DOUBLE, FLOAT, DECIMAL with room for each result, and the `try_` functions.

By `spark.sql.ansi.enabled`, Spark stops a query or wraps the number around if an integer is too large. So integers
have the `try_` functions here, which give NULL.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql.sql_values import (
    DOUBLE,
    MAX_PRECISION,
    NULL,
    Bound,
    SqlTypeError,
    Values,
    as_array,
    as_decimal,
    call,
    common_number,
    is_decimal,
    is_floating,
    is_integer,
    is_number,
    sql_name,
    type_names,
    widened,
)

_UNCHECKED: dict[str, Callable[..., Values]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_CHECKED: dict[str, Callable[..., Values]] = {
    "+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked,
}  # fmt: skip
_EXACT: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
TRY_NAMES = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide"}


def arithmetic(op: str, left: Bound, right: Bound) -> Bound:
    """Return the sum, difference or product of two numbers.

    Raises:
        SqlTypeError: an argument is no number, or the operation can fail.
    """
    left, right = _numbers(op, left, right)
    if is_decimal(left.kind) or is_decimal(right.kind):
        return _of_decimals(op, as_decimal(left), as_decimal(right))
    kind = _common(op, left, right)
    if not is_floating(kind):
        raise SqlTypeError(
            f"{op} of {type_names([left, right])} can overflow: use {TRY_NAMES[op]}, which then gives NULL, or CAST to "
            "DOUBLE or DECIMAL"
        )
    return call(kind, _UNCHECKED[op], widened(left, kind), widened(right, kind))


def _numbers(what: str, left: Bound, right: Bound) -> tuple[Bound, Bound]:
    """Return both numbers; if one is a DECIMAL and the other a DOUBLE or FLOAT, both are DOUBLE."""
    if not (is_number(left.kind) and is_number(right.kind)):
        hint = ": give NULL a type by CAST(NULL AS …)" if NULL in (left.kind, right.kind) else ""
        raise SqlTypeError(f"{what} needs numbers, but has {type_names([left, right])}{hint}")
    if is_decimal(left.kind) != is_decimal(right.kind) and (is_floating(left.kind) or is_floating(right.kind)):
        return widened(left, DOUBLE), widened(right, DOUBLE)
    return left, right


def _common(what: str, left: Bound, right: Bound) -> pa.DataType:
    kind = common_number(left, right)
    if kind is None:
        raise SqlTypeError(f"{what} has {type_names([left, right])}: CAST one to DOUBLE")
    return kind


def _of_decimals(op: str, left: Bound, right: Bound) -> Bound:
    one, other = left.kind, right.kind
    if op == "*":
        precision, scale = one.precision + other.precision + 1, one.scale + other.scale
    else:
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
    if precision > MAX_PRECISION:
        raise SqlTypeError(
            f"{op} of {type_names([left, right])} can overflow DECIMAL({MAX_PRECISION},…): CAST to a smaller DECIMAL "
            "by TRY_CAST before"
        )
    return call(pa.decimal128(precision, scale), _UNCHECKED[op], left, right)


def tried(op: str, left: Bound, right: Bound) -> Bound:
    """Return the sum, difference or product of two integers, or null if it does not fit their wider type.

    Numbers of other types are as in `arithmetic`.
    """
    if not (is_integer(left.kind) and is_integer(right.kind)):
        return arithmetic(op, left, right)
    kind = _common(TRY_NAMES[op], left, right)
    checked, exact = _CHECKED[op], _EXACT[op]
    largest = (1 << (kind.bit_width - 1)) - 1

    def fitted(one: int | None, other: int | None) -> int | None:
        if one is None or other is None:
            return None
        result: int = exact(one, other)
        return result if -largest - 1 <= result <= largest else None

    def values(one: Values, other: Values) -> Values:
        try:
            return checked(one, other)
        except pa.ArrowInvalid:  # a number of the batch does not fit
            rows = max(1 if isinstance(side, pa.Scalar) else len(side) for side in (one, other))
            pairs = zip(as_array(one, rows).to_pylist(), as_array(other, rows).to_pylist(), strict=True)
            fitting = pa.array([fitted(*pair) for pair in pairs], kind)
            scalars = isinstance(one, pa.Scalar) and isinstance(other, pa.Scalar)
            return fitting[0] if scalars else fitting

    return call(kind, values, widened(left, kind), widened(right, kind))


def divided(left: Bound, right: Bound) -> Bound:
    """Return the quotient of a number and a literal as DOUBLE.

    Raises:
        SqlTypeError: a side is a DECIMAL, or the divisor is no literal or is zero.
    """
    left, right = _dividend_and_divisor("/", left, right)
    if not (right.is_literal and right.literal):
        raise SqlTypeError("/ fails at a zero: use try_divide, which then gives NULL, or divide by a literal")
    return call(DOUBLE, pc.divide, left, right)


def tried_quotient(left: Bound, right: Bound) -> Bound:
    """Return the quotient of two numbers as DOUBLE, or null if the divisor is zero.

    Raises:
        SqlTypeError: a side is a DECIMAL.
    """
    left, right = _dividend_and_divisor("try_divide", left, right)
    zero, none = pa.scalar(0.0), pa.scalar(None, DOUBLE)
    return call(DOUBLE, lambda one, other: pc.divide(one, pc.if_else(pc.equal(other, zero), none, other)), left, right)


def _dividend_and_divisor(what: str, left: Bound, right: Bound) -> tuple[Bound, Bound]:
    left, right = _numbers(what, left, right)
    if is_decimal(left.kind) or is_decimal(right.kind):
        raise SqlTypeError(f"{what} of {type_names([left, right])} is not on the list: CAST both to DOUBLE")
    return widened(left, DOUBLE), widened(right, DOUBLE)


def remainder(left: Bound, right: Bound) -> Bound:
    """Return the remainder of an integer and a positive literal, with the sign of the integer."""
    if not (is_integer(left.kind) and is_integer(right.kind) and right.is_literal and (right.literal or 0) > 0):
        raise SqlTypeError("% is listed for an integer and a literal above 0")
    kind = _common("%", left, right)

    def values(one: Values, other: Values) -> Values:
        return pc.subtract(one, pc.multiply(pc.divide(one, other), other))

    return call(kind, values, widened(left, kind), widened(right, kind))


def negative(arg: Bound) -> Bound:
    """Return the number with the other sign."""
    return _of_sign("-", arg, pc.negate)


def absolute(arg: Bound) -> Bound:
    """Return the number without its sign."""
    return _of_sign("abs", arg, pc.abs)


def _of_sign(what: str, arg: Bound, function: Callable[[Values], Values]) -> Bound:
    if not (is_floating(arg.kind) or is_decimal(arg.kind)):
        raise SqlTypeError(
            f"{what} is listed for DOUBLE, FLOAT and DECIMAL, not for {sql_name(arg.kind)}, which can overflow: CAST it"
        )
    return call(arg.kind, function, arg)

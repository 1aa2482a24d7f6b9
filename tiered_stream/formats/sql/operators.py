"""SQL's operators and conditions: arithmetic that cannot fail, and comparisons with Spark's order of values.

If an integer overflows, Spark fails or wraps the number around, depending on `spark.sql.ansi.enabled`. So `+`, `-` and
`*` are supported only for DOUBLE, FLOAT, and DECIMAL with room for each result. For integers, functions such as
`try_add` are supported, which give NULL on overflow.

In Spark, NaN equals NaN and is larger than all other numbers. Texts and bytes are ordered by their bytes. Conditions
have three-valued logic.

The functions here return expressions (`Bound`), and raise SqlTypeError if the operation does not support the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql.sql_reader import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    MAX_PRECISION,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    SqlTypeError,
    sql_name,
)
from tiered_stream.formats.sql.sql_times import time_literal
from tiered_stream.formats.sql.sql_values import (
    Bound,
    Values,
    as_decimal,
    call,
    common,
    common_type,
    digits,
    if_else,
    is_decimal,
    is_floating,
    is_integer,
    is_number,
    literal,
    type_names,
    widened,
    within,
)

_UNCHECKED: dict[str, Callable[..., Values]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
"""Arrow functions by operator that raise an error if an integer overflows."""
TRY_NAMES = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide"}
_WIDE = pa.decimal256(19, 0)
"""Decimal type that holds every BIGINT. Arrow's type for the product of two such decimals has enough digits, too."""


def arithmetic(left: Bound, right: Bound, op: str) -> Bound:
    """Return the expression `left op right`, where `op` is `+`, `-` or `*`.

    Raises:
        SqlTypeError: an argument is not a number, or the result can overflow.
    """
    left, right = _both_numbers(op, left, right)
    if is_decimal(left.kind) or is_decimal(right.kind):
        return _of_decimals(op, as_decimal(left), as_decimal(right))
    kind = common_type(left.kind, right.kind)
    if kind is None:
        raise SqlTypeError(f"{op} has {type_names([left, right])}: CAST one to DOUBLE")
    if not is_floating(kind):
        raise SqlTypeError(
            f"{op} of {type_names([left, right])} can overflow: use {TRY_NAMES[op]}, which then gives NULL, or CAST to "
            "DOUBLE or DECIMAL"
        )
    return call(kind, _UNCHECKED[op], widened(left, kind), widened(right, kind))


def _both_numbers(what: str, left: Bound, right: Bound) -> tuple[Bound, Bound]:
    """Return both arguments, converted to DOUBLE if one is DECIMAL and the other is DOUBLE or FLOAT.

    Raises SqlTypeError if an argument is not a number. The message names the operation `what`.
    """
    if not (is_number(left.kind) and is_number(right.kind)):
        hint = ": give NULL a type by CAST(NULL AS …)" if NULL in (left.kind, right.kind) else ""
        raise SqlTypeError(f"{what} needs numbers, but has {type_names([left, right])}{hint}")
    if is_decimal(left.kind) != is_decimal(right.kind) and (is_floating(left.kind) or is_floating(right.kind)):
        return widened(left, DOUBLE), widened(right, DOUBLE)
    return left, right


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


def tried(left: Bound, right: Bound, name: str) -> Bound:
    """Return the expression `name(left, right)`, where `name` is `try_add`, `try_subtract` or `try_multiply`.

    If both arguments are integers, the result has the wider of the two types, and is null on overflow. Other numbers
    are computed as by `arithmetic`.

    Raises:
        SqlTypeError: an argument is not a number, or the result can overflow and is not an integer.
    """
    op = next(op for op, try_name in TRY_NAMES.items() if try_name == name)
    if not (is_integer(left.kind) and is_integer(right.kind)):
        return arithmetic(left, right, op)
    kind = max(left.kind, right.kind, key=digits)

    def values(one: Values, other: Values) -> Values:
        try:
            return _CHECKED[op](one, other)
        except pa.ArrowInvalid:  # a number of the batch does not fit
            return within(kind, _UNCHECKED[op](one.cast(_WIDE), other.cast(_WIDE)))

    return call(kind, values, widened(left, kind), widened(right, kind))


def quotient(left: Bound, right: Bound, name: str) -> Bound:
    """Return the expression `left / right` or `try_divide(left, right)`, whose type is DOUBLE.

    `name` is `/` or `try_divide`. The result of `try_divide` is null if `right` is zero.

    Raises:
        SqlTypeError: a side is a DECIMAL or not a number. Or `right` is not a literal or is zero, and `name` is `/`.
    """
    left, right = _both_numbers(name, left, right)
    if is_decimal(left.kind) or is_decimal(right.kind):
        raise SqlTypeError(f"{name} of {type_names([left, right])} is not on the list: CAST both to DOUBLE")
    if name == "/" and not (right.is_literal and right.literal):
        raise SqlTypeError("/ fails at a zero: use try_divide, which then gives NULL, or divide by a literal")
    zero, none = pa.scalar(0.0), pa.scalar(None, DOUBLE)
    return call(
        DOUBLE, lambda one, other: pc.divide(one, pc.if_else(pc.equal(other, zero), none, other)),
        widened(left, DOUBLE), widened(right, DOUBLE),
    )  # fmt: skip


def remainder(left: Bound, right: Bound) -> Bound:
    """Return the expression `left % right`, whose result has the sign of `left`.

    Raises SqlTypeError unless `left` is an integer and `right` is a positive integer literal.
    """
    if not (is_integer(left.kind) and is_integer(right.kind) and right.is_literal and (right.literal or 0) > 0):
        raise SqlTypeError("% is listed for an integer and a literal above 0")
    kind = max(left.kind, right.kind, key=digits)

    def values(one: Values, other: Values) -> Values:
        return pc.subtract(one, pc.multiply(pc.divide(one, other), other))

    return call(kind, values, widened(left, kind), widened(right, kind))


def of_sign(arg: Bound, name: str) -> Bound:
    """Return the expression `-arg` if `name` is `negative`, or `abs(arg)` if `name` is `abs`.

    Raises SqlTypeError if `arg` is not DOUBLE, FLOAT or DECIMAL.
    """
    if not (is_floating(arg.kind) or is_decimal(arg.kind)):
        raise SqlTypeError(
            f"{name.replace('negative', '-')} is listed for DOUBLE, FLOAT and DECIMAL, not for {sql_name(arg.kind)}, "
            "which can overflow: CAST it"
        )
    return call(arg.kind, {"negative": pc.negate, "abs": pc.abs}[name], arg)


_EXACT_IN_FLOAT = 1 << 24
_ORDERED = (BOOLEAN, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ)
FIXED_SET = 4
"""Minimum number of literals in an IN list for which a hash table is used."""


def _equal_floats(left: Values, right: Values) -> Values:
    return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _less_floats(left: Values, right: Values) -> Values:
    return pc.or_(pc.less(left, right), pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))


def sides(left: Bound, right: Bound, what: str, zone_is_utc: bool) -> tuple[Bound, Bound]:
    """Return both sides of a comparison, converted to the type in which Spark compares them.

    `what` is the operator, for error messages. `zone_is_utc` states whether the session's time zone is UTC.

    Raises:
        SqlTypeError: the types cannot be compared, or have no supported common type.
    """
    for one, other in ((left, right), (right, left)):
        if one.kind in (DATE, TIMESTAMP, BINARY) and other.kind == STRING and other.is_literal:
            text, is_binary = str(other.literal), one.kind == BINARY
            of_text = literal(text.encode(), BINARY) if is_binary else time_literal(text, one.kind, zone_is_utc)
            return (left, of_text) if one is left else (of_text, right)
    if is_number(left.kind) and is_number(right.kind) and left.kind != right.kind:
        return _numbers(left, right, what)
    one, other = common([left, right], what)
    if not (is_number(one.kind) or one.kind in _ORDERED):
        raise SqlTypeError(f"{what} does not compare {type_names([left, right])}")
    return one, other


def _numbers(left: Bound, right: Bound, what: str) -> tuple[Bound, Bound]:
    for number, limit in ((left, right), (right, left)):
        # If a literal is beyond an integer's type, Spark removes the comparison, and can give false in place of null
        # (`UnwrapCastInBinaryComparison`).
        if is_integer(number.kind) and not number.is_literal and limit.is_literal and limit.literal is not None:
            largest = 1 << (number.kind.bit_width - 1)
            if not -largest <= limit.literal < largest:
                raise SqlTypeError(
                    f"{what} compares {sql_name(number.kind)} with {limit.literal}, which it cannot reach"
                )
    left, right = _both_numbers(what, left, right)
    if is_decimal(left.kind) or is_decimal(right.kind):
        one, other = common([as_decimal(left), as_decimal(right)], what)
        return one, other
    kind = common_type(left.kind, right.kind)
    if kind is None and any(map(_is_exact_in_float, (left, right))):
        kind = DOUBLE  # Spark compares as FLOAT unless spark.sql.ansi.enabled is true, with the same result
    if kind is None:
        raise SqlTypeError(f"{what} has {type_names([left, right])}: give both one type by CAST")
    return widened(left, kind), widened(right, kind)


def _is_exact_in_float(arg: Bound) -> bool:
    return is_integer(arg.kind) and arg.is_literal and abs(arg.literal or 0) <= _EXACT_IN_FLOAT


def _equality(kind: pa.DataType) -> Callable[[Values, Values], Values]:
    return _equal_floats if is_floating(kind) else pc.equal


def compared(left: Bound, right: Bound, op: str, zone_is_utc: bool, what: str = "") -> Bound:
    """Return the expression `left op right`, where `op` is `=`, `<>`, `<`, `<=`, `>`, `>=` or `<=>`.

    Errors name the operation `what`, or `op` if `what` is ''.
    """
    left, right = sides(left, right, what or op, zone_is_utc)
    equal, less = _equality(left.kind), _less_floats if is_floating(left.kind) else pc.less
    functions: dict[str, Callable[[Values, Values], Values]] = {
        "=": equal,
        "<>": lambda one, other: pc.invert(equal(one, other)),
        "<=>": lambda one, other: pc.coalesce(equal(one, other), pc.and_(pc.is_null(one), pc.is_null(other))),
        "<": less,
        "<=": lambda one, other: pc.invert(less(other, one)),
        ">": lambda one, other: less(other, one),
        ">=": lambda one, other: pc.invert(less(one, other)),
    }
    return call(BOOLEAN, functions[op], left, right)


def is_in(name: str, args: Sequence[Bound], zone_is_utc: bool) -> Bound:
    """Return the expression `a IN (b, …)`, where `args` are a, b and so on. `name` is not used."""
    value, *others = args
    if {TIMESTAMP, STRING} <= {arg.kind for arg in args}:
        raise SqlTypeError(
            "IN compares a TIMESTAMP with a text as texts, unless spark.sql.ansi.enabled is true: write TIMESTAMP '…'"
        )
    if {BINARY, STRING} <= {arg.kind for arg in args}:
        raise SqlTypeError("IN does not compare BINARY with a text: write a = 'b' OR a = 'c'")
    pairs = [sides(value, other, "IN", zone_is_utc) for other in others]
    kinds = {one.kind for one, _ in pairs}
    if len(kinds) > 1:
        raise SqlTypeError(f"IN has {type_names(args)}: give all one type by CAST")
    kind = kinds.pop()
    fixed = all(other.is_literal and other.literal is not None for _, other in pairs)
    if fixed and len(pairs) >= FIXED_SET and not is_floating(kind):
        members = pa.array([other.literal for _, other in pairs], kind)

        def values(of_rows: Values) -> Values:
            return pc.if_else(pc.is_valid(of_rows), pc.is_in(of_rows, value_set=members), pa.scalar(None, BOOLEAN))

        return call(BOOLEAN, values, pairs[0][0])
    return any_of(*(call(BOOLEAN, _equality(kind), *pair) for pair in pairs))


def _conditions(args: Sequence[Bound], what: str) -> list[Bound]:
    """Return the arguments, with NULL literals of the type BOOLEAN.

    Raises SqlTypeError if an argument is neither BOOLEAN nor NULL. The message names the operation `what`.
    """
    if any(arg.kind not in (BOOLEAN, NULL) for arg in args):
        raise SqlTypeError(f"{what} needs BOOLEAN, but has {type_names(args)}")
    return [literal(None, BOOLEAN) if arg.kind == NULL else arg for arg in args]


def all_of(*args: Bound) -> Bound:
    return call(BOOLEAN, lambda *values: reduce(pc.and_kleene, values), *_conditions(args, "AND"))


def any_of(*args: Bound) -> Bound:
    return call(BOOLEAN, lambda *values: reduce(pc.or_kleene, values), *_conditions(args, "OR"))


def negated(arg: Bound) -> Bound:
    return call(BOOLEAN, pc.invert, *_conditions([arg], "NOT"))


def is_true(arg: Bound) -> Bound:
    """Return the expression `arg IS TRUE`, which is false for null."""
    return call(BOOLEAN, lambda values: pc.coalesce(values, pa.scalar(False)), *_conditions([arg], "IS TRUE"))


def is_false(arg: Bound) -> Bound:
    """Return the expression `arg IS FALSE`, which is false for null."""
    return is_true(negated(arg))


def case(*args: Bound) -> Bound:
    """Return a CASE expression. `args` are pairs of condition and value, and at the end perhaps the value of ELSE."""
    pairs, rest = args[: len(args) // 2 * 2], args[len(args) // 2 * 2 :]
    conditions = _conditions(pairs[::2], "CASE")
    *values, otherwise = common([*pairs[1::2], *(rest or [literal(None, NULL)])], "CASE")

    def values_of(batch: pa.RecordBatch) -> Values:
        result = otherwise.values(batch)
        for condition, value in zip(reversed(conditions), reversed(values), strict=True):
            result = if_else(condition.values(batch), value.values(batch), result)
        return result

    return Bound(otherwise.kind, values_of)


def first_valid(*args: Bound) -> Bound:
    """Return the expression `coalesce(…)`, whose result is the first argument that is not null."""
    values = common(args, "COALESCE")
    return call(values[0].kind, pc.coalesce, *values)


def null_if(left: Bound, right: Bound, zone_is_utc: bool) -> Bound:
    """Return the expression `nullif(left, right)`, whose result is null if both are equal, and otherwise `left`."""
    equal, none = compared(left, right, "=", zone_is_utc, "nullif"), pa.scalar(None, left.kind)
    return call(left.kind, lambda condition, values: if_else(condition, none, values), equal, left)

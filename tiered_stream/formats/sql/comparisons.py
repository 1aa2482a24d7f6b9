"""SQL's comparisons and conditions, with Spark's order of values and three-valued logic.

Spark's NaN equals NaN and is larger than all other numbers. Texts and bytes are ordered by their bytes.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql.sql_values import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Bound,
    SqlTypeError,
    Values,
    as_decimal,
    call,
    common,
    common_number,
    if_else,
    is_decimal,
    is_floating,
    is_integer,
    is_number,
    literal,
    sql_name,
    type_names,
    widened,
)

_EXACT_IN_FLOAT = 1 << 24
_ORDERED = (BOOLEAN, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ)
_TIMES = (DATE, TIMESTAMP)
_DATE_TEXT = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIMESTAMP_TEXT = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}:\d{2})(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?", re.ASCII
)
FIXED_SET = 4
"""Number of literals in an IN list from which on a hash table is used."""


def _nan(values: Values) -> Values:
    return pc.is_nan(values)


def _equal(left: Values, right: Values) -> Values:
    return pc.equal(left, right)


def _equal_floats(left: Values, right: Values) -> Values:
    return pc.or_(pc.equal(left, right), pc.and_(_nan(left), _nan(right)))


def _less_floats(left: Values, right: Values) -> Values:
    return pc.or_(pc.less(left, right), pc.and_(pc.invert(_nan(left)), _nan(right)))


def _less_equal_floats(left: Values, right: Values) -> Values:
    return pc.or_(pc.less_equal(left, right), pc.and_(_nan(right), pc.is_valid(left)))


def _same(left: Values, right: Values, equal: Callable[[Values, Values], Values]) -> Values:
    return pc.coalesce(equal(left, right), pc.and_(pc.is_null(left), pc.is_null(right)))


def sides(left: Bound, right: Bound, what: str, zone_is_utc: bool) -> tuple[Bound, Bound]:
    """Return both sides of a comparison in the type in which Spark compares them.

    Raises:
        SqlTypeError: the types cannot be compared, or have no common type on the list.
    """
    for one, other in ((left, right), (right, left)):
        if one.kind in _TIMES and other.kind == STRING and other.is_literal:
            of_text = time_literal(str(other.literal), one.kind, zone_is_utc)
            return (left, of_text) if one is left else (of_text, right)
    if is_number(left.kind) and is_number(right.kind) and left.kind != right.kind:
        return _numbers(left, right, what)
    one_type = tuple(common([left, right], what))
    if not (is_number(one_type[0].kind) or one_type[0].kind in _ORDERED):
        raise SqlTypeError(f"{what} does not compare {type_names([left, right])}")
    return one_type[0], one_type[1]


def _check_reach(number: Bound, limit: Bound, what: str) -> None:
    """Raise SqlTypeError if an integer is compared with a literal that its type cannot reach.

    Spark then removes the comparison, and can give false in place of null (`UnwrapCastInBinaryComparison`).
    """
    if number.is_literal or not (is_integer(number.kind) and limit.is_literal and limit.literal is not None):
        return
    largest = 1 << (number.kind.bit_width - 1)
    if not -largest <= limit.literal < largest:
        raise SqlTypeError(f"{what} compares {sql_name(number.kind)} with {limit.literal}, which it cannot reach")


def _numbers(left: Bound, right: Bound, what: str) -> tuple[Bound, Bound]:
    _check_reach(left, right, what)
    _check_reach(right, left, what)
    if is_decimal(left.kind) or is_decimal(right.kind):
        if is_floating(left.kind) or is_floating(right.kind):
            return widened(left, DOUBLE), widened(right, DOUBLE)
        one, other = common([as_decimal(left), as_decimal(right)], what)
        return one, other
    kind = common_number(left, right)
    if kind is None and any(map(_is_exact_in_float, (left, right))):
        kind = DOUBLE  # Spark compares as FLOAT unless spark.sql.ansi.enabled is true, with the same result
    if kind is None:
        raise SqlTypeError(f"{what} has {type_names([left, right])}: give both one type by CAST")
    return widened(left, kind), widened(right, kind)


def _is_exact_in_float(arg: Bound) -> bool:
    return is_integer(arg.kind) and arg.is_literal and abs(arg.literal or 0) <= _EXACT_IN_FLOAT


def equals(left: Bound, right: Bound, what: str, zone_is_utc: bool) -> Bound:
    left, right = sides(left, right, what, zone_is_utc)
    return call(BOOLEAN, _equality(left.kind), left, right)


def _equality(kind: pa.DataType) -> Callable[[Values, Values], Values]:
    return _equal_floats if is_floating(kind) else _equal


def compared(op: str, left: Bound, right: Bound, zone_is_utc: bool) -> Bound:
    """Return the comparison `op` of two values: `=`, `<>`, `<`, `<=`, `>`, `>=` or `<=>`."""
    left, right = sides(left, right, op, zone_is_utc)
    equal, floats = _equality(left.kind), is_floating(left.kind)
    less, less_equal = (_less_floats, _less_equal_floats) if floats else (pc.less, pc.less_equal)
    functions: dict[str, Callable[[Values, Values], Values]] = {
        "=": equal,
        "<>": lambda one, other: pc.invert(equal(one, other)),
        "<=>": lambda one, other: _same(one, other, equal),
        "<": less,
        "<=": less_equal,
        ">": lambda one, other: less(other, one),
        ">=": lambda one, other: less_equal(other, one),
    }
    return call(BOOLEAN, functions[op], left, right)


def is_in(args: Sequence[Bound], zone_is_utc: bool) -> Bound:
    """Return whether the first value equals one of the others."""
    value, *others = args
    if {TIMESTAMP, STRING} <= {arg.kind for arg in args}:
        raise SqlTypeError(
            "IN compares a TIMESTAMP with a text as texts, unless spark.sql.ansi.enabled is true: write TIMESTAMP '…'"
        )
    pairs = [sides(value, other, "IN", zone_is_utc) for other in others]
    kinds = {one.kind for one, _ in pairs}
    if len(kinds) > 1:
        raise SqlTypeError(f"IN has {type_names(args)}: give all one type by CAST")
    kind = kinds.pop()
    fixed = all(other.is_literal and other.literal is not None for _, other in pairs)
    if fixed and len(pairs) >= FIXED_SET and not is_floating(kind):
        members = pa.array([other.literal for _, other in pairs], kind)
        return call(
            BOOLEAN, lambda values: pc.and_(pc.is_in(values, value_set=members), true_or_null(values)), pairs[0][0]
        )
    return any_of([call(BOOLEAN, _equality(kind), *pair) for pair in pairs])


def true_or_null(values: Values) -> Values:
    """Return true for each value, and null for each null."""
    return pc.if_else(pc.is_valid(values), pa.scalar(True), pa.scalar(None, BOOLEAN))


def _conditions(args: Sequence[Bound], what: str) -> list[Bound]:
    """Return the arguments as BOOLEAN; NULL is a BOOLEAN, too."""
    if any(arg.kind not in (BOOLEAN, NULL) for arg in args):
        raise SqlTypeError(f"{what} needs BOOLEAN, but has {type_names(args)}")
    return [literal(None, BOOLEAN) if arg.kind == NULL else arg for arg in args]


def all_of(args: Sequence[Bound]) -> Bound:
    return reduce(lambda one, other: call(BOOLEAN, pc.and_kleene, one, other), _conditions(args, "AND"))


def any_of(args: Sequence[Bound]) -> Bound:
    return reduce(lambda one, other: call(BOOLEAN, pc.or_kleene, one, other), _conditions(args, "OR"))


def negated(args: Sequence[Bound]) -> Bound:
    return call(BOOLEAN, pc.invert, *_conditions(args, "NOT"))


def is_true(arg: Bound) -> Bound:
    """Return whether a condition is true, which a null is not."""
    return call(BOOLEAN, lambda values: pc.coalesce(values, pa.scalar(False)), *_conditions([arg], "IS TRUE"))


def is_false(arg: Bound) -> Bound:
    """Return whether a condition is false, which a null is not."""
    return is_true(negated([arg]))


def case(args: Sequence[Bound]) -> Bound:
    """Return the value after the first condition that is true; `args` are as in `Tree`."""
    pairs, rest = args[: len(args) // 2 * 2], args[len(args) // 2 * 2 :]
    conditions = _conditions(pairs[::2], "CASE")
    *values, otherwise = common([*pairs[1::2], *(rest or [literal(None, NULL)])], "CASE")

    def values_of(batch: pa.RecordBatch) -> Values:
        result = otherwise.values(batch)
        for condition, value in zip(reversed(conditions), reversed(values), strict=True):
            result = if_else(condition.values(batch), value.values(batch), result)
        return result

    return Bound(otherwise.kind, values_of)


def first_valid(args: Sequence[Bound]) -> Bound:
    """Return the first value that is not null."""
    values = common(args, "COALESCE")

    def values_of(batch: pa.RecordBatch) -> Values:
        result = values[-1].values(batch)
        for value in reversed(values[:-1]):
            own = value.values(batch)
            result = pc.if_else(pc.is_valid(own), own, result)
        return result

    return Bound(values[0].kind, values_of)


def null_if(left: Bound, right: Bound, zone_is_utc: bool) -> Bound:
    """Return the first value, or null if it equals the second."""
    equal, none = equals(left, right, "NULLIF", zone_is_utc), pa.scalar(None, left.kind)
    return call(left.kind, lambda condition, values: if_else(condition, none, values), equal, left)


def time_literal(text: str, kind: pa.DataType, zone_is_utc: bool) -> Bound:
    """Return the DATE or TIMESTAMP that a literal's text names.

    Raises:
        SqlTypeError: the text has another form, is no date or time, or its time depends on the session's time zone.
    """
    try:
        if kind == DATE and _DATE_TEXT.fullmatch(text):
            return literal(datetime.date.fromisoformat(text), DATE)
        match = _TIMESTAMP_TEXT.fullmatch(text) if kind == TIMESTAMP else None
        if match is not None:
            if match[4] is None and not zone_is_utc:
                raise SqlTypeError(
                    f"the time '{text}' depends on the session's time zone: write its offset, such as +00:00"
                )
            fraction = (match[3] or ".0").ljust(7, "0")
            moment = datetime.datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00:00'}{fraction}{match[4] or 'Z'}")
            return literal(moment, TIMESTAMP)
    except ValueError:
        pass
    forms = "yyyy-MM-dd" if kind == DATE else "yyyy-MM-dd HH:mm:ss+00:00"
    raise SqlTypeError(f"'{text:.100}' is no literal of the form {forms}")

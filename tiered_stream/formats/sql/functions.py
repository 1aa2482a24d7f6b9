"""List of the functions and operators of `ingest.select` and `ingest.where`.

Each gives the same result as Spark's SQL for all values, and fails for none. So a batch gives the same rows in both
lanes, with any value of `spark.sql.ansi.enabled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql import arithmetic, comparisons, sql_times, texts
from tiered_stream.formats.sql.sql_values import BOOLEAN, Bound, SqlTypeError, call, is_floating, sql_name

Bind = Callable[[Sequence[Bound], bool], Bound]


@dataclass(frozen=True, slots=True)
class Function:
    """Function or operator of the list.

    `forms` are its forms for the docs, in the order of `group`, and `meaning` says what it gives. `bind` takes the
    bound arguments, and whether the session's time zone is UTC. It raises SqlTypeError if the types are not on the
    list. A call has at least `least` and at most `most` arguments (None: any number).
    """

    group: str
    forms: str
    meaning: str
    bind: Bind
    least: int
    most: int | None


def _of_all(function: Callable[[Sequence[Bound]], Bound]) -> Bind:
    return lambda args, utc: function(args)


def _of_first(function: Callable[[Bound], Bound]) -> Bind:
    return lambda args, utc: function(args[0])


def _of_two(function: Callable[[Bound, Bound], Bound]) -> Bind:
    return lambda args, utc: function(args[0], args[1])


def _comparison(op: str) -> Bind:
    return lambda args, utc: comparisons.compared(op, args[0], args[1], utc)


def _arithmetic(op: str) -> Bind:
    return lambda args, utc: arithmetic.arithmetic(op, args[0], args[1])


def _tried(op: str) -> Bind:
    return lambda args, utc: arithmetic.tried(op, args[0], args[1])


def _trimmed(name: str) -> Bind:
    return lambda args, utc: texts.trimmed(args[0], name)


def _found(name: str) -> Bind:
    return lambda args, utc: texts.found(args, name)


def _part(name: str) -> Bind:
    return lambda args, utc: sql_times.part_of(args[0], name, utc)


def _unix_time(name: str) -> Bind:
    return lambda args, utc: sql_times.unix_time(args[0], name)


def _between(args: Sequence[Bound], utc: bool) -> Bound:
    value, low, high = args
    return comparisons.all_of(
        [comparisons.compared(">=", value, low, utc), comparisons.compared("<=", value, high, utc)]
    )


def _is_nan(arg: Bound) -> Bound:
    if not is_floating(arg.kind):
        raise SqlTypeError(f"isnan needs DOUBLE or FLOAT, but has {sql_name(arg.kind)}")
    return call(BOOLEAN, lambda values: pc.coalesce(pc.is_nan(values), pa.scalar(False)), arg)


def _is_null(arg: Bound) -> Bound:
    return call(BOOLEAN, pc.is_null, arg)


def _is_not_null(arg: Bound) -> Bound:
    return call(BOOLEAN, pc.is_valid, arg)


CONDITIONS, NUMBERS, TEXTS, TIMES = "Conditions", "Numbers", "Texts", "Dates and times"
_NO_INTEGERS = "for DOUBLE, FLOAT without integers, and DECIMAL whose result has at most 38 digits"
_SIGNED = "for DOUBLE, FLOAT and DECIMAL"
_OF_TIMESTAMP = "argument: TIMESTAMP"
_NOT_WITHIN = "; of integers not within itself"
_OF_CASE = "neither within the other; letters of Unicode 17, as in Spark 4.2"
_ANY = _of_all(comparisons.first_valid)
FUNCTIONS: Mapping[str, Function] = {
    **{op: Function(CONDITIONS, f"`a {op} b`", "", _comparison(op), 2, 2) for op in ("=", "<>", "<", "<=", ">", ">=")},
    "<=>": Function(CONDITIONS, "`a <=> b`, `a IS [NOT] DISTINCT FROM b`", "", _comparison("<=>"), 2, 2),
    "and": Function(CONDITIONS, "`a AND b`", "", _of_all(comparisons.all_of), 2, None),
    "or": Function(CONDITIONS, "`a OR b`", "", _of_all(comparisons.any_of), 2, None),
    "not": Function(CONDITIONS, "`NOT a`", "", _of_all(comparisons.negated), 1, 1),
    "in": Function(
        CONDITIONS, "`a IN (b, c)`", "with a TIMESTAMP: literals as `TIMESTAMP '…'`", comparisons.is_in, 2, None
    ),
    "between": Function(CONDITIONS, "`a BETWEEN b AND c`", "", _between, 3, 3),
    "like": Function(
        CONDITIONS, "`a LIKE 'b%_'`", "the pattern is a literal without a backslash", _of_two(texts.like), 2, 2
    ),
    "isnull": Function(CONDITIONS, "`a IS NULL`, `isnull(a)`", "", _of_first(_is_null), 1, 1),
    "isnotnull": Function(CONDITIONS, "`a IS NOT NULL`, `isnotnull(a)`", "", _of_first(_is_not_null), 1, 1),
    "istrue": Function(CONDITIONS, "`a IS [NOT] TRUE`", "", _of_first(comparisons.is_true), 1, 1),
    "isfalse": Function(CONDITIONS, "`a IS [NOT] FALSE`", "", _of_first(comparisons.is_false), 1, 1),
    "case": Function(
        CONDITIONS, "`CASE WHEN a THEN b ELSE c END`, `CASE a WHEN b THEN c END`", "", _of_all(comparisons.case), 2,
        None,
    ),
    "if": Function(CONDITIONS, "`if(a, b, c)`", "", _of_all(comparisons.case), 3, 3),
    "coalesce": Function(CONDITIONS, "`coalesce(a, b)`", "", _ANY, 1, None),
    "nvl": Function(CONDITIONS, "`nvl(a, b)`", "", _ANY, 2, 2),
    "ifnull": Function(CONDITIONS, "`ifnull(a, b)`", "", _ANY, 2, 2),
    "nullif": Function(
        CONDITIONS, "`nullif(a, b)`", "", lambda args, utc: comparisons.null_if(args[0], args[1], utc), 2, 2
    ),
    **{op: Function(NUMBERS, f"`a {op} b`", _NO_INTEGERS, _arithmetic(op), 2, 2) for op in ("+", "-", "*")},
    "/": Function(
        NUMBERS, "`a / 100`", "a DOUBLE; the divisor is a literal, and neither side is DECIMAL",
        _of_two(arithmetic.divided), 2, 2,
    ),
    "%": Function(NUMBERS, "`a % 10`", "for an integer and a literal above 0", _of_two(arithmetic.remainder), 2, 2),
    "negative": Function(NUMBERS, "`-a`", _SIGNED, _of_first(arithmetic.negative), 1, 1),
    "abs": Function(NUMBERS, "`abs(a)`", _SIGNED, _of_first(arithmetic.absolute), 1, 1),
    **{
        arithmetic.TRY_NAMES[op]: Function(
            NUMBERS, f"`{arithmetic.TRY_NAMES[op]}(a, b)`",
            f"`a {op} b`, also of integers; NULL if it is too large{within}", _tried(op), 2, 2,
        )
        for op, within in (("+", _NOT_WITHIN), ("-", ""), ("*", _NOT_WITHIN))
    },
    "try_divide": Function(
        NUMBERS, "`try_divide(a, b)`", "a DOUBLE; NULL if `b` is zero", _of_two(arithmetic.tried_quotient), 2, 2
    ),
    "isnan": Function(NUMBERS, "`isnan(a)`", "", _of_first(_is_nan), 1, 1),
    **{
        name: Function(TEXTS, f"`{name}(a)`", _OF_CASE, _of_first(function), 1, 1)
        for name, function in (("lower", texts.lower), ("upper", texts.upper))
    },
    **{
        name: Function(TEXTS, f"`{name}(a)`", "removes blanks", _trimmed(name), 1, 1)
        for name in ("trim", "ltrim", "rtrim")
    },
    "length": Function(TEXTS, "`length(a)`, `char_length(a)`", "also of BINARY", _of_first(texts.length), 1, 1),
    "substring": Function(
        TEXTS, "`substring(a, 2, 3)`, `substr(a, 2, 3)`", "position and length are literals, and no BIGINT",
        _of_all(texts.part), 2, 3,
    ),
    "concat": Function(TEXTS, "`concat(a, b)`, `a || b`", "", _of_all(texts.concatenated), 1, None),
    "replace": Function(
        TEXTS, "`replace(a, 'b', 'c')`", "the last two are literals", _of_all(texts.replaced), 2, 3
    ),
    **{
        name: Function(TEXTS, f"`{name}(a, 'b')`", "the second text is a literal", _found(name), 2, 2)
        for name in ("startswith", "endswith", "contains")
    },
    **{
        name: Function(TIMES, f"`{name}(a)`", "argument: DATE or TIMESTAMP", _part(name), 1, 1)
        for name in ("year", "month", "day")
    },
    **{
        name: Function(TIMES, f"`{name}(a)`", _OF_TIMESTAMP, _part(name), 1, 1) for name in ("hour", "minute", "second")
    },
    "to_date": Function(TIMES, "`to_date(a)`", _OF_TIMESTAMP, lambda args, utc: sql_times.date_of(args[0], utc), 1, 1),
    **{
        name: Function(TIMES, f"`{name}(a)`", _OF_TIMESTAMP, _unix_time(name), 1, 1)
        for name in ("unix_seconds", "unix_millis", "unix_micros")
    },
    "timestamp_micros": Function(
        TIMES, "`timestamp_micros(a)`",
        "argument: an integer, not a computed constant; for milliseconds: `timestamp_micros(try_multiply(a, 1000))`",
        _of_first(sql_times.timestamp_of_micros), 1, 1,
    ),
}  # fmt: skip
"""Functions and operators by name. Casts, columns, fields and literals have rules of their own (`bound.py`)."""
ALIASES = {"substr": "substring", "dayofmonth": "day", "char_length": "length", "character_length": "length"}
"""Other names of listed functions."""

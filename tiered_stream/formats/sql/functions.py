"""List of the functions and operators of `ingest.select` and `ingest.where`.

Each gives the same result as in Spark's SQL for any values, and cannot fail for any values. So a batch gives the same
rows in both lanes, with any value of `spark.sql.ansi.enabled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from tiered_stream.formats.sql import arithmetic, comparisons, texts, times
from tiered_stream.formats.sql.sql_values import BOOLEAN, Bound, SqlTypeError, call, is_floating, sql_name

Args = list[Bound]


@dataclass(frozen=True, slots=True)
class Function:
    """Function or operator of the list.

    `forms` are its forms for the docs, and `meaning` says what it gives. `bind` takes the bound arguments, and whether
    the session's time zone is UTC. It raises SqlTypeError if the types are not on the list.
    """

    group: str
    forms: str
    meaning: str
    bind: Callable[[Args, bool], Bound]
    least: int
    most: int | None


def _floating(arg: Bound, what: str) -> Bound:
    if not is_floating(arg.kind):
        raise SqlTypeError(f"{what} needs DOUBLE or FLOAT, but has {sql_name(arg.kind)}")
    return arg


def _is_nan(args: Args, utc: bool) -> Bound:
    return call(BOOLEAN, lambda values: pc.coalesce(pc.is_nan(values), False), _floating(args[0], "isnan"))


def _if(args: Args, utc: bool) -> Bound:
    return comparisons.case(args)


def _to_date(args: Args, utc: bool) -> Bound:
    return times.date_of(args[0], utc)


_LOGIC, _ARITHMETIC, _TEXTS, _TIMES = "Conditions", "Numbers", "Texts", "Dates and times"
FUNCTIONS: Mapping[str, Function] = {
    "and": Function(_LOGIC, "`a AND b`", "", lambda args, utc: comparisons.all_of(args), 2, None),
    "or": Function(_LOGIC, "`a OR b`", "", lambda args, utc: comparisons.any_of(args), 2, None),
    "not": Function(_LOGIC, "`NOT a`", "", lambda args, utc: comparisons.negated(args), 1, 1),
    **{
        op: Function(_LOGIC, f"`a {op} b`", "", lambda args, utc, op=op: comparisons.compared(op, *args, utc), 2, 2)
        for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")
    },
    "in": Function(_LOGIC, "`a IN (b, c)`", "", comparisons.is_in, 2, None),
    "between": Function(
        _LOGIC, "`a BETWEEN b AND c`", "",
        lambda args, utc: comparisons.all_of(
            [comparisons.compared(">=", args[0], args[1], utc), comparisons.compared("<=", args[0], args[2], utc)]
        ), 3, 3,
    ),
    "like": Function(
        _LOGIC, "`a LIKE 'b%'`", "the pattern is a literal without a backslash",
        lambda args, utc: texts.like(args[0], args[1]), 2, 2,
    ),
    "isnull": Function(
        _LOGIC, "`a IS NULL`, `isnull(a)`", "", lambda args, utc: call(BOOLEAN, pc.is_null, args[0]), 1, 1
    ),
    "isnotnull": Function(
        _LOGIC, "`a IS NOT NULL`, `isnotnull(a)`", "", lambda args, utc: call(BOOLEAN, pc.is_valid, args[0]), 1, 1
    ),
    "istrue": Function(_LOGIC, "`a IS [NOT] TRUE`", "", lambda args, utc: comparisons.is_true(args[0], True), 1, 1),
    "isfalse": Function(_LOGIC, "`a IS [NOT] FALSE`", "", lambda args, utc: comparisons.is_true(args[0], False), 1, 1),
    "case": Function(
        _LOGIC, "`CASE WHEN a THEN b ELSE c END`, `CASE a WHEN b THEN c END`", "",
        lambda args, utc: comparisons.case(args), 2, None,
    ),
    "if": Function(_LOGIC, "`if(a, b, c)`", "", _if, 3, 3),
    "coalesce": Function(_LOGIC, "`coalesce(a, b)`", "", lambda args, utc: comparisons.first_valid(args), 1, None),
    "nvl": Function(_LOGIC, "`nvl(a, b)`", "", lambda args, utc: comparisons.first_valid(args), 2, 2),
    "ifnull": Function(_LOGIC, "`ifnull(a, b)`", "", lambda args, utc: comparisons.first_valid(args), 2, 2),
    "nullif": Function(_LOGIC, "`nullif(a, b)`", "", lambda args, utc: comparisons.null_if(*args, utc), 2, 2),
    **{
        op: Function(
            _ARITHMETIC, f"`a {op} b`", "for DOUBLE, FLOAT, and DECIMAL whose result has at most 38 digits",
            lambda args, utc, op=op: arithmetic.arithmetic(op, *args), 2, 2,
        )
        for op in ("+", "-", "*")
    },
    "/": Function(
        _ARITHMETIC, "`a / 100`", "a DOUBLE; the divisor is a literal, and neither side is DECIMAL",
        lambda args, utc: arithmetic.divided(*args, tried=False), 2, 2,
    ),
    "%": Function(
        _ARITHMETIC, "`a % 10`", "for an integer and a literal above 0",
        lambda args, utc: arithmetic.remainder(*args), 2, 2,
    ),
    "negative": Function(
        _ARITHMETIC, "`-a`", "for DOUBLE, FLOAT and DECIMAL", lambda args, utc: arithmetic.negative(args[0]), 1, 1
    ),
    "abs": Function(
        _ARITHMETIC, "`abs(a)`", "for DOUBLE, FLOAT and DECIMAL", lambda args, utc: arithmetic.absolute(args[0]), 1, 1
    ),
    **{
        arithmetic.TRY_NAMES[op]: Function(
            _ARITHMETIC, f"`{arithmetic.TRY_NAMES[op]}(a, b)`", f"`a {op} b`, also of integers; NULL if it is too large",
            lambda args, utc, op=op: arithmetic.tried(op, *args), 2, 2,
        )
        for op in ("+", "-", "*")
    },
    "try_divide": Function(
        _ARITHMETIC, "`try_divide(a, b)`", "a DOUBLE; NULL if `b` is zero",
        lambda args, utc: arithmetic.divided(*args, tried=True), 2, 2,
    ),
    "isnan": Function(_ARITHMETIC, "`isnan(a)`", "", _is_nan, 1, 1),
    "lower": Function(_TEXTS, "`lower(a)`", "", lambda args, utc: texts.lower(args[0]), 1, 1),
    "upper": Function(_TEXTS, "`upper(a)`", "", lambda args, utc: texts.upper(args[0]), 1, 1),
    **{
        name: Function(
            _TEXTS, f"`{name}(a)`", "removes blanks", lambda args, utc, name=name: texts.trimmed(args[0], name), 1, 1
        )
        for name in ("trim", "ltrim", "rtrim")
    },
    "length": Function(_TEXTS, "`length(a)`", "also of BINARY", lambda args, utc: texts.length(args[0]), 1, 1),
    "substring": Function(
        _TEXTS, "`substring(a, 2, 3)`, `substr`", "position and length are literals",
        lambda args, utc: texts.part(args), 2, 3,
    ),
    "concat": Function(
        _TEXTS, "`concat(a, b)`, `a || b`", "", lambda args, utc: texts.concatenated(args), 1, None
    ),
    "replace": Function(
        _TEXTS, "`replace(a, 'b', 'c')`", "both texts are literals", lambda args, utc: texts.replaced(args), 2, 3
    ),
    **{
        name: Function(
            _TEXTS, f"`{name}(a, 'b')`", "the second text is a literal",
            lambda args, utc, name=name: texts.found(args, name), 2, 2,
        )
        for name in ("startswith", "endswith", "contains")
    },
    **{
        name: Function(
            _TIMES, f"`{name}(a)`", "of DATE and TIMESTAMP",
            lambda args, utc, name=name: times.part_of(args[0], name, utc), 1, 1,
        )
        for name in ("year", "month", "day")
    },
    **{
        name: Function(
            _TIMES, f"`{name}(a)`", "of TIMESTAMP", lambda args, utc, name=name: times.part_of(args[0], name, utc), 1, 1
        )
        for name in ("hour", "minute", "second")
    },
    "to_date": Function(_TIMES, "`to_date(a)`", "of TIMESTAMP", _to_date, 1, 1),
    **{
        name: Function(
            _TIMES, f"`{name}(a)`", "of TIMESTAMP", lambda args, utc, name=name: times.unix_time(args[0], name), 1, 1
        )
        for name in ("unix_seconds", "unix_millis", "unix_micros")
    },
    "timestamp_micros": Function(
        _TIMES, "`timestamp_micros(a)`", "of integers; of milliseconds: `timestamp_micros(try_multiply(a, 1000))`",
        lambda args, utc: times.timestamp_of_micros(args[0]), 1, 1,
    ),
}  # fmt: skip
"""Functions and operators by name. A cast, a column, a field and a literal have rules of their own (`bound.py`)."""
ALIASES = {"substr": "substring", "dayofmonth": "day", "char_length": "length", "character_length": "length"}
"""Other names of listed functions."""

"""Functions and operators that SQL expressions and conditions may have, with a description for the documentation.

Each function and operator gives the same result as in Spark SQL for all values, and never fails. So a batch gives the
same rows whether tasks or Spark evaluate the SQL, with any value of `spark.sql.ansi.enabled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql import operators, sql_times, text_functions
from tiered_stream.formats.sql.sql_reader import BOOLEAN, SqlTypeError, sql_name
from tiered_stream.formats.sql.sql_values import Bound, call, is_floating

Bind = Callable[[str, Sequence[Bound], bool], Bound]


@dataclass(frozen=True, slots=True)
class Function:
    """Declaration of a supported SQL function or operator.

    For the documentation, `forms` shows how to write the function, `group` is the heading, and `meaning` describes the
    result. `bind` takes the name, the arguments as expressions (`Bound`), and whether the session's time zone is UTC.
    `bind` returns the expression of the call, or raises SqlTypeError if the types of the arguments are not supported. A
    call has at least `least` and at most `most` arguments (None: any number).
    """

    group: str
    forms: str
    meaning: str
    bind: Bind
    least: int
    most: int | None


def _plain(function: Callable[..., Bound]) -> Bind:
    return lambda name, args, utc: function(*args)


def _named(function: Callable[..., Bound]) -> Bind:
    return lambda name, args, utc: function(*args, name)


def _zoned(function: Callable[..., Bound]) -> Bind:
    return lambda name, args, utc: function(*args, utc)


def _named_zoned(function: Callable[..., Bound]) -> Bind:
    return lambda name, args, utc: function(*args, name, utc)


def _between(value: Bound, low: Bound, high: Bound, utc: bool) -> Bound:
    sides = ((low, ">="), (high, "<="))
    return operators.all_of(*(operators.compared(value, side, op, utc, "BETWEEN") for side, op in sides))


def _is_nan(arg: Bound) -> Bound:
    if not is_floating(arg.kind):
        raise SqlTypeError(f"isnan needs DOUBLE or FLOAT, but has {sql_name(arg.kind)}")
    return call(BOOLEAN, lambda values: pc.coalesce(pc.is_nan(values), pa.scalar(False)), arg)


_NO_INTEGERS = "for DOUBLE, FLOAT without integers, and DECIMAL whose result has at most 38 digits"
_TOO_LARGE = "also of integers; NULL if it is too large"
_SIGNED = "for DOUBLE, FLOAT and DECIMAL"
_OF_TIMESTAMP = "argument: TIMESTAMP"
_OF_CASE = "neither within the other; letters of Unicode 17, as in Spark 4.2"
_MILLIS = "for milliseconds: `timestamp_micros(try_multiply(a, 1000))`"
_CASES = "`CASE WHEN a THEN b ELSE c END`, `CASE a WHEN b THEN c END`"
_ANY = _plain(operators.first_valid)
_LISTED: Mapping[str, Sequence[tuple[str, str, str, Bind, int, int | None]]] = {
    "Conditions": (
        ("= <> < <= > >=", "`a {} b`", "", _named_zoned(operators.compared), 2, 2),
        ("<=>", "`a <=> b`, `a IS [NOT] DISTINCT FROM b`", "", _named_zoned(operators.compared), 2, 2),
        ("and", "`a AND b`", "", _plain(operators.all_of), 2, None),
        ("or", "`a OR b`", "", _plain(operators.any_of), 2, None),
        ("not", "`NOT a`", "", _plain(operators.negated), 1, 1),
        ("in", "`a IN (b, c)`", "with a TIMESTAMP: literals as `TIMESTAMP '…'`", operators.is_in, 2, None),
        ("between", "`a BETWEEN b AND c`", "", _zoned(_between), 3, 3),
        ("like", "`a LIKE 'b%_'`", "the pattern is a literal without a backslash", _plain(text_functions.like), 2, 2),
        ("isnull", "`a IS NULL`, `isnull(a)`", "", _plain(partial(call, BOOLEAN, pc.is_null)), 1, 1),
        ("isnotnull", "`a IS NOT NULL`, `isnotnull(a)`", "", _plain(partial(call, BOOLEAN, pc.is_valid)), 1, 1),
        ("istrue", "`a IS [NOT] TRUE`", "", _plain(operators.is_true), 1, 1),
        ("isfalse", "`a IS [NOT] FALSE`", "", _plain(operators.is_false), 1, 1),
        ("case", _CASES, "", _plain(operators.case), 2, None),
        ("if", "`if(a, b, c)`", "", _plain(operators.case), 3, 3),
        ("coalesce", "`coalesce(a, b)`", "", _ANY, 1, None),
        ("nvl ifnull", "`{}(a, b)`", "", _ANY, 2, 2),
        ("nullif", "`nullif(a, b)`", "", _zoned(operators.null_if), 2, 2),
    ),
    "Numbers": (
        ("+ - *", "`a {} b`", _NO_INTEGERS, _named(operators.arithmetic), 2, 2),
        ("/", "`a / 100`", "a DOUBLE; the divisor is a literal, and neither side is DECIMAL",
         _named(operators.quotient), 2, 2),
        ("%", "`a % 10`", "for an integer and a literal above 0", _plain(operators.remainder), 2, 2),
        ("negative", "`-a`", _SIGNED, _named(operators.of_sign), 1, 1),
        ("abs", "`abs(a)`", _SIGNED, _named(operators.of_sign), 1, 1),
        ("try_add", "`try_add(a, b)`", f"`a + b`, {_TOO_LARGE}; of integers not within itself",
         _named(operators.tried), 2, 2),
        ("try_subtract", "`try_subtract(a, b)`", f"`a - b`, {_TOO_LARGE}", _named(operators.tried), 2, 2),
        ("try_multiply", "`try_multiply(a, b)`", f"`a * b`, {_TOO_LARGE}; of integers not within itself",
         _named(operators.tried), 2, 2),
        ("try_divide", "`try_divide(a, b)`", "a DOUBLE; NULL if `b` is zero", _named(operators.quotient), 2, 2),
        ("isnan", "`isnan(a)`", "", _plain(_is_nan), 1, 1),
    ),
    "Texts": (
        ("lower upper", "`{}(a)`", _OF_CASE, _named(text_functions.changed_case), 1, 1),
        ("trim ltrim rtrim", "`{}(a)`", "removes blanks", _named(text_functions.trimmed), 1, 1),
        ("length", "`length(a)`, `char_length(a)`", "also of BINARY", _plain(text_functions.length), 1, 1),
        ("substring", "`substring(a, 2, 3)`, `substr(a, 2, 3)`", "position and length are literals, and no BIGINT",
         _plain(text_functions.part), 2, 3),
        ("concat", "`concat(a, b)`, `a || b`", "", _plain(text_functions.concatenated), 1, None),
        ("replace", "`replace(a, 'b', 'c')`", "the last two are literals", _plain(text_functions.replaced), 2, 3),
        ("startswith endswith contains", "`{}(a, 'b')`", "the second text is a literal",
         _named(text_functions.found), 2, 2),
    ),
    "Dates and times": (
        ("year month day", "`{}(a)`", "argument: DATE or TIMESTAMP", _named_zoned(sql_times.part_of), 1, 1),
        ("hour minute second", "`{}(a)`", _OF_TIMESTAMP, _named_zoned(sql_times.part_of), 1, 1),
        ("to_date", "`to_date(a)`", _OF_TIMESTAMP, _zoned(sql_times.date_of), 1, 1),
        ("unix_seconds unix_millis unix_micros", "`{}(a)`", _OF_TIMESTAMP, _named(sql_times.unix_time), 1, 1),
        ("timestamp_micros", "`timestamp_micros(a)`", f"argument: an integer, not a computed constant; {_MILLIS}",
         _plain(sql_times.timestamp_of_micros), 1, 1),
    ),
}  # fmt: skip
"""Supported functions and operators, by group in the documentation.

An entry is (names separated by blanks, forms in which `{}` stands for the name, meaning, `bind`, `least`, `most`).
"""
FUNCTIONS: Mapping[str, Function] = {
    name: Function(group, forms.replace("{}", name), meaning, bind, least, most)
    for group, listed in _LISTED.items()
    for names, forms, meaning, bind, least, most in listed
    for name in names.split()
}
"""Supported functions and operators by name. `bound.py` handles casts, columns, fields and literals."""
ALIASES = {"substr": "substring", "dayofmonth": "day", "char_length": "length", "character_length": "length"}
"""Further names of functions, each with the function's name in `FUNCTIONS`."""

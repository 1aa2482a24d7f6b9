"""SQL's functions of dates and times. Parts of a TIMESTAMP, such as its hour, are supported for sessions in UTC only.

Arrow's own functions limit years to 16 bits, so year, month and day are computed from the number of days.

Public functions return expressions (`Bound`), and raise SqlTypeError if the SQL function does not support the argument.
`zone_is_utc` states whether the session's time zone is UTC.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql.sql_reader import BIGINT, DATE, INT, TIMESTAMP, TIMESTAMP_NTZ, SqlTypeError, sql_name
from tiered_stream.formats.sql.sql_values import Bound, Values, call, is_integer, literal, of_arrays, widened

_Numbers = np.ndarray[Any, Any]
DAY_MICROS = 86_400_000_000
UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00", "UCT", "Zulu", "Etc/Zulu"})
"""Values of `spark.sql.session.timeZone` that stand for UTC."""


_DATE_TEXT = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIMESTAMP_TEXT = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[ T]((?:[01]\d|2[0-3]):\d{2}:\d{2})(\.\d{1,6})?)?"
    r"(Z|[+-](?:(?:0\d|1[0-7]):[0-5]\d|18:00))?",
    re.ASCII,
)
"""Text of a TIMESTAMP. As in Java, its offset from UTC is at most 18 hours, and its hour at most 23."""


def _of_numbers(function: Callable[[_Numbers], _Numbers], kind: pa.DataType) -> Callable[[Values], Values]:
    """Return a function from Arrow values to Arrow values of the type `kind`, which applies `function` to numbers.

    The numbers are the days of a DATE, the microseconds of a TIMESTAMP, or the integers, with 64 bits. Nulls stay null.
    """

    def values(array: pa.Array) -> pa.Array:
        width = pa.int32() if array.type == DATE else BIGINT
        numbers = array.view(width).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        return pa.array(function(numbers), BIGINT, mask=mask).cast(kind, safe=False)

    return of_arrays(values)


def _months(days: _Numbers) -> _Numbers:
    return days.astype("datetime64[D]").astype("datetime64[M]")


_PARTS_OF_DATE: dict[str, Callable[[_Numbers], _Numbers]] = {
    "year": lambda days: _months(days).astype("datetime64[Y]").astype(np.int64) + 1970,
    "month": lambda days: _months(days).astype(np.int64) % 12 + 1,
    "day": lambda days: days - _months(days).astype("datetime64[D]").astype(np.int64) + 1,
}
_PARTS_OF_DAY = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


def _in_utc(arg: Bound, what: str, zone_is_utc: bool) -> None:
    if arg.kind == TIMESTAMP and not zone_is_utc:
        raise SqlTypeError(
            f"{what} of a TIMESTAMP depends on the session's time zone: set spark.sql.session.timeZone=UTC"
        )


def part_of(arg: Bound, what: str, zone_is_utc: bool) -> Bound:
    """Return the expression `what(arg)`, where `what` is `year`, `month`, `day`, `hour`, `minute` or `second`.

    `arg` is a TIMESTAMP or, for `year`, `month` and `day`, a DATE. Any other type raises SqlTypeError, and so does a
    TIMESTAMP unless `zone_is_utc` is True.
    """
    _in_utc(arg, what, zone_is_utc)
    if what in _PARTS_OF_DATE:
        days = arg if arg.kind == DATE else date_of(arg, zone_is_utc)
        return call(INT, _of_numbers(_PARTS_OF_DATE[what], INT), days)
    if arg.kind not in (TIMESTAMP, TIMESTAMP_NTZ):
        raise SqlTypeError(f"{what} needs TIMESTAMP, but has {sql_name(arg.kind)}")
    size, count = _PARTS_OF_DAY[what]
    return call(INT, _of_numbers(lambda micros: micros // size % count, INT), arg)


def date_of(arg: Bound, zone_is_utc: bool) -> Bound:
    """Return the expression `to_date(arg)`, the DATE of a TIMESTAMP.

    Raises SqlTypeError if `arg` has another type, or is a TIMESTAMP and `zone_is_utc` is False.
    """
    if arg.kind not in (TIMESTAMP, TIMESTAMP_NTZ):
        raise SqlTypeError(f"a DATE is made of TIMESTAMP, not of {sql_name(arg.kind)}")
    _in_utc(arg, "the DATE", zone_is_utc)
    days = _of_numbers(lambda micros: micros // DAY_MICROS, INT)
    return call(DATE, lambda values: days(values).cast(DATE), arg)


def unix_time(arg: Bound, what: str) -> Bound:
    """Return the expression `what(arg)`, where `what` is `unix_seconds`, `unix_millis` or `unix_micros`.

    Raises SqlTypeError if `arg` is not a TIMESTAMP.
    """
    if arg.kind != TIMESTAMP:
        raise SqlTypeError(f"{what} needs TIMESTAMP, but has {sql_name(arg.kind)}")
    size = {"unix_seconds": 1_000_000, "unix_millis": 1_000, "unix_micros": 1}[what]
    return call(BIGINT, _of_numbers(lambda micros: micros // size, BIGINT), arg)


def timestamp_of_micros(arg: Bound) -> Bound:
    """Return the expression `timestamp_micros(arg)`, the TIMESTAMP that is `arg` microseconds after 1970 began."""
    if not is_integer(arg.kind):
        raise SqlTypeError(f"timestamp_micros needs an integer, but has {sql_name(arg.kind)}")
    return call(TIMESTAMP, lambda values: pc.cast(values, TIMESTAMP), widened(arg, BIGINT))


def time_literal(text: str, kind: pa.DataType, zone_is_utc: bool) -> Bound:
    """Parse the text of a DATE or TIMESTAMP literal, and return the literal of this type `kind`.

    If `zone_is_utc` is True, the session's time zone is UTC, and a time without a zone is in UTC.

    Raises:
        SqlTypeError: the text has another form, or is not a valid date or time. Or it is a time without a zone, and the
            session's time zone is not UTC.
    """
    match = _TIMESTAMP_TEXT.fullmatch(text) if kind == TIMESTAMP else None
    if match is not None and match[4] is None and not zone_is_utc:
        raise SqlTypeError(f"the time '{text}' depends on the session's time zone: write its offset, such as +00:00")
    try:
        if kind == DATE and _DATE_TEXT.fullmatch(text):
            return literal(datetime.date.fromisoformat(text), DATE)
        if match is not None:
            fraction = (match[3] or ".0").ljust(7, "0")
            moment = datetime.datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00:00'}{fraction}{match[4] or 'Z'}")
            return literal(moment, TIMESTAMP)
    except ValueError:
        pass
    forms = "yyyy-MM-dd" if kind == DATE else "yyyy-MM-dd HH:mm:ss+00:00"
    raise SqlTypeError(f"'{text:.100}' is no literal of the form {forms}")

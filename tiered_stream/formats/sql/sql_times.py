"""SQL's functions of dates and times. The parts of a TIMESTAMP are listed for sessions in UTC alone.

Arrow's own functions have years of 16 bits, so the parts are computed from the number of days.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.sql.sql_values import (
    BIGINT,
    DATE,
    INT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Bound,
    SqlTypeError,
    Values,
    as_array,
    call,
    is_integer,
    sql_name,
    widened,
)

_Numbers = np.ndarray[Any, Any]
DAY_MICROS = 86_400_000_000
UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00", "UCT", "Zulu", "Etc/Zulu"})
"""Values of `spark.sql.session.timeZone` that stand for UTC."""


def _of_numbers(function: Callable[[_Numbers], _Numbers], kind: pa.DataType) -> Callable[[Values], Values]:
    """Return a function of Arrow values that applies `function` to their numbers (64 bits); nulls stay null."""

    def values(arg: Values) -> Values:
        array = as_array(arg, 1)
        width = pa.int32() if array.type == DATE else BIGINT
        numbers = array.view(width).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        result = pa.array(function(numbers), BIGINT, mask=mask).cast(kind, safe=False)
        return result[0] if isinstance(arg, pa.Scalar) else result

    return values


def _civil(days: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return year, month and day of days since 1970, in the Gregorian calendar (Hinnant: `civil_from_days`)."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * month_from_march + 2) // 5 + 1
    month = np.where(month_from_march < 10, month_from_march + 3, month_from_march - 9)
    return year_of_era + era * 400 + (month <= 2), month, day


_PARTS_OF_DATE: dict[str, Callable[[_Numbers], _Numbers]] = {
    "year": lambda days: _civil(days)[0],
    "month": lambda days: _civil(days)[1],
    "day": lambda days: _civil(days)[2],
}
_PARTS_OF_DAY = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


def _in_utc(arg: Bound, what: str, zone_is_utc: bool) -> None:
    if arg.kind == TIMESTAMP and not zone_is_utc:
        raise SqlTypeError(
            f"{what} of a TIMESTAMP depends on the session's time zone: set spark.sql.session.timeZone=UTC"
        )


def part_of(arg: Bound, what: str, zone_is_utc: bool) -> Bound:
    """Return the `year`, `month`, `day`, `hour`, `minute` or `second` of a time; the first three of a DATE, too."""
    _in_utc(arg, what, zone_is_utc)
    if what in _PARTS_OF_DATE:
        days = arg if arg.kind == DATE else date_of(arg, zone_is_utc)
        return call(INT, _of_numbers(_PARTS_OF_DATE[what], INT), days)
    if arg.kind not in (TIMESTAMP, TIMESTAMP_NTZ):
        raise SqlTypeError(f"{what} needs TIMESTAMP, but has {sql_name(arg.kind)}")
    size, count = _PARTS_OF_DAY[what]
    return call(INT, _of_numbers(lambda micros: micros // size % count, INT), arg)


def date_of(arg: Bound, zone_is_utc: bool) -> Bound:
    """Return the date of a time."""
    if arg.kind not in (TIMESTAMP, TIMESTAMP_NTZ):
        raise SqlTypeError(f"a DATE is made of TIMESTAMP, not of {sql_name(arg.kind)}")
    _in_utc(arg, "the DATE", zone_is_utc)
    days = _of_numbers(lambda micros: micros // DAY_MICROS, INT)
    return call(DATE, lambda values: days(values).cast(DATE), arg)


def unix_time(arg: Bound, what: str) -> Bound:
    """Return a TIMESTAMP as seconds, milliseconds or microseconds since 1970."""
    if arg.kind != TIMESTAMP:
        raise SqlTypeError(f"{what} needs TIMESTAMP, but has {sql_name(arg.kind)}")
    size = {"unix_seconds": 1_000_000, "unix_millis": 1_000, "unix_micros": 1}[what]
    return call(BIGINT, _of_numbers(lambda micros: micros // size, BIGINT), arg)


def timestamp_of_micros(arg: Bound) -> Bound:
    """Return the TIMESTAMP of a number of microseconds since 1970."""
    if not is_integer(arg.kind):
        raise SqlTypeError(f"timestamp_micros needs an integer, but has {sql_name(arg.kind)}")
    return call(TIMESTAMP, lambda values: pc.cast(values, TIMESTAMP), widened(arg, BIGINT))

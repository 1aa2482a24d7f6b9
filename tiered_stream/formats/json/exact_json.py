"""Decoder of single JSON values in Python, by the rules of Spark's `JacksonParser`.

It decodes the documents that the compiled decoder (`json_kernels.py`) does not decode.

Dates, timestamps and decimals in texts are read by Spark's default formats (`DateTimeUtils.stringToDate`,
`stringToTimestamp`, `ExprUtils.getDecimalParser`). Functions that read them return None if Spark would not read a text.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import math
import re
import zoneinfo
from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import CorruptDataError
from tiered_stream.formats.json.json_text import Fields, Integer, Real, parse_json, write_json
from tiered_stream.formats.sql.sql_values import BLANKS, fitted

_DATE_PART = r"(?P<year>[+-]?\d{4,%d})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})%s)?)?"
_TIME = (
    r"(?:[ T](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})"
    r"(?:\.(?P<fraction>\d*))?(?P<zone>\s*[A-Za-z+-].*)?)?)?)?"
)
_DATE = re.compile(_DATE_PART % (7, "(?:[ T].*)?"), re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(_DATE_PART % (6, _TIME), re.ASCII)
# The forms of Java's `ZoneOffset.of`; Spark also takes an hour, and a minute at the end, of one digit.
_OFFSET = re.compile(
    r"([+-])(?=\d\d?(?::\d\d?)?$|\d\d?:\d\d:\d\d$|\d{4}(?:\d\d)?$)(\d\d?)(?::?(\d\d?)(?::?(\d\d))?)?", re.ASCII
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_DAYS = re.compile(r"[+-]?\d{1,10}", re.ASCII)
_YEAR_1, _YEAR_9600, _YEARS_400 = -62_135_596_800, 240_779_520_000, 146_097 * 86_400
"""Seconds from 1970 to the start of the years 1 and 9600, and the number of seconds in 400 years."""
_FIRST_GREGORIAN_DAY = -141427  # earlier numbers of days are in the Julian calendar


def days_of_text(text: str) -> int | None:
    """Return the days since 1970 of the date in `text`, or None if the text is not a date.

    The text may also be a number of days since 1970.
    """
    match = _DATE.fullmatch(text.strip(BLANKS))
    if match is not None:
        return _days(match)
    if _DAYS.fullmatch(text) and _FIRST_GREGORIAN_DAY <= int(text) < 1 << 31:
        return int(text)
    return None


def microseconds_of_text(text: str, zone: str | None) -> int | None:
    """Return the microseconds since 1970 of the timestamp in `text`, or None if the text is not a timestamp.

    A text without a time zone is a time in `zone`. If `zone` is None, the text must not name a time zone.
    """
    match = _TIMESTAMP.fullmatch(text.strip(BLANKS))
    days = None if match is None else _days(match)
    if match is None or days is None or (match["zone"] and zone is None):
        return None
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        return None
    seconds = days * 86400 + hour * 3600 + minute * 60 + second
    east = 0 if zone is None else seconds_east((match["zone"] or zone).strip(), seconds)
    fraction = int((match["fraction"] or "")[:6].ljust(6, "0"))
    micros = None if east is None else (seconds - east) * 1_000_000 + fraction
    return micros if micros is not None and -(1 << 63) <= micros < 1 << 63 else None


def _days(match: re.Match[str]) -> int | None:
    year, month, day = int(match["year"]), int(match["month"] or 1), int(match["day"] or 1)
    try:  # numpy has more years than Python's dates
        days = int(np.datetime64(f"{year:05}-{month:02}-{day:02}", "D").astype(np.int64))
    except ValueError:
        return None
    return days if -(1 << 31) <= days < 1 << 31 else None


def seconds_east(zone: str, local: int) -> int | None:
    """Return the offset of a time zone from UTC in seconds, positive to the east, or None if the zone is unknown.

    `zone` is a name, such as `Europe/Berlin`, or an offset, such as `+02:00`. `local` is the local time at which the
    offset is wanted, in seconds since 1970.
    """
    if zone in ("Z", "UTC", "GMT", "UT"):
        return 0
    offset = _OFFSET.fullmatch(re.sub(r"^(UTC|GMT|UT)(?=[+-])", "", zone))
    if offset is not None:
        hours, minutes, seconds = (int(offset[part] or 0) for part in (2, 3, 4))
        east = hours * 3600 + minutes * 60 + seconds
        if minutes > 59 or seconds > 59 or east > 18 * 3600:
            return None
        return -east if offset[1] == "-" else east
    if zone not in _zones():
        return None
    # Python's times have the years 1 to 9999. Rules of summer time are the same again after 400 years.
    local = max(local, _YEAR_1)
    local -= max(0, (local - _YEAR_9600) // _YEARS_400) * _YEARS_400
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=local)
    east_of = at.replace(tzinfo=zoneinfo.ZoneInfo(zone)).utcoffset()
    return None if east_of is None else int(east_of.total_seconds())


@cache
def _zones() -> frozenset[str]:
    """Return the names of time zones that can be given to zoneinfo, which searches files and modules for other names.

    Factory, ROC and localtime are left out. Java does not know them, and `localtime` depends on the machine.
    """
    return frozenset(zoneinfo.available_timezones() - {"Factory", "ROC", "localtime"})


# Jackson: Base64Variants.MIME_NO_LINEFEEDS. Blanks and control characters may stand between units of four characters.
_UNIT = r"[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==)"
_BASE64 = re.compile(rf"(?:[\0- ]*{_UNIT})*[\0- ]*")
_BLANK_RUNS = re.compile(r"[\0- ]+")
_AFTER_PADDING = re.compile(r"(?<==)(?!=)")
_NAMED_NUMBERS = {
    "+INF": math.inf, "+Infinity": math.inf, "Infinity": math.inf, "-INF": -math.inf, "-Infinity": -math.inf,
    "NaN": math.nan,
}  # fmt: skip
_Convert = Callable[[Any], Any]


class ExactJson:
    """Converter of JSON documents to rows of the struct type `kind`. Timestamps without a time zone are in `zone`."""

    def __init__(self, kind: pa.StructType, zone: str) -> None:
        self._zone = zone
        self._convert = self._converter(kind)

    def row(self, data: bytes) -> dict[str, Any]:
        """Return the document `data` as a dict that pyarrow converts to a struct.

        Raises:
            CorruptDataError: `data` is not a JSON object, or a field does not fit its type.
        """
        document = parse_json(data)
        if type(document) is not Fields:
            raise CorruptDataError(f"the value is {_describe(document)}, not an object")
        row: dict[str, Any] = self._convert(document)
        return row

    def _converter(self, kind: pa.DataType) -> _Convert:
        """Return a function that converts a parsed value to `kind`, or raises CorruptDataError if it does not fit."""
        json_types, convert = self._rule(kind)

        def converter(value: Any) -> Any:
            converted = convert(value) if type(value) in json_types else None
            if converted is None and value is not None:
                raise CorruptDataError(f"{_describe(value)} is no {kind}")
            return converted

        return converter

    def _rule(self, kind: pa.DataType) -> tuple[Collection[type], _Convert]:
        """Return the Python types of parsed values that may fit `kind`, and a function that converts such values.

        The function returns None for a value that does not fit `kind`, or raises CorruptDataError.
        """
        if types.is_struct(kind):
            fields = {field.name: self._converter(field.type) for field in kind}
            return (Fields,), lambda members: {
                name: _convert_at(f".{name}", fields[name], member) for name, member in members if name in fields
            }
        if types.is_map(kind):
            item = self._converter(kind.item_type)
            return (Fields,), lambda members: [
                (_string(key), _convert_at(f".{key}", item, member)) for key, member in members
            ]
        if types.is_list(kind):
            item = self._converter(kind.value_type)
            return (list,), lambda elements: [
                _convert_at(f"[{at}]", item, element) for at, element in enumerate(elements)
            ]
        if types.is_signed_integer(kind):
            half = 1 << kind.bit_width - 1
            return (Integer,), lambda number: _in_range(int(number), half)
        if types.is_decimal(kind):
            return (str, Integer, Real), lambda text: _decimal(text, kind.precision, kind.scale)
        if types.is_timestamp(kind):
            return (str, Integer) if kind.tz else (str,), partial(_timestamp, self._zone if kind.tz else None)
        rules: dict[pa.DataType, tuple[Collection[type], _Convert]] = {
            pa.bool_(): ((bool,), bool),
            pa.float32(): ((str, Integer, Real), partial(_real, kind)),
            pa.float64(): ((str, Integer, Real), partial(_real, kind)),
            pa.string(): ((str, Integer, Real, bool, Fields, list), _string),
            pa.binary(): ((str,), _base64),
            pa.date32(): ((str,), days_of_text),
            pa.null(): ((), _string),
        }
        return rules[kind]


def _timestamp(zone: str | None, value: str) -> int | None:
    return _in_range(int(value) * 1_000_000, 1 << 63) if type(value) is Integer else microseconds_of_text(value, zone)


def _convert_at(step: str, convert: _Convert, value: Any) -> Any:
    try:
        return convert(value)
    except CorruptDataError as error:
        text = str(error)
        # The text begins with the path of the field: `.a[3].b: ...`
        raise CorruptDataError(f"{_shorten(step)}{'' if text[:1] in '.[' else ': '}{text}") from error


def _shorten(text: str) -> str:
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 40 else f"{text[:39]}…"


def _describe(value: Any) -> str:
    """Return a short text that describes a value from `parse_json`, for an error's text."""
    match value:
        case None:
            return "null"
        case Integer() | Real():
            return f"the number {_shorten(value)}"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {_shorten(repr(value))}"
    return "an object" if type(value) is Fields else "an array"


def _in_range(number: int, half: int) -> int | None:
    return number if -half <= number < half else None


def _real(kind: pa.DataType, value: str) -> float | None:
    if type(value) is str:
        return _NAMED_NUMBERS.get(value)
    number = float(value)
    if kind == pa.float32() and math.isfinite(number):
        # Converted directly, because the way through a double would round twice.
        number = pa.scalar(str(value)).cast(kind).as_py()
    # Jackson reads the integer -0 as zero without a sign.
    return number + 0.0 if type(value) is Integer else number


def _decimal(text: str, precision: int, scale: int) -> decimal.Decimal | None:
    plain = text.replace(",", "")
    return fitted(decimal.Decimal(plain), precision, scale) if _NUMBER.fullmatch(plain) else None


def _string(value: Any) -> str:
    text: str = value if type(value) is str else write_json(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorruptDataError("half a surrogate pair") from error
    return text


def _base64(text: str) -> bytes | None:
    if not _BASE64.fullmatch(text):
        return None
    return b"".join(map(base64.b64decode, _AFTER_PADDING.split(_BLANK_RUNS.sub("", text))))

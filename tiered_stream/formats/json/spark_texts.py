"""Parsers of dates, timestamps and decimals in strings, by Spark's default formats.

Spark: `DateTimeUtils.stringToDate`, `stringToTimestamp`, `ExprUtils.getDecimalParser`. Each function returns None for a
text that Spark does not read either.
"""

from __future__ import annotations

import datetime
import decimal
import re
import zoneinfo

_DATE_PART = r"(?P<year>[+-]?\d{4,%d})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})%s)?)?"
_TIME = (
    r"(?:[ T](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})"
    r"(?:\.(?P<fraction>\d*))?(?P<zone>\s*[A-Za-z+-].*)?)?)?)?"
)
_DATE = re.compile(_DATE_PART % (7, "(?:[ T].*)?"), re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(_DATE_PART % (6, _TIME), re.ASCII)
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d{1,2})(?::?(\d{2}))?)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_DAYS = re.compile(r"[+-]?\d{1,10}", re.ASCII)
_BLANKS = "".join(map(chr, (*range(33), 127)))
_FIRST_GREGORIAN_DAY = -141427  # earlier numbers of days are in the Julian calendar


def days_of_text(text: str) -> int | None:
    """Return the days since 1970 of the date in a text. The text may also be this number of days itself."""
    match = _DATE.fullmatch(text.strip(_BLANKS))
    if match is not None:
        return _days(match)
    if _DAYS.fullmatch(text) and _FIRST_GREGORIAN_DAY <= int(text) < 1 << 31:
        return int(text)
    return None


def microseconds_of_text(text: str, zone: str | None) -> int | None:
    """Return the microseconds since 1970 of the timestamp in a text.

    A text without a time zone is in `zone`. If `zone` is None, the text must not name a time zone.
    """
    match = _TIMESTAMP.fullmatch(text.strip(_BLANKS))
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
    # Any 400 years are as long as any other 400. The year is shifted, because Python's dates begin with the year 1.
    cycles, in_cycle = divmod(year, 400)
    try:
        start = datetime.date(in_cycle + 400, month, day)
    except ValueError:
        return None
    days = start.toordinal() - 719163 + (cycles - 1) * 146097
    return days if -(1 << 31) <= days < 1 << 31 else None


def seconds_east(zone: str, local: int) -> int | None:
    """Return the seconds east of UTC of a zone's name or offset, at a local time in seconds since 1970.

    Returns None for an unknown zone.
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
    try:
        at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=local)
        east_of = at.replace(tzinfo=zoneinfo.ZoneInfo(zone)).utcoffset()
    except (ValueError, OverflowError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return None
    return None if east_of is None else int(east_of.total_seconds())


def decimal_of_text(text: str) -> decimal.Decimal | None:
    """Return the number in a text. Commas, which separate thousands, are ignored."""
    plain = text.replace(",", "")
    return decimal.Decimal(plain) if _NUMBER.fullmatch(plain) else None


def fitted(number: decimal.Decimal, precision: int, scale: int) -> decimal.Decimal | None:
    """Return `number` rounded half up to `scale` decimal places, or None if it has more digits than `precision`."""
    context = decimal.Context(
        prec=precision, rounding=decimal.ROUND_HALF_UP, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX
    )
    try:
        return number.quantize(decimal.Decimal((0, (1,), -scale)), context=context)
    except decimal.InvalidOperation:
        return None

"""Parsers of times that a user writes in ISO 8601 with a time zone, or as a duration back from now, such as `-3h`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from tiered_stream.options.positions import EPOCH

FORMS = "write 2026-11-01T00:00:00Z, 1793491200000 (milliseconds since the epoch), or back from now: -90m, -3h, -2d"

_MILLISECOND = timedelta(milliseconds=1)
_AGO = re.compile(r"-([0-9]{1,12})(s|m|h|d|w)", re.ASCII)
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


def ago_ms(text: str) -> int | None:
    """Parse a duration back from now, such as `-90m`, into milliseconds; None: the text does not have that form."""
    ago = _AGO.fullmatch(text)
    return int(ago[1]) * _UNIT_MS[ago[2]] if ago else None


def iso_ms(text: str) -> int:
    """Parse a time with a time zone (ISO 8601) into milliseconds since the epoch.

    A fraction of a millisecond is rounded up. The rounded time selects the same records, because records' timestamps
    are whole milliseconds.

    Raises:
        ValueError: the text is not a time, has no time zone, or is before 1970.
    """
    try:
        moment = datetime.fromisoformat(text)
        since = None if moment.tzinfo is None else moment - EPOCH
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is no time: {FORMS}") from error
    if since is None:
        at = moment.isoformat()
        raise ValueError(f"has no zone: write {at}Z for UTC, or its offset from UTC: {at}+01:00")
    if since < timedelta():
        raise ValueError("is before 1970, where Kafka's timestamps begin")
    return -(-since // _MILLISECOND)

"""Times as a user writes them: ISO 8601 with a zone, or back from now."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from tiered_stream.options.positions import EPOCH

FORMS = "write 2026-11-01T00:00:00Z, 1793491200000 (milliseconds since the epoch), or back from now: -90m, -3h, -2d"

_MILLISECOND = timedelta(milliseconds=1)
_AGO = re.compile(r"-([0-9]{1,12})(s|m|h|d|w)", re.ASCII)
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


def ago_ms(text: str) -> int | None:
    """How many milliseconds back from now; None: the text is not of that form."""
    ago = _AGO.fullmatch(text)
    return int(ago[1]) * _UNIT_MS[ago[2]] if ago else None


def iso_ms(text: str) -> int:
    """A time with its zone (ISO 8601), in milliseconds since the epoch; parts of one are rounded up.

    Rounded up, because no record's timestamp lies between: what is at or after the time stays so.

    Raises:
        ValueError: it is none, has no zone, or is before 1970.
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

"""Parser of the times of a replay: a user's text becomes milliseconds since the epoch."""

from __future__ import annotations

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.positions import BeforeNow, TimeRange, show_time, time_position

_LEAST_NUMBER = 10**11
"""Smallest number above 0 that is accepted as milliseconds since the epoch: 1973-03-03.

A smaller number is most likely in seconds. As milliseconds, it would be so early that it selects all records.
"""


def parse_range(from_time: str, to_time: str | None, now_ms: int) -> TimeRange:
    """Return the range of times from `from_time` (`--from`) to `to_time` (`--to`, exclusive; None: no end).

    Args:
        now_ms: the current time in milliseconds since the epoch.

    Raises:
        ConfigurationError: a time is malformed or after `now_ms`, or `to_time` is not after `from_time`.
    """
    start = _past("from", from_time, now_ms)
    if to_time is None:
        return TimeRange(start)
    end = _past("to", to_time, now_ms)
    if end <= start:
        raise ConfigurationError(
            f"--to {to_time} ({show_time(end)}) is not after --from {from_time} ({show_time(start)}): swap them, "
            "or give a later end"
        )
    return TimeRange(start, end)


def parse_time(text: str, now_ms: int) -> int:
    """Parse a time, and return milliseconds since the epoch.

    The text is a time in ISO 8601 with a zone, a number of milliseconds since the epoch, or a duration back from
    `now_ms`, such as `-3h`.

    Raises:
        ConfigurationError: the text has none of these forms, is before 1970, or seems to be in seconds.
    """
    text = text.strip()
    try:
        position = time_position(text)
    except ValueError as error:
        raise ConfigurationError(f"the time {text!r} {error}") from error
    time_ms = now_ms - position.ago_ms if isinstance(position, BeforeNow) else position.timestamp
    if not isinstance(position, BeforeNow) and text.lstrip("+").isdecimal() and 0 < time_ms < _LEAST_NUMBER:
        raise ConfigurationError(
            f"{text} is {show_time(time_ms)} in milliseconds since the epoch: for seconds add three zeros "
            f"({text}000); a time before 1974 is written as 1970-01-01T00:00:00Z"
        )
    if time_ms < 0:
        raise ConfigurationError(f"the time {text!r} is before 1970, where Kafka's timestamps begin")
    return time_ms


def show_range(times: TimeRange) -> str:
    """Return a range of times as text in UTC, such as `2026-11-01T00:00:00Z to the end` for a range without an end."""
    return f"{show_time(times.from_ms)} to {'the end' if times.to_ms is None else show_time(times.to_ms)}"


def _past(argument: str, text: str, now_ms: int) -> int:
    time_ms = parse_time(text, now_ms)
    if time_ms > now_ms:
        raise ConfigurationError(
            f"--{argument} {text} ({show_time(time_ms)}) is in the future: it is {show_time(now_ms)} now. "
            "Future records cannot be replayed"
        )
    return time_ms

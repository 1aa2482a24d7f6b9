"""Start and end positions of a query as the user gives them (Spark: `KafkaOffsetRangeLimit`), and parsers of times.

The package `plan` converts positions to offsets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum

from tiered_stream.model import PartitionOffsets, TopicPartition
from tiered_stream.options.offset_json import EARLIEST, LATEST
from tiered_stream.options.types import LONG_MIN, integer, trimmed

EPOCH = datetime.fromtimestamp(0, UTC)
_FORMS = "write 2026-11-01T00:00:00Z, 1793491200000 (milliseconds since the epoch), or back from now: -90m, -3h, -2d"
_MILLISECOND = timedelta(milliseconds=1)
_AGO = re.compile(r"-([0-9]{1,12})(s|m|h|d|w)", re.ASCII)
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


class LogEnd(Enum):
    """Position at the start (`EARLIEST`) or at the end (`LATEST`) of every partition's log.

    A member's value is the number that stands for the position in offset JSON: -2 or -1.
    """

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Position given by offsets, where -2 means earliest and -1 latest.

    `topics` has -2 or -1 for each topic whose partitions all start or end there. `offsets` has the other partitions.
    """

    offsets: PartitionOffsets
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """Position at each partition's first offset at or after the partition's timestamp (ms since the epoch)."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """Position at each partition's first offset at or after one timestamp (ms since the epoch)."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class BeforeNow:
    """Position at each partition's first offset at or after a time, which is `ago_ms` milliseconds before planning."""

    ago_ms: int

    def at(self, now_ms: int) -> AtTimestamp:
        """Return the position for a query that is planned at `now_ms`, in ms since the epoch.

        The position's timestamp is at least 0, which is Kafka's smallest timestamp.
        """
        return AtTimestamp(max(0, now_ms - self.ago_ms))


@dataclass(frozen=True, slots=True)
class AtGroup:
    """Position at the offset that a consumer group has committed for each partition."""

    group: str


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Time range from `from_ms` (inclusive) to `to_ms` (exclusive; None: no end), in ms since the epoch.

    Raises:
        ValueError: the range is empty.
    """

    from_ms: int
    to_ms: int | None = None

    def __post_init__(self) -> None:
        if self.to_ms is not None and self.to_ms <= self.from_ms:
            raise ValueError(f"not a range of times: {self.from_ms} to {self.to_ms}")


Position = LogEnd | AtOffsets | AtTimestamps | AtTimestamp | BeforeNow | AtGroup


def show_time(time_ms: int) -> str:
    """Return a time (ms since the epoch) as text in ISO 8601 and UTC.

    If the year is not from 1 to 9999, the text is `time_ms` as a number.
    """
    try:
        shown = (EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(time_ms)
    return shown.replace("+00:00", "Z").replace(".000Z", "Z")


def names_log_end(position: Position) -> bool:
    """Return whether the position is earliest or latest for any partition, as a word or as a negative number."""
    match position:
        case AtOffsets(offsets, topics):
            return bool(topics) or min(offsets.values(), default=0) < 0
        case AtTimestamps(timestamps):
            return min(timestamps.values(), default=0) < 0
        case AtTimestamp(timestamp):
            return timestamp < 0
    return isinstance(position, LogEnd)


def time_position(value: str) -> AtTimestamp | BeforeNow:
    """Parse a time: milliseconds since the epoch, ISO 8601 with a time zone, or a duration back from now (`-90m`).

    Milliseconds may be negative, because some negative numbers have a special meaning in Kafka, such as -1 for latest.

    Raises:
        ValueError: the text has none of these forms, has no time zone, or is before 1970.
    """
    text = trimmed(value)
    if ago := _AGO.fullmatch(text):
        return BeforeNow(int(ago[1]) * _UNIT_MS[ago[2]])
    with suppress(ValueError):
        return AtTimestamp(integer(LONG_MIN)(text))
    return AtTimestamp(_iso_ms(text))


def _iso_ms(text: str) -> int:
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
        raise ValueError(f"is no time: {_FORMS}") from error
    if since is None:
        at = moment.isoformat()
        raise ValueError(f"has no zone: write {at}Z for UTC, or its offset from UTC: {at}+01:00")
    if since < timedelta():
        raise ValueError("is before 1970, where Kafka's timestamps begin")
    return -(-since // _MILLISECOND)

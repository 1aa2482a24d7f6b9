"""Where a query starts or ends, as the user said it; `plan` resolves it to offsets (Spark: `KafkaOffsetRangeLimit`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum

from tiered_stream.model import PartitionOffsets, TopicPartition
from tiered_stream.options.offset_json import EARLIEST, LATEST

EPOCH = datetime.fromtimestamp(0, UTC)


class LogEnd(Enum):
    """One end of every partition's log; the values are those of the offset JSON."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every assigned partition; -2 stands for earliest, -1 for latest.

    `topics` has one of the two for all partitions of a topic, which are not in `offsets` then.
    """

    offsets: PartitionOffsets
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """A timestamp (ms since the epoch) for every assigned partition: its first offset at or after it."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """One timestamp (ms since the epoch) for all partitions."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class BeforeNow:
    """As `AtTimestamp`, so many milliseconds before the query is planned."""

    ago_ms: int

    def at(self, now_ms: int) -> AtTimestamp:
        """The time that this is when it is `now_ms`; none before 1970, where Kafka's begin."""
        return AtTimestamp(max(0, now_ms - self.ago_ms))


@dataclass(frozen=True, slots=True)
class AtGroup:
    """Where a consumer group stands: its committed offset for every assigned partition."""

    group: str


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `from_ms` (inclusive) to `to_ms` (exclusive; None: no end), in ms since the epoch; ValueError if empty."""

    from_ms: int
    to_ms: int | None = None

    def __post_init__(self) -> None:
        if self.to_ms is not None and self.to_ms <= self.from_ms:
            raise ValueError(f"not a range of times: {self.from_ms} to {self.to_ms}")


Position = LogEnd | AtOffsets | AtTimestamps | AtTimestamp | BeforeNow | AtGroup


def show_time(time_ms: int) -> str:
    """The time in UTC, as ISO 8601."""
    try:
        shown = (EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(time_ms)
    return shown.replace("+00:00", "Z").replace(".000Z", "Z")

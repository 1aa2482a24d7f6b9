"""Where a query starts or ends, as the user said it; `plan` resolves it to offsets (Spark: `KafkaOffsetRangeLimit`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tiered_stream.model import PartitionOffsets, TopicPartition
from tiered_stream.options.offset_json import EARLIEST, LATEST


class LogEnd(Enum):
    """One end of every partition's log; the values are those of the offset JSON."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every assigned partition; -2 stands for earliest, -1 for latest."""

    offsets: PartitionOffsets


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """A timestamp (ms since the epoch) for every assigned partition: its first offset at or after it."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """One timestamp (ms since the epoch) for all partitions."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `from_ms` (inclusive) to `to_ms` (exclusive; None: no end), in ms since the epoch; ValueError if empty."""

    from_ms: int
    to_ms: int | None = None

    def __post_init__(self) -> None:
        if self.to_ms is not None and self.to_ms <= self.from_ms:
            raise ValueError(f"not a range of times: {self.from_ms} to {self.to_ms}")


Position = LogEnd | AtOffsets | AtTimestamps | AtTimestamp

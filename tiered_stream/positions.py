"""Where a query starts or ends, as the user said it; `plan` resolves it to offsets (Spark: `KafkaOffsetRangeLimit`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tiered_stream.offsets import EARLIEST, LATEST, PartitionOffsets, TopicPartition


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


Position = LogEnd | AtOffsets | AtTimestamps | AtTimestamp

"""Who says where the tiered bytes of an offset range are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.model import (
    OffsetRange,
    PartitionLocations,
    PartitionRanges,
    RemoteLogSegment,
    SegmentLocation,
    TopicPartition,
)

SegmentFilter = Callable[[RemoteLogSegment], bool]


def every_segment(_segment: RemoteLogSegment) -> bool:
    """Each is needed."""
    return True


@dataclass(frozen=True, slots=True)
class SegmentShare:
    """About so many `bytes` of these offsets of a segment, from their start on."""

    segment: RemoteLogSegment
    offsets: OffsetRange
    bytes: int


class Locator(ABC):
    """Answers, on the driver, which tiered segments hold an offset range, and where in them.

    Only segments whose copy is finished and that belong to the partition's present lineage count, and nothing below
    the log start offset. A locator keeps what it has learnt between micro-batches; it serves one thread at a time.
    """

    name: str
    """As in the option `remote.log.locator`."""

    @abstractmethod
    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        """The tiered part of each range: locations in offset order, disjoint; what they leave out is not tiered.

        Of segments that are not `needed` a location tells the offsets, and need not tell anything else. Under
        read_committed each names the aborted transactions that touch its offsets. They are those of the topic that
        has the name now: which topic is to be read, the caller knows.

        Raises:
            StorageError, BrokerError, CorruptDataError: the locations cannot be had.
        """

    @abstractmethod
    def segment_ends(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[int, ...]]:
        """The end offsets (exclusive, ascending) of the tiered segments that end inside each range or at its end.

        No storage request is made for it.
        """

    def since(self, location: SegmentLocation, timestamp: int) -> SegmentLocation | None:
        """The location without batches at its start that end before any record at or after `timestamp` (ms).

        As far as that is known; None: it holds no such record. Raises: as `locate`.
        """
        return location

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        """`since` of each, together. Raises: as `locate`."""
        return [self.since(location, timestamp) for location in locations]

    @abstractmethod
    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[VisibleSegment, ...]]:
        """The tiered segments that share an offset with each range, ascending and disjoint; perhaps cut off to it.

        No storage request is made for it.
        """

    @abstractmethod
    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        """By partition, the offset that ends its share: behind at least one batch, and where a batch ends.

        All partitions are asked for together, and nothing but positions. Those are left out of which nobody tells.

        Raises: as `locate`.
        """

    @abstractmethod
    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        """Cut `location` where batches begin, into parts of about `target_bytes` that have exactly its offsets.

        Neighbours may share some bytes, of one interval of the offset index at the most.

        Raises: as `locate`.
        """

    @abstractmethod
    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        """`cut` of each location with its bytes, together. Raises: as `locate`."""

    @abstractmethod
    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        """Each location cut at those of the ascending offsets that lie inside of it; the bytes as of `cut`.

        A location stays whole where nobody tells which of its bytes hold the parts.

        Raises: as `locate`.
        """

    def missing_objects(self, partition: TopicPartition, offsets: OffsetRange) -> Sequence[str]:
        """Names of objects that are missing, and with them segments that begin among the offsets; as far as known."""
        return ()

    def close(self) -> None:  # noqa: B027 - a locator without connections has nothing to close
        """Let go of connections."""


class WrappedLocator(Locator):
    """Another locator's answers; a subclass changes what it has to."""

    def __init__(self, locator: Locator) -> None:
        self.name = locator.name
        self.wrapped = locator

    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        return self.wrapped.locate(ranges, needed)

    def segment_ends(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[int, ...]]:
        return self.wrapped.segment_ends(ranges)

    def since(self, location: SegmentLocation, timestamp: int) -> SegmentLocation | None:
        return self.wrapped.since(location, timestamp)

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        return self.wrapped.since_all(locations, timestamp)

    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[VisibleSegment, ...]]:
        return self.wrapped.segments(ranges)

    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        return self.wrapped.ends_inside(shares)

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        return self.wrapped.cut(location, target_bytes)

    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        return self.wrapped.cut_all(cuts)

    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        return self.wrapped.cut_at(cuts)

    def missing_objects(self, partition: TopicPartition, offsets: OffsetRange) -> Sequence[str]:
        return self.wrapped.missing_objects(partition, offsets)

    def close(self) -> None:
        self.wrapped.close()

"""Interface of locators, which report where the tiered bytes of an offset range are."""

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
    """Return True, because this filter needs every segment."""
    return True


@dataclass(frozen=True, slots=True)
class SegmentShare:
    """Request for the offset after about `bytes` bytes of a segment, counted from the start of `offsets`."""

    segment: RemoteLogSegment
    offsets: OffsetRange
    bytes: int


class Locator(ABC):
    """Locator of the tiered segments that hold an offset range, and of the range's bytes in them; used on the driver.

    A locator ignores segments that are not completely copied or not in the partition's current lineage, and offsets
    below the log start offset. It keeps its state between micro-batches, and is used by one thread at a time.
    """

    name: str
    """Name of the locator in the option `remote.log.locator`."""

    @abstractmethod
    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        """Return disjoint locations of each range in offset order; offsets without a location are not tiered.

        In the location of a segment that is not `needed`, only the offsets must be right. Under read_committed, a
        location has the aborted transactions that touch its offsets. The locations belong to the topic that has the
        name now; the caller compares topic ids.

        Raises:
            StorageError, BrokerError, CorruptDataError: the locations cannot be determined.
        """

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        """Return each location without its first batches if they are known to be older than `timestamp` (ms).

        A location is None if all its batches are. A locator that knows no timestamps returns the locations unchanged.

        Raises: the errors of `locate`.
        """
        return list(locations)

    @abstractmethod
    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[VisibleSegment, ...]]:
        """Return by partition the tiered segments that have offsets of its range, in offset order and disjoint.

        The offsets of a returned segment may be cut off at the range's ends. No storage request is made.

        Raises: the errors of `locate`.
        """

    @abstractmethod
    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        """Return by partition the offset at which its share ends: after at least one batch, and at the end of a batch.

        The byte positions in all segments are requested together, and nothing else is requested. A partition is left
        out if the positions in its segment cannot be found.

        Raises: the errors of `locate`.
        """

    @abstractmethod
    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        """Return for each pair of location and size in bytes the location's parts, which have about that size.

        A location is cut where batches begin, and its parts have exactly its offsets. Adjacent parts may share the
        bytes of one interval of the offset index, but no more.

        Raises: the errors of `locate`.
        """

    @abstractmethod
    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        """Return for each pair of location and ascending offsets inside it the location's parts between the offsets.

        Adjacent parts share bytes as in `cut_all`. A location stays whole if the bytes of its parts cannot be found.

        Raises: the errors of `locate`.
        """

    def missing_objects(self, partition: TopicPartition, offsets: OffsetRange) -> Sequence[str]:
        """Return the names of missing objects, as far as known, of segments whose base offset is in `offsets`."""
        return ()

    def close(self) -> None:  # noqa: B027 - a locator without connections has nothing to close
        """Close connections."""


class WrappedLocator(Locator):
    """Locator that passes all calls to the locator `wrapped`; subclasses override single methods."""

    def __init__(self, locator: Locator) -> None:
        self.name = locator.name
        self.wrapped = locator

    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        return self.wrapped.locate(ranges, needed)

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        return self.wrapped.since_all(locations, timestamp)

    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[VisibleSegment, ...]]:
        return self.wrapped.segments(ranges)

    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        return self.wrapped.ends_inside(shares)

    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        return self.wrapped.cut_all(cuts)

    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        return self.wrapped.cut_at(cuts)

    def missing_objects(self, partition: TopicPartition, offsets: OffsetRange) -> Sequence[str]:
        return self.wrapped.missing_objects(partition, offsets)

    def close(self) -> None:
        self.wrapped.close()

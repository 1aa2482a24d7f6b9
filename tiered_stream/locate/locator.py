"""Interface of locators, which report the segments and byte ranges in the storage that hold an offset range."""

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
    """Request to `Locator.ends_inside` for an offset in a tiered segment.

    The offset is the one after about `bytes` bytes of the segment, counted from the start of `offsets`. It is at most
    the end of `offsets`.
    """

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
        """Return disjoint locations of each range in offset order, for the offsets that storage has.

        If `needed` is false for a segment, its location has the right offsets, but its bytes may be wrong or empty.
        Under read_committed, a location has the aborted transactions that touch its offsets. The locations belong to
        the topic that has the name now, so the caller must compare topic ids.

        Raises:
            StorageError, BrokerError, CorruptDataError: the locations cannot be determined.
        """

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        """Return each location without its first batches, if these are known to be older than `timestamp` (ms).

        An entry is None if all batches of the location are older. A locator without timestamps returns the locations
        unchanged.

        Raises: the errors of `locate`.
        """
        return list(locations)

    @abstractmethod
    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[VisibleSegment, ...]]:
        """Return by partition the tiered segments with offsets in the partition's range, in offset order and disjoint.

        The offsets of a returned segment may be cut off at the range's ends. Byte positions are not determined, so no
        offset index is read.

        Raises: the errors of `locate`.
        """

    @abstractmethod
    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        """Return by partition an offset in a tiered segment: the offset after about as many bytes as are requested.

        `shares` has a request by partition. The bytes are counted from the start of the request's `offsets`. The
        returned offset is the end of a batch, or the end of `offsets`. All requests are looked up together. A partition
        is left out if the byte positions in its segment are not available.

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

        Adjacent parts share bytes as in `cut_all`. If the parts' byte positions are not available, the location stays
        whole, or each part has all bytes of the location.

        Raises: the errors of `locate`.
        """

    def missing_objects(self, partition: TopicPartition, offsets: OffsetRange) -> Sequence[str]:
        """Return the full names of objects missing in the storage, of segments with a base offset in `offsets`.

        Only a locator that lists the storage knows missing objects. Other locators return an empty sequence.
        """
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

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
    """Return True: every segment is needed."""
    return True


@dataclass(frozen=True, slots=True)
class SegmentShare:
    """About `bytes` bytes of a segment, counted from the start of `offsets`."""

    segment: RemoteLogSegment
    offsets: OffsetRange
    bytes: int


class Locator(ABC):
    """Locator of the tiered segments that hold an offset range, and of the range's bytes in them; used on the driver.

    Only segments that are completely copied and belong to the partition's current lineage count, and no offset below
    the log start offset. A locator keeps its state between micro-batches, and is used by one thread at a time.
    """

    name: str
    """Name of the locator in the option `remote.log.locator`."""

    @abstractmethod
    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        """Return disjoint locations of each range in offset order; offsets without a location are not tiered.

        For a segment that is not `needed`, a location must be right in its offsets only. Under read_committed, a
        location names the aborted transactions that touch its offsets. The locations are those of the topic that has
        the name now; the caller knows which topic to read.

        Raises:
            StorageError, BrokerError, CorruptDataError: the locations cannot be determined.
        """

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        """Return each location without first batches known to end before any record at or after `timestamp` (ms).

        A location that holds no such record becomes None. Raises: the errors of `locate`.
        """
        return list(locations)

    @abstractmethod
    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, tuple[VisibleSegment, ...]]:
        """Return the tiered segments that share an offset with each range, ascending and disjoint.

        Their offsets may be cut off to the range. No storage request is made.
        """

    @abstractmethod
    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        """Return the offset at which each partition's share ends: after at least one batch, and at the end of a batch.

        The positions of all partitions are requested together, and nothing else is requested. Partitions whose
        positions cannot be found are left out.

        Raises: the errors of `locate`.
        """

    @abstractmethod
    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        """Cut each location where batches begin, into parts of about so many bytes that have exactly its offsets.

        Adjacent parts may share the bytes of one interval of the offset index, but no more.

        Raises: the errors of `locate`.
        """

    @abstractmethod
    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        """Cut each location at the ascending offsets inside it; parts share bytes as in `cut_all`.

        A location stays whole if the bytes of its parts cannot be found.

        Raises: the errors of `locate`.
        """

    def missing_objects(self, partition: TopicPartition, offsets: OffsetRange) -> Sequence[str]:
        """Return the known names of missing objects of segments that begin among the offsets."""
        return ()

    def close(self) -> None:  # noqa: B027 - a locator without connections has nothing to close
        """Close connections."""


class WrappedLocator(Locator):
    """Locator that passes all calls to another locator; subclasses change single methods."""

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

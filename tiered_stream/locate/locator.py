"""Interface of locators, which report the segments and byte ranges in the storage that hold an offset range."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tiered_stream.locate.storage_failures import StorageCheck
from tiered_stream.locate.visible_segments import VisibleSegments
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
    """Return True for every segment; this is the default of the parameter `needed` of locators."""
    return True


@dataclass(frozen=True, slots=True)
class SegmentShare:
    """Request to `Locator.ends_inside`: find the offset before which about `bytes` bytes of `segment` lie.

    The bytes are counted from the start of `offsets`. The offset to find is exclusive, and at most the end of
    `offsets`.
    """

    segment: RemoteLogSegment
    offsets: OffsetRange
    bytes: int


class Locator(ABC):
    """Finder of the tiered segments that hold an offset range, and of the range's bytes in these segments.

    A locator ignores segments that are not completely copied, and records of leader epochs that are no longer part of
    the partition's log. It also ignores offsets below the log start offset. A locator runs on the driver, keeps what it
    knows of segments between micro-batches, and is used by one thread at a time.
    """

    name: str
    """Name of the locator in the option `remote.log.locator`."""
    storage_check: StorageCheck | None = None
    """Check of the storage, which `locate` makes before it returns the first locations; None: no check is made."""
    limit: Callable[[PartitionRanges], PartitionRanges] | None = None
    """Function that shortens or removes the offset ranges of a call of `locate`; None: all ranges stay as they are."""

    def locate(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        """Return by partition the locations of its offset range in tiered segments, disjoint and in offset order.

        The ranges are first shortened by `limit`. `find_locations` describes `needed` and the locations. The first
        locations are returned only after `storage_check` has checked that the storage can be read.

        Raises:
            StorageError, BrokerError, CorruptDataError: the locations cannot be determined.
            StorageError, ConfigurationError: the check of the storage has failed (`StorageCheck.check`).
        """
        located = self.find_locations(self.limit(ranges) if self.limit else ranges, needed)
        if self.storage_check is not None and not self.storage_check.is_done:
            # The owner of the storage signs the signed locations, so no setting of this query is needed to read them.
            locations = (location for of_partition in located.values() for location in of_partition)
            self.storage_check.check([each for each in locations if each.signed_url is None and needed(each.segment)])
        return located

    @abstractmethod
    def find_locations(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        """Return by partition the locations of its offset range in tiered segments, disjoint and in offset order.

        A location has some of the offsets, and the byte range of one segment that holds them. Offsets that are not in
        the storage have no location. If `needed` returns False for a segment, its location has the right offsets, but
        its bytes may be wrong or empty. Under read_committed, a location has the aborted transactions that touch its
        offsets. The locations belong to the topic that has the name now, so the caller must compare topic ids.

        Raises:
            StorageError, BrokerError, CorruptDataError: the locations cannot be determined.
        """

    def since_all(self, locations: Sequence[SegmentLocation], timestamp: int) -> list[SegmentLocation | None]:
        """Return each location without the first batches that are known to be older than `timestamp` (ms).

        An entry of the result is None if all batches of the location are older. A locator that does not know timestamps
        returns the locations unchanged.
        """
        return list(locations)

    @abstractmethod
    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, VisibleSegments]:
        """Return by partition the tiered segments with offsets in the partition's range, in offset order and disjoint.

        The offsets of a returned segment may be cut off at the range's ends. Byte positions are not determined, so no
        offset index is read.
        """

    @abstractmethod
    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        """Return by partition an end offset (exclusive): about `SegmentShare.bytes` bytes of its segment lie before it.

        `shares` has one request for each partition. The bytes are counted from the start of `SegmentShare.offsets`. A
        returned offset is the offset after a batch, or the end of `SegmentShare.offsets`. All requests are looked up
        together. A partition is left out of the result if the byte positions in its segment are not available.
        """

    @abstractmethod
    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        """Cut each location into parts of about the given size in bytes, and return the parts of each location.

        `cuts` has pairs of a location and a size; the result has the same order. A location is cut where batches begin.
        Its parts together have exactly its offsets. Adjacent parts may share the bytes of one interval of the offset
        index, but no more.
        """

    @abstractmethod
    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        """Cut each location at the given offsets, and return the parts of each location.

        `cuts` has pairs of a location and ascending offsets inside it; the result has the same order. Each given offset
        is the first offset of a part. Adjacent parts may share the bytes of one interval of the offset index. If the
        byte positions in the segment are not available, the location stays whole, or each part has all bytes of the
        location.
        """

    def missing_objects(self, partition: TopicPartition, offsets: OffsetRange) -> Sequence[str]:
        """Return the full names of objects of the partition's segments that should be in the storage, but are not.

        Only segments with a base offset in `offsets` are considered. Only a locator that lists the storage knows
        missing objects. Other locators return an empty sequence.
        """
        return ()

    def close(self) -> None:  # noqa: B027 - a locator without connections has nothing to close
        """Close the locator, after which it cannot be used."""

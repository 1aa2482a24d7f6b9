"""Planning while the storage fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from tiered_stream.errors import StorageAccessError, StorageError, StorageReadTimeoutError
from tiered_stream.locate.base import Locator
from tiered_stream.locate.fallback import BrokerFallback
from tiered_stream.offsets import OffsetRange, TopicPartition
from tiered_stream.segments import ByteRange, RemoteLogSegment, SegmentLocation

WELL, ILL = TopicPartition("orders", 0), TopicPartition("orders", 1)
RANGES = {WELL: OffsetRange(0, 10), ILL: OffsetRange(5, 10)}


def location(partition: TopicPartition) -> SegmentLocation:
    segment = RemoteLogSegment(partition, UUID(int=1), UUID(int=2), 0, 9, 1000)
    return SegmentLocation(segment, OffsetRange(0, 10), ByteRange(0, 1000))


class LocatorWithoutIndexes(Locator):
    """Knows one segment of each partition, and fails where it needs an index of `ILL`. Omitted: everything else."""

    name = "made up"

    def __init__(self, error: StorageError) -> None:
        self._error = error

    def locate(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, tuple[SegmentLocation, ...]]:
        if ILL in ranges:
            raise self._error
        return {partition: (location(partition),) for partition in ranges}

    def segment_ends(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, tuple[int, ...]]:
        return dict.fromkeys(ranges, (10,))

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        raise self._error


def test_only_the_partition_whose_index_cannot_be_had_is_left_to_the_broker() -> None:
    located = BrokerFallback(LocatorWithoutIndexes(StorageReadTimeoutError("silent"))).locate(RANGES)
    assert located == {WELL: (location(WELL),), ILL: ()}


def test_refused_credentials_stay_an_error() -> None:
    with pytest.raises(StorageAccessError, match="wrong key"):
        BrokerFallback(LocatorWithoutIndexes(StorageAccessError("wrong key"))).locate(RANGES)


def test_a_segment_that_cannot_be_cut_stays_whole() -> None:
    whole = location(WELL)
    assert BrokerFallback(LocatorWithoutIndexes(StorageReadTimeoutError("silent"))).cut(whole, 10) == [whole]

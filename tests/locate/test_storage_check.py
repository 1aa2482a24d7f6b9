from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from tiered_stream.errors import StorageAccessError, StorageBucketNotFoundError
from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.locate.locator import Locator, SegmentFilter, SegmentShare, every_segment
from tiered_stream.locate.storage_check import CheckedStorage
from tiered_stream.model import ByteRange, OffsetRange, RemoteLogSegment, SegmentLocation, TopicPartition
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher, object_key

T0 = TopicPartition("t", 0)
SEGMENT = RemoteLogSegment(T0, UUID(int=1), UUID(int=2), base_offset=0, end_offset=9, size=100)
ALL = {T0: OffsetRange(0, 10)}


LATER = RemoteLogSegment(T0, UUID(int=1), UUID(int=3), base_offset=10, end_offset=19, size=100)


class MadeUpLocator(Locator):
    """Finds the segments in every range that is not empty, whether or not they are in storage."""

    name = "made up"

    def __init__(self, *segments: RemoteLogSegment) -> None:
        self._locations = tuple(SegmentLocation(each, each.offsets, ByteRange(0, each.size)) for each in segments)

    def locate(
        self, ranges: Mapping[TopicPartition, OffsetRange], needed: SegmentFilter = every_segment
    ) -> dict[TopicPartition, tuple[SegmentLocation, ...]]:
        return {partition: self._locations if len(wanted) else () for partition, wanted in ranges.items()}

    def segment_ends(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, tuple[int, ...]]:
        return dict.fromkeys(ranges, (10,))

    def segments(
        self, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, tuple[VisibleSegment, ...]]:
        return dict.fromkeys(ranges, ())

    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        return {}

    def cut(self, location: SegmentLocation, target_bytes: int) -> Sequence[SegmentLocation]:
        return [location]

    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        return [[location] for location, _ in cuts]

    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        return [[location] for location, _ in cuts]


def checked(folder: Path) -> CheckedStorage:
    return CheckedStorage(MadeUpLocator(SEGMENT), LocalLayoutFetcher(FileStore(folder)))


def test_a_missing_folder_fails_the_first_location(tmp_path: Path) -> None:
    locator = checked(tmp_path / "nowhere")
    assert locator.locate({T0: OffsetRange(3, 3)}) == {T0: ()}
    for _ in range(2):
        with pytest.raises(StorageBucketNotFoundError, match=r"nowhere \(option remote\.storage\.uri\) does not exist"):
            locator.locate(ALL)


def test_refused_access_fails_the_first_location(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "tier").mkdir()
    (tmp_path / "tier" / object_key(SEGMENT, "").split("/")[0]).symlink_to(tmp_path / "secret")
    with pytest.raises(StorageAccessError, match="leads out of the folder"):
        checked(tmp_path / "tier").locate(ALL)


@pytest.mark.parametrize("given", [True, False])
def test_access_to_one_object_that_is_refused_is_held_against_another(
    tmp_path: Path, given: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """S3 refuses what is missing, where the user may not list the bucket."""
    tier = tmp_path / "tier"
    for segment in (SEGMENT, LATER):
        path = tier / object_key(segment, ".log")
        path.parent.mkdir(parents=True, exist_ok=True)
        if segment is LATER and given:
            path.write_bytes(bytes(segment.size))
        else:
            path.symlink_to(tmp_path / "outside")
    locator = CheckedStorage(MadeUpLocator(SEGMENT, LATER), LocalLayoutFetcher(FileStore(tier)))
    if given:
        assert len(locator.locate(ALL)[T0]) == 2
        assert "the storage gives other segments, but not this one" in caplog.text
    else:
        with pytest.raises(StorageAccessError, match="leads out of the folder"):
            locator.locate(ALL)


def test_a_single_missing_object_is_left_to_the_tasks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    located = checked(tmp_path).locate(ALL)
    assert [location.segment for location in located[T0]] == [SEGMENT]
    assert "each task tries it anew" in caplog.text


def test_the_storage_is_asked_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    locator = checked(tmp_path)
    for _ in range(3):
        assert locator.locate(ALL)[T0]
    assert len(caplog.records) == 1

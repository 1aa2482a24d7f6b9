"""The command `segments` finds settings that do not lead to the segments, where it is to read the storage at all."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tiered_stream.errors import StorageBucketNotFoundError, StorageObjectNotFoundError
from tiered_stream.inspection.tier_contents import PartitionTier, TierContents, check_objects
from tiered_stream.locate.visible_segments import VisibleSegment
from tiered_stream.model import PartialAnswer, RemoteLogSegment, TopicPartition
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.storage.local_layout import object_key

PARTITION = TopicPartition("orders", 0)
SEGMENT = RemoteLogSegment(PARTITION, UUID(int=1), UUID(int=2), base_offset=0, end_offset=9, size=100)


def options(folder: Path | None) -> Options:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "orders"}
    storage = {} if folder is None else {"remote.storage.uri": folder.as_uri(), "remote.storage.layout": "local"}
    return parse_options({**given, **storage}, streaming=True)


def contents(located_by: str) -> TierContents:
    visible = (VisibleSegment(SEGMENT, SEGMENT.offsets),)
    return TierContents(located_by, PartialAnswer({PARTITION: PartitionTier((), visible, SEGMENT.offsets, None)}, {}))


def test_a_storage_that_does_not_have_the_segments_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageBucketNotFoundError, match="correct its name, or mount it here"):
        check_objects(options(tmp_path / "nowhere"), contents(LocatorName.METADATA_TOPIC))
    log = tmp_path / object_key(SEGMENT, ".log")
    log.parent.mkdir()
    log.with_suffix(".index").write_bytes(b"")
    with pytest.raises(StorageObjectNotFoundError, match=f"{log.name} does not exist"):
        check_objects(options(tmp_path), contents(LocatorName.METADATA_TOPIC))
    log.write_bytes(bytes(SEGMENT.size))
    check_objects(options(tmp_path), contents(LocatorName.METADATA_TOPIC))


@pytest.mark.parametrize("located_by", [LocatorName.BROKER, LocatorName.ARCHIVE])
def test_segments_that_the_metadata_topic_did_not_name_are_not_read(tmp_path: Path, located_by: str) -> None:
    check_objects(options(tmp_path / "nowhere"), contents(located_by))


def test_without_a_storage_nothing_is_read() -> None:
    check_objects(options(None), contents(LocatorName.METADATA_TOPIC))

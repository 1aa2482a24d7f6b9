from __future__ import annotations

import json
from base64 import b64encode
from copy import deepcopy
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import NAMES, golden
from tests.storage.golden_aiven import manifests
from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.locate.metadata_topic.remote_log_metadata import SegmentMetadata, decode_remote_log_metadata
from tiered_stream.model import ByteRange, LeaderEpoch, RemoteLogSegment, TopicPartition, uuid_from_text
from tiered_stream.storage.aiven.manifest import parse_manifest
from tiered_stream.storage.fetcher import IndexType

MANIFEST: dict[str, Any] = {
    "version": "1",
    "chunkIndex": {
        "type": "fixed",
        "originalChunkSize": 10,
        "originalFileSize": 25,
        "transformedChunkSize": 10,
        "finalTransformedChunkSize": 5,
    },
    "segmentIndexes": {
        "offset": {"position": 0, "size": 8},
        "timestamp": {"position": 8, "size": 12},
        "producerSnapshot": {"position": 20, "size": 56},
        "leaderEpoch": {"position": 76, "size": 8},
        "transaction": None,
    },
    "compression": False,
    "remoteLogSegmentMetadata": {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": "oWjcqPvwTSGyfLzrMjVIwQ",
                "topicPartition": {"topic": "orders", "partition": 3},
            },
            "id": "E1VAxfkETzCf0e0XkCQSEw",
        },
        "startOffset": 40,
        "endOffset": 49,
        "maxTimestampMs": 1700000009349,
        "brokerId": 1,
        "eventTimestampMs": 1795224342684,
        "segmentLeaderEpochs": {"10": 45, "4": 40},
        "txnIdxEmpty": True,
    },
}


def parse(document: object) -> object:
    return parse_manifest(json.dumps(document).encode(), "the-object")


def changed(path: str, value: object) -> dict[str, Any]:
    """The manifest with another value at `path`, or without it where that is None."""
    document = deepcopy(MANIFEST)
    *parents, name = path.split(".")
    place = document
    for parent in parents:
        place = place[parent]
    place[name] = value
    if value is None:
        del place[name]
    return document


def test_everything_that_a_segment_needs_is_there() -> None:
    manifest = parse_manifest(json.dumps(MANIFEST).encode(), "the-object")
    assert not manifest.is_transformed
    assert manifest.chunks.positions.tolist() == [0, 10, 20, 25]
    assert manifest.indexes == {
        IndexType.OFFSET: ByteRange(0, 8),
        IndexType.TIMESTAMP: ByteRange(8, 20),
        IndexType.PRODUCER_SNAPSHOT: ByteRange(20, 76),
        IndexType.LEADER_EPOCH: ByteRange(76, 84),
    }
    assert manifest.segment == RemoteLogSegment(
        topic_partition=TopicPartition("orders", 3),
        topic_id=uuid_from_text("oWjcqPvwTSGyfLzrMjVIwQ"),
        segment_id=uuid_from_text("E1VAxfkETzCf0e0XkCQSEw"),
        base_offset=40,
        end_offset=49,
        size=25,
        max_timestamp=1700000009349,
        leader_epochs=(LeaderEpoch(4, 40), LeaderEpoch(10, 45)),
        transaction_index_empty=True,
    )


@pytest.mark.parametrize("name", NAMES)
def test_golden_manifests_say_of_segments_what_the_metadata_topic_says(name: str) -> None:
    of_topic = {}
    for _, _, value in golden(name).remote_log_metadata():
        record = decode_remote_log_metadata(value)
        if isinstance(record, SegmentMetadata) and not record.is_update:
            of_topic[record.segment.segment_id] = record.segment
    for manifest in manifests(name).values():
        assert manifest.segment is not None
        assert manifest.segment == of_topic[manifest.segment.segment_id]


def test_a_manifest_without_metadata_has_no_segment() -> None:
    assert parse_manifest(json.dumps(changed("remoteLogSegmentMetadata", None)).encode(), "x").segment is None


def test_another_version_is_not_supported() -> None:
    with pytest.raises(UnsupportedDataError, match="the-object .*version '2'"):
        parse(changed("version", "2"))


@pytest.mark.parametrize(
    "path,value,message",
    [
        ("chunkIndex", None, "chunkIndex is missing"),
        ("chunkIndex", [1], "chunkIndex is not of type dict"),
        ("chunkIndex.type", "other", "type 'other', not fixed or variable"),
        ("chunkIndex.type", "variable", "transformedChunks is missing"),
        ("chunkIndex.originalChunkSize", 0, "cannot be"),
        ("chunkIndex.originalChunkSize", True, "not of type int"),
        ("chunkIndex.originalChunkSize", 10.0, "not of type int"),
        ("chunkIndex.originalFileSize", 2**40, "cannot be"),
        ("chunkIndex.transformedChunkSize", -1, "out of range"),
        ("chunkIndex.transformedChunkSize", 2**31, "out of range"),
        ("chunkIndex.finalTransformedChunkSize", 4, "not transformed, but"),
        ("segmentIndexes", None, "segmentIndexes is missing"),
        ("segmentIndexes.offset", None, "segmentIndexes.offset is missing"),
        ("segmentIndexes.transaction", {"position": 2**31 - 1, "size": 1}, "further than indexes may"),
        ("segmentIndexes.transaction", {"position": 0, "size": -1}, "out of range"),
        ("compression", "no", "compression is not of type bool"),
        ("encryption", "yes", "encryption is not of type dict"),
        ("encryption", {"dataKey": "key1", "aad": ""}, "KEYPAIRID:base64"),
        ("encryption", {"dataKey": ":AAAA", "aad": ""}, "KEYPAIRID:base64"),
        ("encryption", {"dataKey": "key1:!", "aad": ""}, "base64"),
        ("encryption", {"dataKey": "key1:AAAA"}, "aad is missing"),
        ("remoteLogSegmentMetadata", "x", "remoteLogSegmentMetadata is not of type dict"),
        ("remoteLogSegmentMetadata.startOffset", -1, "offsets -1 to 49"),
        ("remoteLogSegmentMetadata.endOffset", 39, "offsets 40 to 39"),
        ("remoteLogSegmentMetadata.endOffset", 2**63 - 1, "cannot have offsets"),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"x": 1}, "'x' is not a leader epoch"),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"1": -1}, "starts at offset -1"),
        ("remoteLogSegmentMetadata.segmentLeaderEpochs", {"1": 2**63}, "starts at offset 92"),
        ("remoteLogSegmentMetadata.maxTimestampMs", 2**63, "out of range"),
        ("remoteLogSegmentMetadata.remoteLogSegmentId.id", "short", "not a Kafka UUID"),
        (
            "remoteLogSegmentMetadata.remoteLogSegmentId.topicIdPartition.topicPartition.topic",
            "..",
            "not a topic's name",
        ),
        ("remoteLogSegmentMetadata.remoteLogSegmentId.topicIdPartition.topicPartition.topic", "a/b", "not a topic's"),
        ("remoteLogSegmentMetadata.remoteLogSegmentId.topicIdPartition.topicPartition.partition", -1, "out of range"),
    ],
)
def test_what_is_wrong_in_a_manifest_is_named(path: str, value: object, message: str) -> None:
    with pytest.raises(CorruptDataError, match=f"the-object .*{message}"):
        parse(changed(path, value))


def test_chunk_sizes_that_unpack_without_end_are_stopped() -> None:
    bomb = b64encode(bytes(cramjam.zstd.compress(bytes(50_000_000)))).decode()
    document = changed("chunkIndex.type", "variable")
    document["chunkIndex"]["transformedChunks"] = bomb
    with pytest.raises(CorruptDataError, match="the-object "):
        parse(document)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"version":"1"}'])
def test_what_is_not_such_json_is_refused(data: bytes) -> None:
    with pytest.raises((CorruptDataError, UnsupportedDataError), match="the-object"):
        parse_manifest(data, "the-object")


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_paths = [
    "version",
    "compression",
    "encryption",
    "chunkIndex.type",
    "chunkIndex.originalChunkSize",
    "chunkIndex.originalFileSize",
    "chunkIndex.transformedChunkSize",
    "chunkIndex.finalTransformedChunkSize",
    "segmentIndexes.offset",
    "segmentIndexes.transaction",
    "remoteLogSegmentMetadata",
    "remoteLogSegmentMetadata.startOffset",
    "remoteLogSegmentMetadata.maxTimestampMs",
    "remoteLogSegmentMetadata.segmentLeaderEpochs",
]


@given(st.sampled_from(_paths), st.recursive(_leaves, lambda of: st.lists(of) | st.dictionaries(st.text(), of)))
def test_any_value_anywhere_gives_a_manifest_or_our_error(path: str, value: object) -> None:
    try:
        parse(changed(path, value) if path != "encryption" else MANIFEST | {"encryption": value})
    except (CorruptDataError, UnsupportedDataError) as error:
        assert "the-object" in str(error)

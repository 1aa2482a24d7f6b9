"""Records of the metadata topic: the golden ones decode and lie where the partitioner says; bad ones are refused."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import NAMES, golden
from tests.locate.segments import PARTITION, segment
from tests.tier.metadata import FINISHED, decoded_update, delete_record, segment_record, update_record
from tests.tier.segments import TOPIC_ID
from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    PartitionDelete,
    RemoteLogSegmentState,
    SegmentMetadata,
    TopicIdPartition,
    decode_remote_log_metadata,
    metadata_partition,
)
from tiered_stream.model import LeaderEpoch, RemoteLogSegment
from tiered_stream.records.flexible_versions import tagged_fields

HERE = TopicIdPartition(TOPIC_ID, PARTITION)
UPDATE = decoded_update(HERE, UUID(int=3), FINISHED, None)
FIRST_VALUE = golden("aiven-plain").remote_log_metadata()[0][2]

START_OFFSET_AT = 3 + 6 + 16 + 4 + 1 + 16 + 1  # header, "plain", topic id, partition, no tags, segment id, no tags


@pytest.mark.parametrize("name", NAMES)
def test_every_golden_record_decodes_and_lies_in_the_partition_that_the_partitioner_says(name: str) -> None:
    records = golden(name).remote_log_metadata()
    assert len(records) > 700
    for partition, _, value in records:
        metadata = decode_remote_log_metadata(value)
        assert metadata is not None
        assert metadata_partition(metadata.partition, 5) == partition


def test_a_partition_delete_names_the_partition() -> None:
    assert decode_remote_log_metadata(delete_record(HERE)) == PartitionDelete(HERE)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("custom_metadata", [None, b"", b"plugin" * 5000])
def test_what_kafka_s_definitions_write_is_read(version: int, custom_metadata: bytes | None) -> None:
    segment = RemoteLogSegment(
        PARTITION, TOPIC_ID, UUID(int=3), 5, 9000, 77, 7,
        tuple(LeaderEpoch(epoch, epoch * 10) for epoch in range(200)), True, custom_metadata,
    )  # fmt: skip
    written = segment_record(segment, FINISHED, 8, version, broker_leader_epoch=4)
    assert decode_remote_log_metadata(written) == SegmentMetadata(HERE, segment, FINISHED)
    state = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
    changed = update_record(segment, state, 8, version, broker_leader_epoch=4, end_offset=6)
    expected = decoded_update(HERE, UUID(int=3), state, custom_metadata, 6 if version else -1)
    assert decode_remote_log_metadata(changed) == expected


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ((-2).to_bytes(8, "big", signed=True), "end offset -2"),
        (b"\x7f" + b"\xff" * 7, "end offset 9"),
        (b"\0", "of 1 bytes"),
    ],
)
def test_an_end_offset_that_none_can_be_is_refused(end: bytes, message: str) -> None:
    whole = update_record(segment(3, 0, 10), version=1)
    assert decode_remote_log_metadata(whole) == UPDATE
    with pytest.raises(CorruptDataError, match=message):
        decode_remote_log_metadata(whole[:-1] + tagged_fields({1: end}))


def test_tags_of_a_version_that_has_none_say_nothing() -> None:
    whole = update_record(segment(3, 0, 10), version=1, end_offset=9)
    assert decode_remote_log_metadata(whole) == decoded_update(HERE, UUID(int=3), FINISHED, None, 9)
    assert decode_remote_log_metadata(whole[:2] + b"\0" + whole[3:]) == UPDATE


def test_tombstones_and_snapshot_records_say_nothing() -> None:
    assert decode_remote_log_metadata(None) is None
    assert decode_remote_log_metadata(b"\x01\x03\x00" + b"rest") is None


@pytest.mark.parametrize("header", [b"\x00\x00\x00", b"\x02\x00\x00", b"\x01\x04\x00", b"\x01\x00\x02"])
def test_an_unknown_frame_type_or_version_is_not_guessed_at(header: bytes) -> None:
    with pytest.raises(UnsupportedDataError, match="not known"):
        decode_remote_log_metadata(header + FIRST_VALUE[3:])


def test_a_record_that_is_cut_after_any_byte_or_has_more_bytes_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="1 bytes follow"):
        decode_remote_log_metadata(FIRST_VALUE + b"\0")
    for length in range(len(FIRST_VALUE)):
        with pytest.raises((CorruptDataError, UnsupportedDataError)):
            decode_remote_log_metadata(FIRST_VALUE[:length])


@pytest.mark.parametrize(
    ("at", "field", "message"),
    [
        (START_OFFSET_AT, (-1).to_bytes(8, "big", signed=True), "offsets -1"),
        (START_OFFSET_AT, (1 << 40).to_bytes(8, "big"), "offsets 1099511627776 to 17234"),
        (3 + 6 + 16, (-1).to_bytes(4, "big", signed=True), "partition -1"),
        (3 + 6, bytes(16), "is no partition"),
        (3, b"\x01", "is no partition|malformed|follow"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(at: int, field: bytes, message: str) -> None:
    with pytest.raises(CorruptDataError, match=message):
        decode_remote_log_metadata(FIRST_VALUE[:at] + field + FIRST_VALUE[at + len(field) :])


@given(st.binary(max_size=120), st.integers(0, 2), st.integers(0, len(FIRST_VALUE) - 1), st.integers(0, 255))
def test_any_bytes_give_metadata_or_our_own_error(data: bytes, api_key: int, at: int, byte: int) -> None:
    changed = FIRST_VALUE[:at] + bytes((byte,)) + FIRST_VALUE[at + 1 :]
    for value in (data, bytes((1, api_key, 0)) + data, changed):
        with suppress(CorruptDataError, UnsupportedDataError):
            decode_remote_log_metadata(value)

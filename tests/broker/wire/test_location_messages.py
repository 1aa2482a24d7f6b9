"""Our Fetch: KIP-1248's fields survive the wire, and brokers that do not know them pass over them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from tests.broker.wire.segment_entries import SegmentEntry, encode_entries
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.topics import create_tiered_topic
from tiered_stream.broker.client import BrokerClient, supported_feature
from tiered_stream.broker.location_fetch import LocationTerms, locate_segments
from tiered_stream.broker.wire.location_messages import (
    LOCATION_FEATURE,
    FetchPartition,
    FetchTopic,
    LocatedPartition,
    LocationFetchRequest,
    LocationFetchResponse,
    decode_segments,
    encode_segment,
)
from tiered_stream.model import AbortedTransaction, ByteRange, LeaderEpoch, OffsetRange, SegmentLocation, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.records.flexible_versions import Reader, compact_array

if TYPE_CHECKING:
    from tests.rigs.stack.tiered_stack import TieredStack

TOPIC_ID = UUID(int=5)
PARTITION = TopicPartition("t", 0)


def segment(number: int = 0, **others: Any) -> Any:
    fields = {
        "remote_log_segment_id": UUID(int=number + 1),
        "remote_log_segment_custom_metadata": b"custom",
        "signed_remote_log_segment_location": "https://storage/log?signature",
        "storage_format_version": "ApacheKafkaV1",
        "base_offset": 0,
        "last_offset": 99,
        "size_in_bytes": 1_000,
        "start_offset": 10,
        "end_offset": 90,
        "start_position": 100,
        "end_position": 900,
        "following_offset_min": 90,
        "following_offset_max": 95,
        "leader_epochs": [(0, 0), (3, 50)],
        "aborted_transactions": [(7, 20, 30)],
    }
    return SegmentEntry(**{**fields, **others})


def decoded(data: bytes) -> list[SegmentLocation]:
    return decode_segments(data, PARTITION, TOPIC_ID)


def test_segments_come_out_as_they_went_in() -> None:
    nothing = {"remote_log_segment_custom_metadata": None, "signed_remote_log_segment_location": None}
    unknown = {"following_offset_min": -1, "following_offset_max": -1}
    data = encode_entries([segment(), segment(1, **nothing, **unknown, leader_epochs=[], aborted_transactions=[])])
    first, second = decoded(data)
    assert (first.segment.segment_id, first.segment.custom_metadata) == (UUID(int=1), b"custom")
    assert (first.segment.topic_partition, first.segment.topic_id) == (PARTITION, TOPIC_ID)
    assert (first.segment.offsets, first.segment.size) == (OffsetRange(0, 100), 1_000)
    assert (first.offsets, first.bytes, first.following) == (OffsetRange(10, 90), ByteRange(100, 900), (90, 95))
    assert first.segment.leader_epochs == (LeaderEpoch(0, 0), LeaderEpoch(3, 50))
    assert first.aborted_transactions == (AbortedTransaction(7, 20, 30),)
    assert (first.signed_url, first.storage_format) == ("https://storage/log?signature", "ApacheKafkaV1")
    assert (second.signed_url, second.segment.custom_metadata, second.following) == (None, None, None)
    assert compact_array(list(map(encode_segment, [first, second]))) == data


def test_segments_cut_anywhere_or_with_more_behind_are_refused() -> None:
    data = encode_entries([segment(), segment(1)])
    for end in range(len(data)):
        with pytest.raises(ValueError, match="segments|malformed"):
            decoded(data[:end])
    with pytest.raises(ValueError, match="segments"):
        decoded(data + b"\0")


@given(st.binary(max_size=400))
def test_any_bytes_are_segments_or_a_value_error(data: bytes) -> None:
    try:
        assert isinstance(decoded(data), list)
    except ValueError:
        pass


@given(st.binary(max_size=400))
def test_any_bytes_are_an_answer_or_a_value_error(data: bytes) -> None:
    for read in (LocationFetchResponse.decode_body, partial(LocationFetchRequest.decode_body, 15)):
        try:
            read(Reader(data))
        except ValueError:
            pass


def test_a_count_that_the_bytes_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="268435454 items in 10 bytes"):
        decoded(b"\xff\xff\xff\x7f" + bytes(10))


def plain(**others: Any) -> Any:
    """A partition of kafka-python's response, with records."""
    fields = {
        "partition_index": 2, "error_code": 0, "high_watermark": 9, "last_stable_offset": 8, "log_start_offset": 1,
        "aborted_transactions": [(1, 2)], "preferred_read_replica": -1, "records": b"records",
    }  # fmt: skip
    return FetchResponse.FetchableTopicResponse.PartitionData(**{**fields, **others})


def answer(version: int, *partitions: Any) -> LocationFetchResponse:
    """A response as kafka-python writes it, read by us."""
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))
    message = FetchResponse(throttle_time_ms=3, error_code=0, session_id=0, responses=[topic])
    return LocationFetchResponse.decode_body(Reader(bytes(message.encode(version=version))))


@pytest.mark.parametrize("version", range(13, 18))
def test_an_answer_with_segments_is_read_as_it_was_written(version: int) -> None:
    data = encode_entries([segment()])
    response = answer(version, plain(), plain(partition_index=3))
    (topic,) = response.responses
    named = [replace(topic.partitions[0], remote_log_segments=data, located_end_offset=90), topic.partitions[1]]
    content = b"".join(replace(response, responses=[replace(topic, partitions=named)]).pieces())
    read = LocationFetchResponse.decode_body(Reader(content))
    located, other = read.responses[0].partitions
    assert read.responses[0].topic_id == TOPIC_ID and read.throttle_time_ms == 3
    assert (located.remote_log_segments, located.located_end_offset, located.high_watermark) == (data, 90, 9)
    assert (other.remote_log_segments, other.located_end_offset, other.partition_index) == (b"", -1, 3)
    theirs = FetchResponse.decode(content, version=version).responses[0].partitions
    assert [(each.partition_index, each.records) for each in theirs] == [(2, None), (3, None)]
    assert theirs[0].unknown_tags == {"_1248": data, "_1249": (90).to_bytes(8, "big")}


def test_tagged_fields_of_kafka_s_own_are_kept_and_unknown_ones_passed_over() -> None:
    epoch = FetchResponse.FetchableTopicResponse.PartitionData.EpochEndOffset(epoch=4, end_offset=40)
    content = b"".join(replace(answer(15, plain(diverging_epoch=epoch))).pieces())
    (read,) = FetchResponse.decode(content, version=15).responses[0].partitions
    assert (read.diverging_epoch.epoch, read.diverging_epoch.end_offset) == (4, 40)
    (located,) = answer(15, plain()).responses[0].partitions
    unknown = b"".join(replace(located, located_end_offset=5).pieces()).replace(
        b"\xe1\x09", b"\xe9\x09"
    )  # tag 1249 becomes 1257
    assert LocatedPartition.decode(Reader(unknown)) == located


@pytest.mark.parametrize("version", range(13, 18))
def test_the_request_carries_what_is_wanted_and_nothing_when_it_is_a_plain_fetch(version: int) -> None:
    topics = [FetchTopic(TOPIC_ID, [FetchPartition(1, 2, 3, 5)])]
    asking = LocationFetchRequest(
        topics=topics, isolation_level=1, remote_log_segment_location_requested=True,
        supported_storage_format_versions=["ApacheKafkaV1"], max_remote_log_segments=6, local_segments_wanted=True,
        remote_log_segment_part_bytes=7, offsets_only=True,
    )  # fmt: skip
    content = asking.encode_body(version)
    assert LocationFetchRequest.decode_body(version, Reader(content)) == asking
    theirs = FetchRequest.decode(content, version=version)
    assert (theirs.max_wait_ms, theirs.min_bytes, theirs.max_bytes, theirs.isolation_level) == (0, 0, 1, 1)
    assert (theirs.session_id, theirs.session_epoch, theirs.forgotten_topics_data, theirs.rack_id) == (0, -1, [], "")
    (wanted,) = theirs.topics[0].partitions
    assert (wanted.partition, wanted.current_leader_epoch, wanted.fetch_offset) == (1, 2, 3)
    assert (wanted.last_fetched_epoch, wanted.log_start_offset, wanted.partition_max_bytes) == (-1, -1, 1)
    assert theirs.unknown_tags == {
        "_1248": b"\1", "_1254": b"\2\x0eApacheKafkaV1", "_1255": bytes([0, 0, 0, 6]), "_1256": b"\1",
        "_1257": bytes([0] * 7 + [7]), "_1258": b"\1",
    }  # fmt: skip
    assert b"\xe0\x09" not in LocationFetchRequest(topics=[], isolation_level=0).encode_body(version)


@pytest.mark.stack
def test_a_stock_broker_answers_a_location_request_as_ever(
    stack: TieredStack, client: BrokerClient, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic)
    with RawProducer(stack.broker) as producer:
        producer.send(topic, [Record(), Record(b"k", b"v")], partition=0)
    where = TopicPartition(topic, 0)
    located = locate_segments(client, {where: OffsetRange(0, 2)}, LocationTerms(IsolationLevel.READ_COMMITTED))
    assert located.found == {where: LocatedPartition(0, 0, 2, 2, 0)}


@pytest.mark.stack
def test_a_stock_broker_does_not_speak_of_locations(client: BrokerClient) -> None:
    assert supported_feature(client, LOCATION_FEATURE) == 0
    assert supported_feature(client, "metadata.version") > 0

"""Our Fetch: KIP-1248's fields survive the wire, and brokers that do not know them pass over them."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stack.produce import RawProducer
from tests.stack.rows import Record
from tests.stack.topics import create_tiered_topic
from tiered_stream.broker.client import BrokerClient, supported_feature
from tiered_stream.broker.fetch_messages import (
    LOCATION_FEATURE,
    FetchRequest,
    FetchResponse,
    RemoteLogSegmentLocation,
    decode_segments,
    encode_segments,
)
from tiered_stream.broker.location_fetch import LocatedSegments, LocationTerms, locate_segments
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel

if TYPE_CHECKING:
    from tests.stack.tiered_stack import TieredStack

TOPIC_ID = UUID(int=5)


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
    return RemoteLogSegmentLocation(**{**fields, **others})


def response(partitions: list[Any]) -> Any:
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])


def partition(**others: Any) -> Any:
    fields = {
        "partition_index": 2, "error_code": 0, "high_watermark": 9, "last_stable_offset": 8, "log_start_offset": 1,
        "aborted_transactions": [], "preferred_read_replica": -1, "records": b"records",
    }  # fmt: skip
    return FetchResponse.FetchableTopicResponse.PartitionData(**{**fields, **others})


def test_segments_come_out_as_they_went_in() -> None:
    nothing = {"remote_log_segment_custom_metadata": None, "signed_remote_log_segment_location": None}
    data = encode_segments([segment(), segment(1, **nothing, leader_epochs=[], aborted_transactions=[])])
    first, second = decode_segments(data)
    assert (first.remote_log_segment_id, first.remote_log_segment_custom_metadata) == (UUID(int=1), b"custom")
    assert (first.start_offset, first.end_offset, first.start_position, first.end_position) == (10, 90, 100, 900)
    assert [(each.epoch, each.start_offset) for each in first.leader_epochs] == [(0, 0), (3, 50)]
    (aborted,) = first.aborted_transactions
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 20, 30)
    assert second.signed_remote_log_segment_location is None and second.remote_log_segment_custom_metadata is None


def test_segments_cut_anywhere_or_with_more_behind_are_refused() -> None:
    data = encode_segments([segment(), segment(1)])
    for end in range(len(data)):
        with pytest.raises(ValueError, match="segments|malformed"):
            decode_segments(data[:end])
    with pytest.raises(ValueError, match="segments"):
        decode_segments(data + b"\0")


@given(st.binary(max_size=400))
def test_any_bytes_are_segments_or_a_value_error(data: bytes) -> None:
    try:
        assert isinstance(decode_segments(data), list)
    except ValueError:
        pass


@pytest.mark.parametrize("version", range(13, 18))
def test_an_answer_with_segments_is_read_as_it_was_written(version: int) -> None:
    data = encode_segments([segment()])
    answer = response([partition(remote_log_segments=data, located_end_offset=90), partition(partition_index=3)])
    topic = FetchResponse.decode(answer.encode(version=version), version=version).responses[0]
    located, plain = topic.partitions
    assert topic.topic_id == TOPIC_ID
    assert (located.remote_log_segments, located.located_end_offset, located.records) == (data, 90, b"records")
    assert (plain.remote_log_segments, plain.located_end_offset, plain.partition_index) == ([], -1, 3)


def test_tagged_fields_of_kafka_s_own_and_unknown_ones_are_still_read() -> None:
    kind = FetchResponse.FetchableTopicResponse.PartitionData
    epoch = kind.EpochEndOffset(epoch=4, end_offset=40)
    data = response([partition(diverging_epoch=epoch, located_end_offset=5)]).encode(version=17)
    (read,) = FetchResponse.decode(data, version=17).responses[0].partitions
    assert (read.diverging_epoch.epoch, read.diverging_epoch.end_offset, read.located_end_offset) == (4, 40, 5)
    unknown = data.replace(b"\xe1\x09", b"\xe9\x09")  # tag 1249 becomes 1257
    (read,) = FetchResponse.decode(unknown, version=17).responses[0].partitions
    assert read.unknown_tags == {"_1257": (5).to_bytes(8, "big")}


def test_the_request_carries_what_is_wanted_and_nothing_when_it_is_a_plain_fetch() -> None:
    kind = FetchRequest.FetchTopic
    wanted = kind.FetchPartition(
        partition=1, current_leader_epoch=2, fetch_offset=3, partition_max_bytes=4, remote_log_segment_end_offset=5
    )
    asking = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[kind(topic_id=TOPIC_ID, partitions=[wanted])], forgotten_topics_data=[],
        rack_id="", remote_log_segment_location_requested=True, supported_storage_format_versions=["ApacheKafkaV1"],
        max_remote_log_segments=6, local_segments_wanted=True, remote_log_segment_part_bytes=7, offsets_only=True,
    )  # fmt: skip
    data = asking.encode(version=15)
    read = FetchRequest._struct.decode(BytesIO(data), version=15, compact=True, tagged=True)
    assert read.remote_log_segment_location_requested and read.local_segments_wanted and read.offsets_only
    assert (read.max_remote_log_segments, read.remote_log_segment_part_bytes) == (6, 7)
    assert read.supported_storage_format_versions == ["ApacheKafkaV1"]
    assert read.topics[0].partitions[0].remote_log_segment_end_offset == 5
    assert b"\xe0\x09" not in FetchRequest(topics=[], forgotten_topics_data=[], rack_id="").encode(version=15)


@pytest.mark.stack
def test_a_stock_broker_answers_a_location_request_as_ever(
    stack: TieredStack, client: BrokerClient, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic)
    with RawProducer(stack.broker) as producer:
        producer.send(topic, [Record(), Record(b"k", b"v")], partition=0)
    where = TopicPartition(topic, 0)
    located = locate_segments(client, {where: OffsetRange(0, 2)}, LocationTerms(IsolationLevel.READ_COMMITTED))
    assert located == {where: LocatedSegments(None, None, 2, 2, 0)}


@pytest.mark.stack
def test_a_stock_broker_does_not_speak_of_locations(client: BrokerClient) -> None:
    assert supported_feature(client, LOCATION_FEATURE) == 0
    assert supported_feature(client, "metadata.version") > 0

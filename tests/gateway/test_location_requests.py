from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from tests.gateway.requests import TOPIC_ID, fetch_response, location_fetch, read
from tiered_stream.broker.fetch_messages import LocationFetchResponse
from tiered_stream.broker.flexible_versions import Reader
from tiered_stream.gateway.frames import FrameError, body_of_flexible, request_head
from tiered_stream.gateway.location_requests import (
    AuthorizationAnswer,
    LocationRequest,
    PartitionAnswer,
    ReadablePartition,
    TopicIdIndex,
    authorization_request,
    location_request,
    may_ask,
)

FIRST, SECOND = TopicIdIndex(TOPIC_ID, 0), TopicIdIndex(TOPIC_ID, 1)


def asked(content: bytes) -> LocationRequest:
    request = location_request(request_head(content), content)
    assert request is not None
    return request


def test_what_is_wanted_is_read() -> None:
    request = asked(
        location_fetch({0: (5, 50), 1: (7, 3)}, local_segments_wanted=True, remote_log_segment_part_bytes=64)
    )
    assert request.wanted == {FIRST: (5, 50), SECOND: (7, 7)}
    assert request.committed and request.local_too and not request.offsets_only
    assert (request.max_segments, request.part_bytes) == (100, 64)


@pytest.mark.parametrize(
    "others",
    [
        {"remote_log_segment_location_requested": False},
        {"supported_storage_format_versions": ["Other"]},
        {"supported_storage_format_versions": []},
        {"session_epoch": 0},
    ],
)
def test_without_a_wish_a_common_format_or_with_a_session_it_is_a_plain_fetch(others: dict[str, Any]) -> None:
    content = location_fetch({0: (0, 1)}, **others)
    assert location_request(request_head(content), content) is None


@pytest.mark.parametrize("version", [4, 12, 16, 17])
def test_only_versions_with_topic_ids_that_were_offered_may_ask(version: int) -> None:
    head = request_head(location_fetch({0: (0, 1)})[:2] + bytes([0, version]) + bytes(4))
    assert not may_ask(head, b"\xe0\x09\x01\x01")
    content = location_fetch({0: (0, 1)})
    assert may_ask(request_head(content), content)
    assert not may_ask(request_head(content), location_fetch({}, remote_log_segment_location_requested=False))


def test_authorization_is_asked_at_the_log_s_end_for_next_to_nothing() -> None:
    content = location_fetch({0: (5, 50), 1: (7, 70)}, correlation_id=42)
    sent = authorization_request(asked(content), {FIRST: 1000})
    assert request_head(sent) == request_head(content)
    message = read(FetchRequest, sent, 15)
    assert not may_ask(request_head(sent), sent) and message.isolation_level == 1
    assert (message.max_wait_ms, message.min_bytes, message.max_bytes) == (0, 0, 1)
    first, second = message.topics[0].partitions
    assert (first.fetch_offset, first.current_leader_epoch, first.partition_max_bytes) == (1000, 3, 1)
    assert second.fetch_offset == 7, "a partition that is not known is asked for as the client did"


def answered(request: LocationRequest, answers: dict[int, dict[str, Any]], **others: Any) -> AuthorizationAnswer:
    return AuthorizationAnswer(request, fetch_response(answers, **others))


def test_only_partitions_that_the_broker_lets_the_client_read_are_readable() -> None:
    request = asked(location_fetch({0: (5, 50), 1: (20, 70)}))
    authorized = answered(request, {0: {"error_code": 29}, 1: {}, 2: {}})
    assert authorized.readable() == [ReadablePartition(SECOND, 20, 70, 900)]
    assert answered(request, {0: {}}, error_code=29).readable() == []


def test_nothing_below_the_log_start_and_nothing_beyond_the_end_that_the_client_may_see() -> None:
    uncommitted = asked(location_fetch({0: (5, 8)}, isolation_level=0))
    assert answered(uncommitted, {0: {}}).readable() == [ReadablePartition(FIRST, 10, 10, 1000)]


def test_a_log_end_that_moved_back_is_an_error_that_passes() -> None:
    authorized = answered(asked(location_fetch({0: (5, 50)})), {0: {"error_code": 1}})
    assert authorized.readable() == []
    assert read(FetchResponse, authorized.encode({}), 15).responses[0].partitions[0].error_code == 78


def test_the_answer_has_locations_and_no_records() -> None:
    authorized = answered(asked(location_fetch({0: (20, 50), 1: (20, 50)})), {0: {}, 1: {}}, correlation_id=42)
    content = authorized.encode({FIRST: PartitionAnswer(b"\x01", 50)})
    message = read(FetchResponse, content, 15)
    assert message.header.correlation_id == 42
    assert [each.records for each in message.responses[0].partitions] == [None, None]
    first, second = LocationFetchResponse.decode_body(Reader(content, 5)).responses[0].partitions
    assert (first.remote_log_segments, first.located_end_offset) == (b"\x01", 50)
    assert (first.high_watermark, first.last_stable_offset, first.log_start_offset) == (1000, 900, 10)
    assert (second.remote_log_segments, second.located_end_offset) == (b"", -1)


def test_a_request_cut_anywhere_is_a_frame_error_or_no_wish() -> None:
    content = location_fetch({0: (5, 50)})
    for end in range(8, len(content)):
        try:
            assert location_request(request_head(content), content[:end]) is None
        except FrameError:
            pass


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_frame_error(data: bytes) -> None:
    content = location_fetch({0: (5, 50)})[:8] + data
    try:
        location_request(request_head(content), content)
    except FrameError:
        pass


def test_a_number_of_a_million_bytes_takes_no_time() -> None:
    content = location_fetch({})
    header = body_of_flexible(content).position
    with pytest.raises(FrameError):
        location_request(request_head(content), content[:header] + bytes(21) + b"\xff" * (4 << 20))

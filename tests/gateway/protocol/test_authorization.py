from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from tests.gateway.requests import TOPIC_ID, asked, fetch_response, location_fetch, read, response
from tiered_stream.broker.wire.location_messages import LocationFetchResponse
from tiered_stream.gateway.protocol.authorization import (
    AuthorizationResponse,
    PartitionResponse,
    ReadablePartition,
    authorization_request,
)
from tiered_stream.gateway.protocol.frames import request_head
from tiered_stream.gateway.protocol.location_requests import LocationRequest, TopicIdPartition, possibly_asks
from tiered_stream.records.flexible_versions import Reader

FIRST, SECOND = TopicIdPartition(TOPIC_ID, 0), TopicIdPartition(TOPIC_ID, 1)


def test_authorization_is_asked_at_the_log_s_end_for_next_to_nothing() -> None:
    content = location_fetch({0: (5, 50), 1: (7, 70)}, correlation_id=42)
    sent = authorization_request(asked(content), {FIRST: 1000})
    assert request_head(sent) == request_head(content)
    message = read(FetchRequest, sent, 15)
    assert not possibly_asks(request_head(sent), sent) and message.isolation_level == 1
    assert (message.max_wait_ms, message.min_bytes, message.max_bytes) == (0, 0, 1)
    first, second = message.topics[0].partitions
    assert (first.fetch_offset, first.current_leader_epoch, first.partition_max_bytes) == (1000, 3, 1)
    assert second.fetch_offset == 7, "a partition that is not known is asked for as the client did"


def answered(request: LocationRequest, answers: dict[int, dict[str, Any]], **others: Any) -> AuthorizationResponse:
    return AuthorizationResponse(request, fetch_response(answers, **others))


def test_only_partitions_that_the_broker_lets_the_client_read_are_readable() -> None:
    request = asked(location_fetch({0: (5, 50), 1: (20, 70)}))
    authorized = answered(request, {0: {"error_code": 29}, 1: {}, 2: {}})
    assert authorized.readable() == [ReadablePartition(SECOND, 20, 70, 900)]
    assert answered(request, {0: {}}, error_code=29).readable() == []


QUOTA = FetchResponse(throttle_time_ms=500, error_code=0, session_id=0, responses=[])


@pytest.mark.parametrize(
    ("content", "results"),
    [
        (fetch_response({0: {}, 1: {}}), {"answered": 1, "failed": 1}),
        (fetch_response({0: {}, 1: {"error_code": 29}}), {"answered": 1, "refused": 1}),
        (response(QUOTA, 15), {"throttled": 2}),
        (fetch_response({}, error_code=89), {"throttled": 2}),
        (fetch_response({}), {"failed": 2}),
        (fetch_response({}, error_code=7), {"failed": 2}),
    ],
)
def test_a_broker_that_throttles_or_fails_has_refused_nothing(content: bytes, results: dict[str, int]) -> None:
    authorized = AuthorizationResponse(asked(location_fetch({0: (20, 50), 1: (20, 50)})), content)
    found = [each.partition for each in authorized.readable()][:1]
    assert authorized.results(found) == results


def test_partitions_that_are_not_located_for_want_of_read_are_counted_by_what_the_broker_answers() -> None:
    request = asked(location_fetch({0: (20, 50), 1: (20, 50)}))
    known = replace(request, ranges={FIRST: request.ranges[FIRST]}, requested=request.ranges.keys())
    assert answered(known, {0: {}, 1: {"error_code": 29}}).results([FIRST]) == {"answered": 1, "refused": 1}
    assert AuthorizationResponse(known, response(QUOTA, 15)).results([]) == {"throttled": 2}


def test_nothing_below_the_log_start_and_nothing_beyond_the_end_that_the_client_may_see() -> None:
    uncommitted = asked(location_fetch({0: (5, 8)}, isolation_level=0))
    assert answered(uncommitted, {0: {}}).readable() == [ReadablePartition(FIRST, 10, 10, 1000)]


def test_a_log_end_that_moved_back_is_an_error_that_passes() -> None:
    authorized = answered(asked(location_fetch({0: (5, 50)})), {0: {"error_code": 1}})
    assert authorized.readable() == []
    assert read(FetchResponse, b"".join(authorized.encode({})), 15).responses[0].partitions[0].error_code == 78


def test_an_offset_that_no_log_has_is_out_of_range_as_at_a_broker() -> None:
    """It is asked for as the client does, so that the broker's error is true of it, and does not pass."""
    content = location_fetch({0: (-5, 50)})
    sent = read(FetchRequest, authorization_request(asked(content), {}), 15)
    assert sent.topics[0].partitions[0].fetch_offset == -5
    authorized = answered(asked(content), {0: {"error_code": 1}})
    assert read(FetchResponse, b"".join(authorized.encode({})), 15).responses[0].partitions[0].error_code == 1


def test_the_answer_has_locations_and_no_records() -> None:
    authorized = answered(asked(location_fetch({0: (20, 50), 1: (20, 50)})), {0: {}, 1: {}}, correlation_id=42)
    content = b"".join(authorized.encode({FIRST: PartitionResponse(b"\x01", 50)}))
    message = read(FetchResponse, content, 15)
    assert message.header.correlation_id == 42
    assert [each.records for each in message.responses[0].partitions] == [None, None]
    first, second = LocationFetchResponse.decode_body(Reader(content, 5)).responses[0].partitions
    assert (first.remote_log_segments, first.located_end_offset) == (b"\x01", 50)
    assert (first.high_watermark, first.last_stable_offset, first.log_start_offset) == (1000, 900, 10)
    assert (second.remote_log_segments, second.located_end_offset) == (b"", -1)

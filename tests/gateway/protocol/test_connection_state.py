from __future__ import annotations

import pytest

from tests.gateway.requests import TOPIC_ID, asked, fetch_response, location_fetch, metadata_request, produce_request
from tiered_stream.broker.wire.kafka_python import ApiKey
from tiered_stream.gateway.protocol.api_versions import API_VERSIONS, FETCH
from tiered_stream.gateway.protocol.connection_state import ConnectionState, Handling
from tiered_stream.gateway.protocol.frames import FrameError, RequestHead, request_head
from tiered_stream.gateway.protocol.location_requests import MAX_REQUEST_BYTES, location_request, possibly_asks


def head(correlation_id: int) -> bytes:
    return correlation_id.to_bytes(4, "big")


def sent(talk: ConnectionState, content: bytes) -> int:
    """The correlation id with which a request goes on; the rest of it goes on as it is."""
    passed = talk.forward(request_head(content), content)
    assert passed[:4] + passed[8:] == content[:4] + content[8:]
    return request_head(passed).correlation_id


def test_responses_belong_to_the_requests_in_their_order() -> None:
    talk = ConnectionState()
    first, second = (sent(talk, metadata_request(number)[:8]) for number in (7, 8))
    assert talk.match_response(head(first)).handling is Handling.REWRITE
    assert talk.in_flight
    talk.complete()
    assert talk.match_response(head(second)).head.correlation_id == 8
    talk.complete()
    assert not talk.in_flight


@pytest.mark.parametrize("given", [(7, 8), (7, 7), (0, 0)])
def test_a_response_out_of_order_ends_the_connection_whatever_ids_the_client_gives(given: tuple[int, int]) -> None:
    talk = ConnectionState()
    first, second = (sent(talk, metadata_request(number)[:8]) for number in given)
    for other in {second, second + 1, 0} - {first}:
        with pytest.raises(FrameError, match="not asked next"):
            talk.match_response(head(other))


def test_no_id_is_used_twice() -> None:
    talk = ConnectionState()
    assert len({sent(talk, metadata_request(5)[:8]) for _ in range(1000)}) == 1000


def test_a_response_to_nothing_ends_the_connection() -> None:
    with pytest.raises(FrameError):
        ConnectionState().match_response(head(1))


def test_other_requests_are_passed_on_unread() -> None:
    talk = ConnectionState()
    number = sent(talk, bytes.fromhex("0024 0002 00000005") + b"token")
    assert talk.match_response(head(number)).handling is Handling.PASS


def test_a_fetch_that_asks_for_locations_waits_for_what_is_found_out() -> None:
    talk = ConnectionState()
    content = location_fetch({0: (0, 9)}, correlation_id=3)
    assert possibly_asks(request_head(content), content)
    wanted = location_request(request_head(content), content)
    assert wanted is not None
    passed = talk.authorize(wanted, content)
    pending = talk.match_response(passed[4:8])
    assert pending.head.correlation_id == 3
    assert pending.handling is Handling.LOCATE and pending.locations is wanted


def test_a_location_request_may_go_on_as_the_plain_fetch_that_it_is() -> None:
    talk = ConnectionState()
    content = location_fetch({0: (0, 9)})
    passed = talk.forward(RequestHead(1, 15, 3), content)
    assert passed[:4] + passed[8:] == content[:4] + content[8:]
    assert talk.match_response(passed[4:8]).handling is Handling.PASS


@pytest.mark.parametrize(
    ("api_key", "size", "needed"),
    [
        (FETCH, 5_000, 5_000),
        (FETCH, MAX_REQUEST_BYTES + 1, 8),
        (API_VERSIONS, 300, 300),
        (API_VERSIONS, 90 << 20, 8),
        (ApiKey.Metadata, 90 << 20, 8),
        (36, 90 << 20, 8),
    ],
)
def test_no_more_of_a_request_is_read_than_must_be(api_key: int, size: int, needed: int) -> None:
    assert ConnectionState.bytes_needed(RequestHead(api_key, 4, 1), size) == needed


def test_logins_without_kafka_s_headers_are_refused() -> None:
    with pytest.raises(FrameError, match="served from version"):
        ConnectionState.bytes_needed(request_head(bytes.fromhex("0011 0000 00000001")), 10)


@pytest.mark.parametrize("version", [-1, 0, 3, 9, 12])
def test_a_produce_is_refused_before_more_of_it_is_read_than_its_head(version: int) -> None:
    heads = RequestHead(0, version, 1), request_head(produce_request(-1, max(3, version))[:8])
    for head in heads:
        with pytest.raises(FrameError, match="Produce .* refused"):
            ConnectionState.bytes_needed(head, 90 << 20)


def test_topics_are_looked_at_until_the_broker_has_shown_that_the_client_may_read_them() -> None:
    talk = ConnectionState()
    content = location_fetch({0: (0, 9)})
    wanted = asked(content)
    assert talk.topics_to_probe(wanted) == {TOPIC_ID} and not talk.may_read(wanted)
    probe = talk.probe_topics(wanted)
    assert talk.match_response(probe[4:8]).handling is Handling.PROBE
    for refused in ({0: {"error_code": 29}}, {0: {"error_code": 100}}):
        talk.record_topics(fetch_response(refused))
        assert talk.topics_to_probe(wanted)
    talk.record_topics(fetch_response({0: {"error_code": 1}}, error_code=34))  # in the midst of a login
    assert talk.topics_to_probe(wanted)
    talk.record_topics(fetch_response({0: {"error_code": 1}}))
    assert not talk.topics_to_probe(wanted) and talk.may_read(wanted) == list(wanted.ranges)

from __future__ import annotations

import pytest

from tests.gateway.requests import location_fetch, metadata_request, produce_request
from tiered_stream.gateway import rewrite
from tiered_stream.gateway.connection_state import ConnectionState, Handling
from tiered_stream.gateway.frames import FrameError, RequestHead, request_head
from tiered_stream.gateway.location_requests import LARGEST_REQUEST, location_request


def head(correlation_id: int) -> bytes:
    return correlation_id.to_bytes(4, "big")


def test_responses_belong_to_the_requests_in_their_order() -> None:
    talk = ConnectionState()
    for number in (7, 8):
        content = metadata_request(number)
        assert talk.request(content[:8]) == content[:8]
    assert talk.response(head(7)).handling is Handling.REWRITE
    assert not talk.idle
    talk.answered()
    assert talk.response(head(8)).head.correlation_id == 8
    talk.answered()
    assert talk.idle


@pytest.mark.parametrize("correlation_id", [8, 9])
def test_a_response_out_of_order_ends_the_connection(correlation_id: int) -> None:
    talk = ConnectionState()
    talk.request(metadata_request(7)[:8])
    talk.request(metadata_request(8)[:8])
    with pytest.raises(FrameError, match="not asked next"):
        talk.response(head(correlation_id))


def test_a_response_to_nothing_ends_the_connection() -> None:
    with pytest.raises(FrameError):
        ConnectionState().response(head(1))


@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_produce_without_acks_waits_for_no_response(version: int) -> None:
    talk = ConnectionState()
    silent = produce_request(0, version)
    assert talk.request(silent) == silent
    assert talk.idle
    talk.request(produce_request(-1, version, correlation_id=2))
    assert talk.response(head(2)).handling is (Handling.REWRITE if version >= 10 else Handling.PASS)


def test_other_requests_are_passed_on_unread() -> None:
    talk = ConnectionState()
    talk.request(request_bytes := bytes.fromhex("0024 0002 00000005") + b"token")
    assert talk.response(head(5)).handling is Handling.PASS
    assert request_bytes


def test_a_fetch_that_asks_for_locations_waits_for_what_is_found_out() -> None:
    talk = ConnectionState()
    content = location_fetch({0: (0, 9)}, correlation_id=3)
    assert talk.request(content) is None
    wanted = location_request(request_head(content), content)
    talk.locate(request_head(content), wanted)
    pending = talk.response(head(3))
    assert pending.handling is Handling.LOCATE and pending.locations is wanted


def test_a_location_request_may_go_on_as_the_plain_fetch_that_it_is() -> None:
    talk = ConnectionState()
    talk.locate(RequestHead(1, 15, 3), None)
    assert talk.response(head(3)).handling is Handling.PASS


@pytest.mark.parametrize(
    ("api_key", "size", "needed"),
    [
        (rewrite.FETCH, 5_000, 5_000),
        (rewrite.FETCH, LARGEST_REQUEST + 1, 8),
        (rewrite.PRODUCE, 300, 300),
        (rewrite.PRODUCE, 90 << 20, 68 << 10),
        (rewrite.METADATA, 90 << 20, 8),
        (36, 90 << 20, 8),
    ],
)
def test_no_more_of_a_request_is_read_than_must_be(api_key: int, size: int, needed: int) -> None:
    assert ConnectionState.bytes_needed(RequestHead(api_key, 9, 1), size) == needed


def test_logins_without_kafka_s_headers_are_refused() -> None:
    with pytest.raises(FrameError, match="SASL login"):
        ConnectionState().request(bytes.fromhex("0011 0000 00000001 ffff"))

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.requests import TOPIC_ID, asked, location_fetch
from tiered_stream.gateway.protocol.frames import FrameError, body_of_flexible, request_head
from tiered_stream.gateway.protocol.location_requests import TopicIdPartition, location_request, possibly_asks

FIRST, SECOND = TopicIdPartition(TOPIC_ID, 0), TopicIdPartition(TOPIC_ID, 1)


def test_what_is_wanted_is_read() -> None:
    request = asked(
        location_fetch({0: (5, 50), 1: (7, 3)}, local_segments_wanted=True, remote_log_segment_part_bytes=1 << 20)
    )
    assert request.ranges == {FIRST: (5, 50), SECOND: (7, 7)}
    assert request.committed and request.message.local_segments_wanted and not request.message.offsets_only
    assert (request.max_segments, request.part_bytes) == (100, 1 << 20)


@pytest.mark.parametrize(
    ("given", "taken"), [(-5, 0), (0, 0), (1, 64 << 10), (1 << 26, 1 << 26), ((1 << 63) - 1, 1 << 31)]
)
def test_parts_are_as_large_as_they_may_be(given: int, taken: int) -> None:
    assert asked(location_fetch({0: (5, 50)}, remote_log_segment_part_bytes=given)).part_bytes == taken


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
    assert not possibly_asks(head, b"\xe0\x09\x01\x01")
    content = location_fetch({0: (0, 1)})
    assert possibly_asks(request_head(content), content)
    assert not possibly_asks(request_head(content), location_fetch({}, remote_log_segment_location_requested=False))


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

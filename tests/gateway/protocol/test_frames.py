from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.requests import metadata_request
from tiered_stream.gateway.protocol.frames import (
    FrameError,
    RequestHead,
    correlation_id,
    frame,
    frame_size,
    oldest_version,
    request_head,
)


def test_a_frame_has_its_size_before_it() -> None:
    assert frame(b"content") == b"\0\0\0\7content"
    assert frame_size(b"\0\0\0\7", max_size=7) == 7


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x00", b"GET ", b"\xff\xff\xff\xff", b"\0\0\0\3", b"\0\0\0\0"])
def test_what_is_no_size_is_refused(first: bytes) -> None:
    with pytest.raises(FrameError, match="security protocol"):
        frame_size(first, max_size=100 << 20)


def test_a_request_is_known_by_its_head() -> None:
    content = metadata_request(correlation_id=77, version=12)
    assert request_head(content) == RequestHead(3, 12, 77)
    assert oldest_version(content) == b"\0\3\0\0" + content[4:8] + b"\0\6client"
    assert correlation_id(content[4:]) == 77


@given(st.binary(max_size=200))
def test_any_bytes_have_a_client_id_or_a_frame_error(content: bytes) -> None:
    for look in (lambda: oldest_version(content), lambda: request_head(content)):
        try:
            look()
        except FrameError:
            pass

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.requests import metadata_request, produce_request
from tiered_stream.gateway.frames import (
    FrameError,
    RequestHead,
    client_id,
    correlation_id,
    frame,
    frame_size,
    produce_acks,
    request_head,
)


def test_a_frame_has_its_size_before_it() -> None:
    assert frame(b"content") == b"\0\0\0\7content"
    assert frame_size(b"\0\0\0\7", largest=7) == 7


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x00", b"GET ", b"\xff\xff\xff\xff", b"\0\0\0\3", b"\0\0\0\0"])
def test_what_is_no_size_is_refused(first: bytes) -> None:
    with pytest.raises(FrameError, match="security protocol"):
        frame_size(first, largest=100 << 20)


def test_a_request_is_known_by_its_head() -> None:
    content = metadata_request(correlation_id=77, version=12)
    assert request_head(content) == RequestHead(3, 12, 77)
    assert client_id(content) == "client"
    assert correlation_id(content[4:]) == 77


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize("transactional_id", [None, "", "t" * 200])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acks_are_found_in_every_version_and_nowhere_when_cut_off(
    version: int, transactional_id: str | None, acks: int
) -> None:
    content = produce_request(acks, version, transactional_id)
    flexible = version >= 9
    assert produce_acks(content, flexible) == acks
    end = next(end for end in range(8, len(content) + 1) if _found(content[:end], flexible))
    for cut in range(end):
        assert not _found(content[:cut], flexible)


def _found(content: bytes, flexible: bool) -> bool:
    try:
        produce_acks(content, flexible)
    except FrameError:
        return False
    return True


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_have_acks_or_a_frame_error(content: bytes, flexible: bool) -> None:
    for look in (lambda: produce_acks(content, flexible), lambda: client_id(content), lambda: request_head(content)):
        try:
            look()
        except FrameError:
            pass

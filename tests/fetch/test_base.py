"""How a byte range is cut into requests."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.fetch.base import cut
from tiered_stream.segments import ByteRange

WANTED = st.builds(lambda start, size: ByteRange(start, start + size), st.integers(0, 10_000), st.integers(1, 100_000))
SIZES = st.integers(1, 5_000)


@given(wanted=WANTED, request_bytes=SIZES, chunk_size=SIZES)
def test_requests_follow_each_other_and_meet_at_chunk_ends(
    wanted: ByteRange, request_bytes: int, chunk_size: int
) -> None:
    requests = cut(wanted, request_bytes, chunk_size)
    assert (requests[0].start, requests[-1].end) == (wanted.start, wanted.end)
    assert all(one.end == other.start and one.end % chunk_size == 0 for one, other in pairwise(requests))
    assert max(map(len, requests)) < 2.5 * request_bytes + chunk_size


@given(wanted=WANTED, request_bytes=SIZES)
def test_without_chunks_each_has_between_the_request_size_and_twice_that(wanted: ByteRange, request_bytes: int) -> None:
    sizes = [len(each) for each in cut(wanted, request_bytes)]
    assert max(sizes) <= 2 * request_bytes
    assert min(sizes) >= min(len(wanted), request_bytes) - len(sizes)


def test_nothing_is_asked_for_nothing() -> None:
    assert cut(ByteRange(7, 7), 8) == []

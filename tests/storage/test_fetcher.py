"""How a byte range is cut into ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.model import ByteRange
from tiered_stream.storage.fetcher import cut

WANTED = st.builds(lambda start, size: ByteRange(start, start + size), st.integers(0, 10_000), st.integers(1, 100_000))
SIZES = st.integers(1, 5_000)


@given(wanted=WANTED, least=SIZES, chunk_size=SIZES)
def test_ranges_follow_each_other_and_meet_at_chunk_ends(wanted: ByteRange, least: int, chunk_size: int) -> None:
    ranges = cut(wanted, least, chunk_size)
    assert (ranges[0].start, ranges[-1].end) == (wanted.start, wanted.end)
    assert all(one.end == other.start and one.end % chunk_size == 0 for one, other in pairwise(ranges))


@given(wanted=WANTED, least=SIZES)
def test_without_chunks_each_has_the_wanted_size_to_twice_that(wanted: ByteRange, least: int) -> None:
    sizes = [len(each) for each in cut(wanted, least)]
    assert max(sizes) < 2 * least and min(sizes) >= min(len(wanted), least)

"""Which segment counts for which offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.locate.segments import segment
from tiered_stream.broker.leader_epochs import END_OF_LOG
from tiered_stream.locate.visible_segments import lineage_of, visible_segments
from tiered_stream.model import LeaderEpoch, RemoteLogSegment

ONE_EPOCH = {0: END_OF_LOG}


@pytest.mark.parametrize(
    ("segments", "lineage", "log_start", "visible"),
    [
        ([segment(2, 100, 150), segment(1, 0, 100)], ONE_EPOCH, 0, [(1, 0, 100), (2, 100, 150)]),
        ([segment(1, 0, 10), segment(2, 20, 30)], ONE_EPOCH, 0, [(1, 0, 10), (2, 20, 30)]),
        ([segment(1, 0, 100), segment(2, 100, 150)], ONE_EPOCH, 120, [(2, 120, 150)]),
        ([segment(1, 0, 100), segment(2, 0, 200), segment(3, 50, 150)], ONE_EPOCH, 0, [(2, 0, 200)]),
        ([segment(1, 10, 91), segment(2, 5, 101), segment(3, 101, 201)], ONE_EPOCH, 0, [(2, 5, 101), (3, 101, 201)]),
        (
            [segment(1, 0, 100, epochs=((0, 0), (1, 60))), segment(2, 50, 120, epochs=((0, 50), (2, 70)))],
            {0: 70, 2: END_OF_LOG}, 0, [(1, 0, 60), (2, 60, 120)],
        ),
        ([segment(1, 0, 100)], {0: 80, 1: END_OF_LOG}, 0, [(1, 0, 80)]),
        (
            [segment(1, 0, 100, epochs=((0, 0), (1, 40), (2, 60)))], {0: 50, 2: END_OF_LOG}, 0,
            [(1, 0, 40), (1, 60, 100)],
        ),
    ],
    ids=[
        "segments that follow each other", "a gap", "nothing below the log start", "a segment inside another one",
        "two leaders that rolled elsewhere", "an epoch that lost an unclean election", "beyond the end of an epoch",
        "a lost epoch in the middle of a segment",
    ],
)  # fmt: skip
def test_segments_count_for_the_offsets_that_they_have_in_the_lineage(
    segments: list[RemoteLogSegment], lineage: dict[int, int], log_start: int, visible: list[tuple[int, int, int]]
) -> None:
    found = visible_segments(segments, lineage, log_start)
    assert [(piece.segment.segment_id.int, piece.offsets.start, piece.offsets.end) for piece in found] == visible


def test_a_lineage_ends_each_epoch_where_the_next_begins() -> None:
    assert lineage_of([LeaderEpoch(0, 0), LeaderEpoch(2, 90), LeaderEpoch(4, 150)]) == {0: 90, 2: 150, 4: END_OF_LOG}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[RemoteLogSegment], dict[int, int], int]:
    """Segments, each with its own idea of the epochs, and a lineage that agrees with some of them."""
    cuts = sorted(draw(st.sets(st.integers(1, 39), max_size=4)))
    lineage = {epoch: end for epoch, end in enumerate([*cuts, END_OF_LOG]) if draw(st.integers(0, 4))}
    segments = []
    for number in range(draw(st.integers(0, 8))):
        base = draw(st.integers(0, 38))
        end = draw(st.integers(base + 1, 40))
        starts = sorted(draw(st.sets(st.integers(base, end - 1), min_size=1, max_size=3)))
        epochs = sorted(draw(st.sets(st.integers(0, 5), min_size=len(starts), max_size=len(starts))))
        segments.append(segment(number + 1, base, end, tuple(zip(epochs, starts, strict=True))))
    return segments, lineage, draw(st.integers(0, 20))


def agrees(candidate: RemoteLogSegment, offset: int, lineage: dict[int, int]) -> bool:
    if not candidate.base_offset <= offset <= candidate.end_offset:
        return False
    epochs = [entry.epoch for entry in candidate.leader_epochs if entry.start_offset <= offset]
    return bool(epochs) and offset < lineage.get(epochs[-1], 0)


@given(histories(), st.randoms())
def test_an_offset_is_visible_exactly_when_some_segment_agrees_with_the_lineage_there(
    history: tuple[list[RemoteLogSegment], dict[int, int], int],
    random: st.randoms,  # type: ignore[valid-type]
) -> None:
    segments, lineage, log_start = history
    visible = visible_segments(segments, lineage, log_start)
    seen = {}
    for piece in visible:
        for offset in range(piece.offsets.start, piece.offsets.end):
            assert offset not in seen
            assert agrees(piece.segment, offset, lineage)
            seen[offset] = piece.segment
    assert set(seen) == {
        offset for offset in range(log_start, 41) if any(agrees(each, offset, lineage) for each in segments)
    }
    assert [piece.offsets.start for piece in visible] == sorted(piece.offsets.start for piece in visible)
    assert all(len(piece.offsets) for piece in visible)
    shuffled = segments[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert visible_segments(shuffled, lineage, log_start) == visible

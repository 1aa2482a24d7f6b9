"""Which segment counts for which offsets."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.locate.segments import segment
from tiered_stream.broker.leader_epochs import END_OF_LOG
from tiered_stream.locate.visible_segments import VisibleSegment, lineage_of, visible_segments
from tiered_stream.model import LeaderEpoch, RemoteLogSegment

ONE_EPOCH = {0: END_OF_LOG}


def ranges(visible: Sequence[VisibleSegment]) -> list[tuple[int, int, int]]:
    """(segment number, start, exclusive end)."""
    return [(piece.segment.segment_id.int, piece.offsets.start, piece.offsets.end) for piece in visible]


def test_consecutive_segments_count_whole() -> None:
    visible = visible_segments([segment(2, 100, 150), segment(1, 0, 100)], ONE_EPOCH, 0)
    assert ranges(visible) == [(1, 0, 100), (2, 100, 150)]


def test_nothing_below_the_log_start_counts() -> None:
    visible = visible_segments([segment(1, 0, 100), segment(2, 100, 150)], ONE_EPOCH, 120)
    assert ranges(visible) == [(2, 120, 150)]


def test_a_segment_inside_another_is_passed_over() -> None:
    visible = visible_segments([segment(1, 0, 100), segment(2, 0, 200), segment(3, 50, 150)], ONE_EPOCH, 0)
    assert ranges(visible) == [(2, 0, 200)]


def test_segments_of_two_leaders_that_rolled_elsewhere_are_made_disjoint() -> None:
    visible = visible_segments([segment(1, 10, 91), segment(2, 5, 101), segment(3, 101, 201)], ONE_EPOCH, 0)
    assert ranges(visible) == [(2, 5, 101), (3, 101, 201)]


def test_records_of_an_epoch_that_lost_an_unclean_election_do_not_count() -> None:
    lost = segment(1, 0, 100, epochs=((0, 0), (1, 60)))
    kept = segment(2, 50, 120, epochs=((0, 50), (2, 70)))
    visible = visible_segments([lost, kept], {0: 70, 2: END_OF_LOG}, 0)
    assert ranges(visible) == [(1, 0, 60), (2, 60, 120)]


def test_offsets_beyond_the_end_of_their_epoch_do_not_count() -> None:
    visible = visible_segments([segment(1, 0, 100)], {0: 80, 1: END_OF_LOG}, 0)
    assert ranges(visible) == [(1, 0, 80)]


def test_a_segment_with_a_lost_epoch_in_its_middle_counts_in_two_pieces() -> None:
    odd = segment(1, 0, 100, epochs=((0, 0), (1, 40), (2, 60)))
    assert ranges(visible_segments([odd], {0: 50, 2: END_OF_LOG}, 0)) == [(1, 0, 40), (1, 60, 100)]


def test_a_gap_stays_a_gap() -> None:
    visible = visible_segments([segment(1, 0, 10), segment(2, 20, 30)], ONE_EPOCH, 0)
    assert ranges(visible) == [(1, 0, 10), (2, 20, 30)]


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

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.made_up_tier import MadeUpTier
from tiered_stream.model import TopicPartition
from tiered_stream.plan.batch_limits import Backlog, ends_at_segments, proportional_ends

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
Offsets = dict[TopicPartition, int]


@pytest.mark.contract("1.8 shares", "2.27")
def test_lags_of_101_11_and_1_share_a_limit_of_10_as_8_1_and_1_then_as_9_and_1() -> None:
    latest = {T0: 101, T1: 11, T2: 1}
    first = proportional_ends({T0: 0, T1: 0, T2: 0}, latest, 10)
    assert first == {T0: 8, T1: 1, T2: 1}
    assert proportional_ends(first, latest, 10) == {T0: 17, T1: 2, T2: 1}


@pytest.mark.contract("1.8 shares", "2.26")
@pytest.mark.parametrize(
    ("start", "latest", "limit", "ends"),
    [
        ({T0: 0, T1: 0}, {T0: 5, T1: 5}, 1, {T0: 1, T1: 1}),
        ({T0: 0, T1: 0}, {T0: 15, T1: 0}, 5, {T0: 5, T1: 0}),
        ({T0: 3}, {T0: 5}, 2**63 - 1, {T0: 5}),
        ({T0: 0, T1: 0}, {T0: 2**61, T1: 2**61}, 2**63 - 1, {T0: 2**61, T1: 2**61}),
        ({T0: 5}, {T0: 5}, 1, {T0: 5}),
        ({T0: 9, T1: 0}, {T0: 5, T1: 4}, 2, {T0: 5, T1: 2}),
        ({T0: 0}, {T0: 5, T1: 7}, 3, {T0: 3, T1: 7}),
        ({}, {}, 3, {}),
    ],
    ids=[
        "one over two lagging partitions gives two",
        "an empty partition takes no share",
        "the largest limit does not overflow",
        "nor do large lags",
        "nothing to read",
        "an end that went back is taken as it is",
        "a partition of unknown start ends at its end",
        "no partition",
    ],
)
def test_a_limit_is_shared_out_in_proportion(start: Offsets, latest: Offsets, limit: int, ends: Offsets) -> None:
    assert proportional_ends(start, latest, limit) == ends


@pytest.mark.contract("1.8 shares")
@given(
    st.dictionaries(st.sampled_from([T0, T1, T2]), st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1),
    st.integers(1, 2**63 - 1),
)
def test_every_lagging_partition_gets_on_and_none_goes_beyond_its_end(
    partitions: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    start = {partition: first for partition, (first, _) in partitions.items()}
    latest = {partition: first + lag for partition, (first, lag) in partitions.items()}
    ends = proportional_ends(start, latest, limit)
    for partition, end in ends.items():
        assert start[partition] <= end <= latest[partition]
        assert end > start[partition] or latest[partition] == start[partition]
    assert sum(ends.values()) - sum(start.values()) <= limit + len(ends)


@pytest.mark.contract("1.8 where a share ends")
@pytest.mark.parametrize(
    ("start", "latest", "segments", "ends", "aligned"),
    [
        ({T0: 0, T1: 0}, {T0: 200, T1: 200}, {T0: [30, 60, 90]}, {T0: 100, T1: 100}, {T0: 90, T1: 100}),
        ({T0: 0}, {T0: 200}, {T0: [30, 90]}, {T0: 90}, {T0: 90}),
        (
            {T0: 0, T1: 0, T2: 4}, {T0: 8, T1: 9, T2: 2}, {T0: [3], T1: [3], T2: [1]}, {T0: 5, T1: 9, T2: 2},
            {T0: 3, T1: 9, T2: 2},
        ),
        ({T0: 5}, {T0: 8, T1: 9}, {T0: [3, 5], T1: [2]}, {T0: 5, T1: 3}, {T0: 5, T1: 3}),
        ({T0: 0, T1: 0}, {T0: 200, T1: 200}, {T0: [30, 60, 90], T1: [30]}, {T0: 70, T1: 20}, {T0: 60, T1: 20}),
    ],
    ids=[
        "to the last segment end in its share", "not from a segment end", "only shares that the limit cut short",
        "not an empty share, nor one without a start", "never to a later segment end",
    ],
)  # fmt: skip
def test_an_end_moves_back_to_a_segment_end(
    start: Offsets, latest: Offsets, segments: dict[TopicPartition, list[int]], ends: Offsets, aligned: Offsets
) -> None:
    backlog = Backlog(start, latest, MadeUpTier.ending_at(segments))
    assert ends_at_segments(backlog, ends) == aligned

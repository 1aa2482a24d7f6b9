from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.delta.landing.data_files_readers import FILES, SMALLEST_TASK_BYTES, tasks_of
from tiered_stream.model import ByteRange, OffsetRange, RemoteLogSegment, SegmentLocation, Split, TopicPartition

MIB = 1 << 20


def tiered(size: int, partition: int = 0) -> Split:
    offsets, where = OffsetRange(0, 10), TopicPartition("t", partition)
    segment = RemoteLogSegment(where, UUID(int=1), UUID(int=2), 0, 9, size)
    return Split(where, offsets, (SegmentLocation(segment, offsets, ByteRange(0, size)),))


def from_broker(records: int) -> Split:
    return Split(TopicPartition("t", 0), OffsetRange(0, records))


@pytest.mark.parametrize(
    ("splits", "parallelism", "counts"),
    [
        ([tiered(128 * MIB)] * 5, 5, [1] * 5),
        ([tiered(128 * MIB)] * 8, 2, [4] * 2),  # a task writes several files if there is enough work
        ([tiered(65 * MIB)] * 17, 2, [8, 9]),  # a little more than the cores' shares makes no further task
        ([tiered(MIB // 100, number) for number in range(100)], 4, [100]),
        ([tiered(20 * MIB)] * 8, 4, [2] * 4),  # all cores get work
        ([from_broker(100)] * 50, 4, [50]),
        ([*[tiered(128 * MIB)] * 8, from_broker(2**60)], 2, [4, 4, 1]),  # a gap in the offsets
        ([], 4, []),
    ],
)
def test_neighbouring_splits_become_tasks_of_one_size(splits: list[Split], parallelism: int, counts: list[int]) -> None:
    assert list(map(len, tasks_of(splits, target_bytes=128 * MIB, parallelism=parallelism))) == counts


def test_tables_are_work_too() -> None:
    splits = [tiered(1000, number) for number in range(100)]
    one, many = (
        tasks_of(splits, target_bytes=128 * MIB, parallelism=2, tables=tables)
        for tables in (["t"] * 100, list(map(str, range(100))))
    )
    assert list(map(len, one)) == [100] and list(map(len, many)) == [50, 50]


def test_a_small_split_behind_a_huge_one_is_in_the_last_task() -> None:
    assert list(map(len, tasks_of([tiered(2**60), tiered(1)], target_bytes=2**62, parallelism=1))) == [2]


@given(st.lists(st.integers(1, 200 * MIB), max_size=40), st.integers(1, 16))
def test_every_split_is_in_one_task_in_order(sizes: list[int], parallelism: int) -> None:
    splits = [tiered(size) for size in sizes]
    tasks = tasks_of(splits, target_bytes=128 * MIB, parallelism=parallelism)
    assert [split for task in tasks for split in task] == splits
    most = max(SMALLEST_TASK_BYTES, FILES * 128 * MIB)
    assert all(sum(split.storage_bytes for split in task) <= 2 * most for task in tasks if len(task) > 1)

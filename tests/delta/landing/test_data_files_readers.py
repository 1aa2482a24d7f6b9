from __future__ import annotations

from uuid import UUID

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


def counts(splits: list[Split], target_bytes: int = 128 * MIB, parallelism: int = 4) -> list[int]:
    return list(map(len, tasks_of(splits, target_bytes=target_bytes, parallelism=parallelism)))


def test_large_splits_stay_alone() -> None:
    assert counts([tiered(128 * MIB)] * 5, parallelism=5) == [1] * 5


def test_a_task_writes_more_than_one_file_when_there_is_work_enough() -> None:
    assert counts([tiered(128 * MIB)] * 8, parallelism=2) == [4] * 2


def test_a_little_more_than_the_cores_were_given_is_no_task_of_its_own() -> None:
    assert counts([tiered(65 * MIB)] * 17, parallelism=2) == [8, 9]


def test_small_splits_of_many_partitions_share_a_task() -> None:
    assert counts([tiered(MIB // 100, number) for number in range(100)]) == [100]


def test_tasks_are_not_larger_than_leaves_work_for_all() -> None:
    assert counts([tiered(20 * MIB)] * 8, parallelism=4) == [2] * 4


def test_tables_are_work_too() -> None:
    splits = [tiered(1000, number) for number in range(100)]
    one, many = (
        tasks_of(splits, target_bytes=128 * MIB, parallelism=2, tables=tables)
        for tables in (["t"] * 100, list(map(str, range(100))))
    )
    assert list(map(len, one)) == [100] and list(map(len, many)) == [50, 50]


def test_tail_splits_from_brokers_share_a_task() -> None:
    assert counts([from_broker(100)] * 50) == [50]


def test_a_gap_in_the_offsets_is_one_task_and_leaves_the_others_as_they_are() -> None:
    splits = [tiered(128 * MIB)] * 8
    assert counts([*splits, from_broker(2**60)], parallelism=2) == [4, 4, 1]


def test_a_small_split_behind_a_huge_one_is_in_the_last_task() -> None:
    assert counts([tiered(2**60), tiered(1)], target_bytes=2**62, parallelism=1) == [2]


def test_nothing_to_read_is_no_task() -> None:
    assert counts([]) == []


@given(st.lists(st.integers(1, 200 * MIB), max_size=40), st.integers(1, 16))
def test_every_split_is_in_one_task_in_order(sizes: list[int], parallelism: int) -> None:
    splits = [tiered(size) for size in sizes]
    tasks = tasks_of(splits, target_bytes=128 * MIB, parallelism=parallelism)
    assert [split for task in tasks for split in task] == splits
    most = max(SMALLEST_TASK_BYTES, FILES * 128 * MIB)
    assert all(sum(split.storage_bytes for split in task) <= 2 * most for task in tasks if len(task) > 1)

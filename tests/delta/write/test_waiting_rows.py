"""Rows told apart by day: which come out, in which order, in how many passes, and what memory stays."""

from __future__ import annotations

import pytest

from tests.delta.made_batches import DAY_MS, ORDERS, decoded
from tests.rigs.stack.rows import Record
from tiered_stream.delta.write import waiting_rows as waiting
from tiered_stream.delta.write.waiting_rows import DayRows, WaitingRows
from tiered_stream.model import TopicPartition

OTHERS = TopicPartition("others", 0)


def of_days(*days: int, size: int = 1) -> list[Record]:
    return [Record(b"k", b"v" * size, (("h", b"1"),), day * DAY_MS + 5) for day in days]


def rows(taken: list[DayRows]) -> list[tuple[str | None, list[tuple[str, list[int]]]]]:
    """Each day, with the offsets of its rows by topic."""
    return [
        (each.day, [(partition.topic, batch.column("offset").to_pylist()) for partition, batch in each.batches])
        for each in taken
    ]


def test_rows_of_each_day_keep_their_order_and_the_largest_day_comes_first() -> None:
    held = WaitingRows(by_day=True)
    held.add(ORDERS, decoded(of_days(1, 0, 1, 0, -1)))
    held.add(ORDERS, decoded(of_days(0, 1), 5))
    held.add(OTHERS, decoded(of_days(0), 7, OTHERS))
    assert rows(held.take()) == [
        ("1970-01-01", [("orders", [1, 3, 5]), ("others", [7])]),
        ("1970-01-02", [("orders", [0, 2, 6])]),
        ("1969-12-31", [("orders", [4])]),
    ]
    assert (held.bytes, held.take()) == (0, [])


def test_a_row_is_taken_with_all_of_its_columns() -> None:
    batch = decoded([Record(None if n % 3 else b"%d" % n, b"v%d" % n, (), n % 2 * DAY_MS) for n in range(10)])
    held = WaitingRows(by_day=True)
    held.add(ORDERS, batch)
    for number, day in enumerate(held.take()):
        assert day.batches[0][1].to_pylist() == batch.to_pylist()[number::2]


@pytest.mark.parametrize(("by_day", "day"), [(True, "1970-01-04"), (False, None)])
def test_rows_of_one_day_are_handed_on_as_they_came(by_day: bool, day: str | None) -> None:
    held = WaitingRows(by_day=by_day)
    batch = decoded(of_days(3, 3))
    held.add(ORDERS, batch)
    (taken,) = held.take(keep=1 << 30)
    assert taken.day == day and taken.batches[0][1] is batch


def test_small_days_wait_for_more_rows() -> None:
    held = WaitingRows(by_day=True)
    held.add(ORDERS, decoded(of_days(*([7] * 90), 1, 2, 3, 1)))
    assert [each.day for each in held.take(keep=held.bytes // 2)] == ["1970-01-08"]
    held.add(ORDERS, decoded(of_days(2, 7), 94))
    assert rows(held.take()) == [
        ("1970-01-02", [("orders", [90, 93])]),
        ("1970-01-03", [("orders", [91, 94])]),
        ("1970-01-04", [("orders", [92])]),
        ("1970-01-08", [("orders", [95])]),
    ]


def test_days_are_taken_until_little_is_left_though_small_days_have_the_large_rows() -> None:
    held = WaitingRows(by_day=True)
    held.add(ORDERS, decoded([*of_days(*([7] * 90)), *of_days(1, size=100_000), *of_days(2, size=200_000)]))
    assert [each.day for each in held.take(keep=10_000)] == ["1970-01-08", "1970-01-02", "1970-01-03"]
    assert held.bytes == 0


def test_what_is_taken_out_leaves_no_memory_behind() -> None:
    held = WaitingRows(by_day=True)
    for number in range(20):
        held.add(ORDERS, decoded([*of_days(*([7] * 100), size=1000), *of_days(10 + number)], number * 101))
        held.take(keep=20_000)
    kept = [batch for _, batch in held._batches]
    assert sum(batch.num_rows for batch in kept) == 20
    assert sum(batch.get_total_buffer_size() for batch in kept) < 20_000


def test_thousands_of_days_are_sorted_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = 0

    class Counted(waiting._AllRows):
        def __init__(self, batches: list[waiting.PartitionRows]) -> None:
            nonlocal passes
            passes += 1
            super().__init__(batches)

    monkeypatch.setattr(waiting, "_AllRows", Counted)
    held = WaitingRows(by_day=True)
    for number in range(4):
        held.add(ORDERS, decoded(of_days(*range(3000)), number * 3000))
    taken = held.take()
    assert passes == 1
    assert [len(each.batches) for each in taken] == [1] * 3000
    assert rows(taken[17:18]) == [("1970-01-18", [("orders", [17, 3017, 6017, 9017])])]

"""The last row of each key, as a task keeps it in memory and stages it."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tiered_stream.delta.write import latest_rows
from tiered_stream.delta.write.latest_rows import (
    DELETED_AT,
    DELETES,
    PARTITION,
    PLACEHOLDERS,
    POSITION,
    STAGED,
    LatestRows,
    UnorderedKeyError,
    known_at,
    last_rows,
    without_staged,
)
from tiered_stream.formats.rows.change_records import DELETED, NAMES, UNAVAILABLE
from tiered_stream.formats.rows.kafka_columns import hidden
from tiered_stream.model import TopicPartition

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("orders", 1)
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), hidden("offset", pa.int64()), hidden(DELETED, pa.bool_())])


def batch(*rows: tuple[int, int, int, bool]) -> pa.RecordBatch:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def staged(held: LatestRows) -> list[tuple[str, int, int, bool]]:
    return [
        (row[PARTITION], row["id"], row[POSITION], row[DELETES])
        for day in held.take()
        for _, rows in day.batches
        for row in rows.to_pylist()
    ]


def test_the_last_row_of_each_key_stays_with_its_place_and_in_offset_order() -> None:
    held = LatestRows(["ID"], None)
    held.add(ORDERS, batch((1, 0, 0, False), (2, 0, 1, False), (1, 0, 2, False)))
    held.add(ORDERS, batch((3, 0, 5, True), (2, 0, 7, True)))
    assert staged(held) == [("orders/0", 1, 2, False), ("orders/0", 3, 5, True), ("orders/0", 2, 7, True)]
    assert (held.bytes, staged(held)) == (0, [])


def test_partitions_are_not_reduced_together_because_kafka_gives_them_no_order() -> None:
    held = LatestRows(["id"], None)
    held.add(ORDERS, batch((1, 0, 9, False)))
    held.add(OTHERS, batch((1, 0, 3, False), (1, 0, 4, False)))
    assert staged(held) == [("orders/0", 1, 9, False), ("orders/1", 1, 4, False)]


def test_the_largest_value_wins_and_of_equal_values_the_later_offset() -> None:
    held = LatestRows(["id"], "at")
    held.add(ORDERS, batch((1, 5, 0, False), (1, 4, 1, False), (2, 7, 2, False), (2, 7, 3, True)))
    assert staged(held) == [("orders/0", 1, 0, False), ("orders/0", 2, 3, True)]


@pytest.mark.parametrize("order_by", [None, "at"])
@pytest.mark.parametrize("seed", range(20))
def test_a_last_row_knows_whether_a_delete_before_it_deletes_the_row_of_the_table(
    order_by: str | None, seed: int
) -> None:
    """As if each record were merged in a micro-batch of its own, into a table with a row of the key."""
    chance = random.Random(seed)
    of_partitions = {
        partition: [(partition.partition * 10 + chance.randrange(4), chance.randrange(8), at, chance.random() < 0.4)
                    for at in range(30)]
        for partition in (ORDERS, OTHERS)
    }  # fmt: skip
    tables = []
    with patch.object(latest_rows, "_MIN_NEW_BYTES", chance.choice([1, 400, 1 << 20])):
        for partition, rows in of_partitions.items():
            for piece in (rows[:17], rows[17:]):  # two tasks
                held = LatestRows(["id"], order_by, keeps_deletes=True)
                size = chance.randrange(1, 18)
                for start in range(0, len(piece), size):
                    held.add(partition, batch(*piece[start : start + size]))
                staged = [rows for day in held.take() for _, rows in day.batches]
                tables.append(pa.Table.from_batches(staged).select(["id", "at", *STAGED.names]))
                assert len(tables[-1]) <= 2 * len(tables[-1].column("id").unique())
    for last in last_rows(pa.concat_tables(chance.sample(tables, len(tables))), ["id"], order_by).to_pylist():
        if last[DELETES]:
            continue
        rows = [row for rows in of_partitions.values() for row in rows if row[0] == last["id"]]
        for before in range(-1, last["at"] + 1):
            at: int | None = before
            is_reset = False
            for _, value, _, deletes in rows:
                if order_by is None or at is None or value >= at:
                    at = None if deletes else value
                    is_reset |= deletes
            by = last[DELETED_AT]
            assert (by is not None and (order_by is None or by >= before)) is is_reset


@pytest.mark.parametrize("order_by", [None, "at"])
@pytest.mark.parametrize("seed", range(20))
def test_a_last_row_has_the_last_value_before_its_placeholder(order_by: str | None, seed: int) -> None:
    """As if the records were merged one by one in their order, into a table with a row of the key."""
    chance = random.Random(seed)
    names = ("text", "list")
    kinds = {"text": pa.string(), "list": pa.list_(pa.string())}
    fields = list(SCHEMA)
    schema = pa.schema([*fields[:2], *kinds.items(), *fields[2:], hidden(UNAVAILABLE, NAMES)])
    tables, history = [], []
    for partition in (ORDERS, OTHERS):
        own = [
            {
                "id": partition.partition * 10 + chance.randrange(5),
                "at": chance.randrange(8),
                "text": f"{partition.partition}-{at}",
                "list": [str(at)],
                schema.names[4]: at,
                schema.names[5]: chance.random() < 0.2,
                schema.names[6]: [name for name in names if chance.random() < 0.6] or None,
            }
            for at in range(40)
        ]
        history += own
        with patch.object(latest_rows, "_MIN_NEW_BYTES", chance.choice([1, 400, 1 << 20])):
            for piece in (own[:17], own[17:]):  # two tasks
                held = LatestRows(["id"], order_by)
                for start in range(0, len(piece), 4):
                    held.add(partition, pa.RecordBatch.from_pylist(piece[start : start + 4], schema))
                staged = [rows for day in held.take() for _, rows in day.batches]
                tables.append(pa.Table.from_batches(staged).select(["id", "at", *names, *STAGED.names]))
    rows = pa.concat_tables(chance.sample(tables, len(tables)))
    columns = known_at(rows.column_names, set(names))
    for last in last_rows(rows, ["id"], order_by, columns, ["list"]).to_pylist():
        records = [row for row in history if row["id"] == last["id"]]
        records.sort(key=lambda row: (row["at"] if order_by else 0, row[schema.names[4]]))
        assert last[POSITION] == records[-1][schema.names[4]]
        for name, column in columns.items() if not last[DELETES] else ():
            knowing = [row for row in records if row[schema.names[5]] or name not in (row[schema.names[6]] or ())]
            lost = None if name == "text" else records[-1][name]
            if not knowing:
                assert (last[name], last[column]) == (lost, None)
                continue
            assert last[column] == (knowing[-1]["at"] if order_by else True)
            assert last[name] == (lost if knowing[-1][schema.names[5]] else knowing[-1][name])


@pytest.mark.parametrize("order_by", [None, "at"])
def test_rows_that_are_reduced_again_and_again_in_little_memory_give_the_same(order_by: str | None) -> None:
    chance = random.Random(7)
    rows = [(chance.randrange(40), chance.randrange(9), offset, chance.random() < 0.2) for offset in range(3000)]
    last: dict[int, tuple[int, int, int, bool]] = {}
    for row in rows:
        if row[0] not in last or order_by is None or row[1] >= last[row[0]][1]:
            last[row[0]] = row
    with patch.object(latest_rows, "_MIN_NEW_BYTES", 2000):
        held = LatestRows(["id"], order_by)
        for start in range(0, 3000, 30):
            held.add(ORDERS, batch(*rows[start : start + 30]))
            assert held.bytes < 6000 and not held.overflow(1 << 20)
        expected = sorted(last.values(), key=lambda row: row[2])
        assert staged(held) == [("orders/0", key, offset, deleted) for key, _, offset, deleted in expected]


def test_last_rows_that_fill_the_memory_are_written() -> None:
    with patch.object(latest_rows, "_MIN_NEW_BYTES", 500), patch.object(latest_rows, "MAX_KEPT_BYTES", 1000):
        held = LatestRows(["id"], None)
        written = []
        for start in range(0, 600, 10):
            held.add(ORDERS, batch(*((start + n, 0, start + n, False) for n in range(10))))
            written += held.overflow(1)
        assert written and held.bytes < 3000
        offsets = [
            row[POSITION] for day in [*written, *held.take()] for _, rows in day.batches for row in rows.to_pylist()
        ]
    assert offsets == list(range(600))


def test_the_columns_of_staged_files_are_no_columns_of_the_table() -> None:
    held = LatestRows(["id"], None)
    held.add(ORDERS, batch((1, 0, 0, False)))
    ((_, rows),) = held.take()[0].batches
    assert rows.schema.names == ["id", "at", *STAGED.names, *SCHEMA.names[2:]]
    assert without_staged(rows.schema).names == SCHEMA.names


def of_all_tasks(*rows: tuple[int, int, str, int, bool]) -> pa.Table:
    names = ("id", "at", PARTITION, POSITION, DELETES)
    table = pa.table({name: pa.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})
    return table.append_column(PLACEHOLDERS, pa.nulls(len(rows), STAGED.field(PLACEHOLDERS).type))


def without_deleted(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.drop_columns(DELETED_AT).to_pylist()


def test_rows_of_all_tasks_keep_the_last_of_each_key() -> None:
    rows = of_all_tasks(
        (1, 5, "t/2", 7, False), (2, 5, "t/0", 1, False), (1, 9, "t/10", 3, True), (1, 9, "t/10", 2, False)
    )  # fmt: skip
    assert without_deleted(last_rows(rows, ["id"], "at")) == rows.take([1, 2]).to_pylist()
    assert without_deleted(last_rows(rows, ["id", "at"], None)) == rows.take([0, 1, 2]).to_pylist()


def test_of_equal_values_in_two_partitions_the_partition_whose_name_comes_last_wins() -> None:
    rows = of_all_tasks((1, 5, "t/2", 1, False), (1, 5, "t/10", 9, False), (2, 1, "t/2", 4, False))
    assert without_deleted(last_rows(rows, ["id"], "at")) == rows.take([0, 2]).to_pylist()


def test_a_key_in_two_partitions_has_no_last_row_without_an_order() -> None:
    rows = of_all_tasks((3, 0, "t/1", 1, False), (3, 0, "t/0", 9, False), (4, 0, "t/5", 4, False))
    with pytest.raises(UnorderedKeyError, match="t/0 and t/1"):
        last_rows(rows, ["id"], None)


def test_rows_whose_keys_are_all_different_are_left_as_they_are() -> None:
    rows = of_all_tasks((3, 0, "t/1", 1, False), (4, 0, "t/0", 9, True))
    assert without_deleted(last_rows(rows, ["id"], None)) == rows.to_pylist()

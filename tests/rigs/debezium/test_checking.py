"""Reduction of a history and the comparison, which decide if the rig sees a fault; no services."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.rigs.debezium.landing import APPEND, UPSERT, Lake
from tests.rigs.debezium.rig import differences, landed_rows
from tests.rigs.debezium.tables import tables

(TABLE,) = tables(1)
NAMES = list(TABLE.columns)


def history(*changes) -> pa.Table:
    """A row for each pair of an op and a key: the offset is in the column `count`, too. A tombstone has no op."""
    rows = [
        {
            "partition": 0,
            "offset": offset,
            "__op": op,
            "id": key if op else None,
            "name": "a",
            "amount": Decimal("1.00"),
        }
        | {"paid": True, "count": offset}
        for offset, (op, key) in enumerate(changes)
    ]
    return pa.Table.from_pylist(rows)


def landed(folder: Path, table: pa.Table, mode: str) -> dict:
    write_deltalake(folder / "table", table)
    return landed_rows(TABLE, folder / "table", mode)


def test_a_history_reduces_to_the_last_change_of_each_key(tmp_path: Path) -> None:
    changes = history(("r", 1), ("c", 2), ("u", 1), ("d", 2), (None, 2), ("c", 3))
    found = landed(tmp_path, changes, APPEND)
    assert {key: row[NAMES.index("count")] for key, row in found.items()} == {(1,): 2, (3,): 5}


def test_a_row_is_there_again_after_its_delete(tmp_path: Path) -> None:
    assert list(landed(tmp_path, history(("c", 1), ("d", 1), (None, 1), ("c", 1)), APPEND)) == [(1,)]


def test_two_rows_of_a_key_in_a_table_of_the_latest_state_are_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="orders_00 has 2 rows, but 1 keys"):
        landed(tmp_path, history(("c", 1), ("u", 1)), UPSERT)


@pytest.mark.parametrize(
    ("wanted", "found"), [({(1,): (1, "a")}, {}), ({}, {(1,): (1, "a")}), ({(1,): (1, "a")}, {(1,): (1, "b")})]
)
def test_a_row_that_is_missing_too_much_or_other_is_reported(wanted: dict, found: dict) -> None:
    lines = differences("some", wanted, found)
    assert lines[0] == f"some (1,): database {wanted.get((1,))}, table {found.get((1,))}"
    assert lines[1].startswith("some: 1 of ")


def test_equal_rows_are_no_difference() -> None:
    assert differences("some", {(1,): (1, None)}, {(1,): (1, None)}) == []


def test_events_are_counted_over_all_tables_and_checkpoints(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert set(lake.events().values()) == {0}
    names = (
        "tables/a/1.parquet", "tables/b/staged/2.parquet",
        "tables/a/_delta_log/0.json", "tables/a/_delta_log/.0.json.crc",
        "checkpoints/all/offsets/0", "checkpoints/all/offsets/1", "checkpoints/all/offsets/.1.crc",
        "checkpoints/all/commits/0",
    )  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert lake.events() == {
        "a batch is planned": 2,
        "a file is written": 2,
        "a table is committed": 1,
        "a batch is done": 1,
    }

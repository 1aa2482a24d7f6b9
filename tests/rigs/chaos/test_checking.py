"""The check finds what it is there to find."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.rigs.chaos.checking import Place, Verdict, compare

EXPECTED = {(0, offset): (b"k%d" % offset, None) for offset in range(10)}
LOST_TO_4 = "chaos-0: offsets 0 to 4 are lost: gone"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


def land(table: Path, offsets: list[int], key: bytes = b"k%d") -> None:
    keys = [key % offset if b"%" in key else key for offset in offsets]
    rows = {"partition": [0] * len(offsets), "offset": offsets, "key": keys, "value": [None] * len(offsets)}
    schema = pa.schema({"partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(), "value": pa.binary()})
    write_deltalake(table, pa.table(rows, schema), mode="append")


def verdict(table: Path, gone: Collection[Place] = (), log: str = "", *, complete: bool = True) -> Verdict:
    return compare(table, EXPECTED, gone, log, complete=complete)


def test_a_table_that_has_all_is_well(table: Path) -> None:
    land(table, [*range(10)])
    assert verdict(table).well


def test_a_table_that_ends_early_is_well_unless_it_is_to_be_complete(table: Path) -> None:
    land(table, [*range(4)])
    assert verdict(table, complete=False).well
    assert verdict(table).lost == tuple((0, offset) for offset in range(4, 10))


def test_a_hole_is_a_loss_at_any_time(table: Path) -> None:
    land(table, [0, 1, 3])
    assert verdict(table, complete=False) == Verdict(lost=((0, 2),))


def test_what_is_there_twice_or_otherwise_is_found(table: Path) -> None:
    land(table, [0, 1, 2])
    land(table, [1])
    assert verdict(table, complete=False) == Verdict(doubled=((0, 1),))
    land(table, [3], b"another")
    assert verdict(table, complete=False).different == ((0, 3),)


def test_records_that_are_gone_have_to_be_told_and_no_others(table: Path) -> None:
    land(table, [*range(4, 10)])
    gone = {(0, offset) for offset in range(4)}
    assert verdict(table, gone, LOST_TO_4).well
    assert verdict(table, gone, "chaos-0: offsets 0 to 3 are lost").unreported == ((0, 3),)
    assert verdict(table, gone, f"{LOST_TO_4}\nchaos-0: offsets 2 to 6 are lost").misreported == ((0, 4), (0, 5))
    planned = "offsets 0 to 20 of chaos-0 are wanted, but it holds 4 to 20."
    assert verdict(table, gone, planned).well
    first = (
        "the first micro-batch, up to offset 7 of chaos-0, is read again. Where it started is not in the checkpoint, "
        "and what it held before offset 4, where the log begins now, is gone."
    )
    assert verdict(table, gone, first).well

"""Bounds in the log of files that deltalake writes, compared with the rows that pyarrow finds in these files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from tests.delta.committing import QUERY, folder_of, log_of, planned, table, written_rows
from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.compaction import MIN_SMALL_FILES, compact_crowded
from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable, create_table, delete_rows
from tiered_stream.delta.commit.deltalake_merge import DeltalakeMergedTable
from tiered_stream.delta.commit.merge import MergedTable
from tiered_stream.delta.commit.transaction import CommitTable
from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.formats.rows.change_records import DELETED
from tiered_stream.formats.rows.kafka_columns import hidden

INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
LAST_MOMENT = datetime(9999, 12, 31, 23, 59, 59, 999_999)
ODD: list[tuple[str, pa.DataType, list[Any], bool]] = [
    ("wide", pa.decimal128(20, 0), [Decimal("12345678901234567891"), Decimal("9007199254740993")], False),
    ("beyond 2^53", pa.decimal128(16, 0), [Decimal("9007199254740993"), Decimal("-9007199254740993")], False),
    ("wide amount", pa.decimal128(20, 2), [Decimal("123456789012345678.91"), None], False),
    ("(38,18)", pa.decimal128(38, 18), [Decimal("12345678901234567890.123456789012345678"), None], False),
    ("(38,38)", pa.decimal128(38, 38), [Decimal("0.12345678901234567890123456789012345678"), None], False),
    ("15 digits", pa.decimal128(15, 0), [Decimal(999_999_999_999_999), Decimal(-999_999_999_999_999)], True),
    ("(15,7)", pa.decimal128(15, 7), [Decimal("99999999.9999999"), Decimal("-0.0000001")], True),
    ("(15,15)", pa.decimal128(15, 15), [Decimal("0.999999999999999"), Decimal("0.000000000000001")], True),
    ("(1,1)", pa.decimal128(1, 1), [Decimal("0.1"), Decimal("-0.9")], True),
    ("text", pa.string(), ["é" * 65, "\U0010ffff" * 40, 'a\x00"\\' + "z" * 99], True),
    ("high text", pa.string(), ["\uffff" * 99, "\U0001f600" * 99, ""], True),
    ("bytes", pa.binary(), [b"\xff" * 99, b""], False),
    ("flag", pa.bool_(), [True, False], True),
    ("byte", pa.int8(), [-128, 127], True),
    ("long", pa.int64(), [2**63 - 1, -(2**63)], True),
    ("day", pa.date32(), [date(1582, 10, 15), date(9999, 12, 31)], True),
    ("late day", pa.date32(), [2_932_897, 0], False),
    ("infinite day", pa.date32(), [2**31 - 1, 0], False),
    ("instant", INSTANT, [datetime(1900, 1, 1, 0, 0, 0, 1, UTC), LAST_MOMENT.replace(tzinfo=UTC)], True),
    ("late instant", INSTANT, [253_402_300_800_000_001, 0], False),
    ("infinite instant", INSTANT, [2**63 - 1, 0], False),
    ("local time", LOCAL, [datetime(1, 1, 1, 0, 0, 0, 1), LAST_MOMENT], True),
    ("early local time", LOCAL, [-70_000_000_000_000_001, 0], False),
    ("double", pa.float64(), [float("nan"), -0.0], False),
    ("float", pa.float32(), [float("inf"), 0.1], False),
]  # fmt: skip


def made(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """An array that may have times which Python has not."""
    if pa.types.is_temporal(kind) and isinstance(values[0], int):
        return pa.array(values, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    return pa.array(values, kind)


def committed(files: TableSpec, rows: pa.RecordBatch, opened: Callable[[StructType], CommitTable]) -> TableCommits:
    """Commits to a new table with the columns of the rows."""
    schema = spark_columns(rows.schema, None)
    create_table(files, schema, {})
    return TableCommits(planned(files, opened(schema), schema), lambda *_: None)


def by_merge(files: TableSpec, rows: pa.RecordBatch, patched: pytest.MonkeyPatch) -> None:
    """Merge the rows twice, so that the second micro-batch rewrites the file of the first one."""
    patched.setattr(MergedTable, "remove", lambda *_: None)  # it needs a session
    no_session: Any = None

    def opened(_: StructType) -> CommitTable:
        merged = MergedTable(no_session, TableAddress("t", None, files.uri), files)
        return DeltalakeMergedTable(DeltalakeTable(files), merged, by_spark=False)

    commits = committed(files, rows, opened)
    deleted = pa.array([False] * len(rows))
    for batch in range(2):
        hidden_offset = hidden("offset", pa.int64())
        staged = rows.append_column(hidden_offset, rows["id"]).append_column(hidden(DELETED, pa.bool_()), deleted)
        commits.commit(QUERY, batch, written_rows(files, staged))
    assert table(files).to_pyarrow_table().num_rows == len(rows)


def by_compaction(files: TableSpec, rows: pa.RecordBatch, _: pytest.MonkeyPatch) -> None:
    commits = committed(files, rows, lambda _: DeltalakeTable(files))
    for batch in range(MIN_SMALL_FILES):
        made = written_rows(files, rows.append_column(hidden("offset", pa.int64()), rows["id"]))
        commits.commit(QUERY, batch, made)
    compact_crowded(files)


def by_delete(files: TableSpec, rows: pa.RecordBatch, patched: pytest.MonkeyPatch) -> None:
    """As dead letters are deleted without Spark."""
    by_compaction(files, rows, patched)
    delete_rows(files, "id = 99")


def added(files: TableSpec) -> list[dict[str, Any]]:
    """The statistics of each file that the newest version adds, with the rows of the file."""
    adds = [each["add"] for each in log_of(files, table(files).version()) if "add" in each]
    return [
        json.loads(each["stats"], parse_float=Decimal) | {"rows": pq.read_table(folder_of(files.uri) / each["path"])}
        for each in adds
    ]


def comparable(bound: Any, kind: pa.DataType) -> Any:
    """A bound of the log as `extremes` has it; times are strictly below the end of their millisecond."""
    if pa.types.is_date(kind):
        return int(np.datetime64(bound, "D").astype(int))
    if pa.types.is_timestamp(kind):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?Z?", bound)
        return int(np.datetime64(bound.rstrip("Z"), "us").astype(int))
    return bound.encode() if isinstance(bound, str) else bound


def extremes(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Lowest and highest value, in an order that is Spark's."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        values = [text.encode() for text in column.to_pylist() if text is not None]
        return min(values), max(values)
    low, high = pc.min_max(column).as_py().values()
    return low, high


@pytest.mark.parametrize(("kind", "values", "bounded"), [case[1:] for case in ODD], ids=[case[0] for case in ODD])
@pytest.mark.parametrize("write", [by_merge, by_compaction])
def test_bounds_of_files_that_deltalake_writes_hold_all_of_their_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[TableSpec, pa.RecordBatch, pytest.MonkeyPatch], None],
    kind: pa.DataType,
    values: list[Any],
    bounded: bool,
) -> None:
    files = TableSpec((tmp_path / "table").as_uri(), keys=("id",) if write is by_merge else ())
    column = made(kind, values)
    nested = pa.StructArray.from_arrays([column], ["v"])
    rows = pa.RecordBatch.from_arrays([pa.array(range(len(values))), column, nested], ["id", "v.w", "s"])
    write(files, rows, monkeypatch)
    (found,) = added(files)
    assert set(found["rows"]["id"].to_pylist()) == set(range(len(values)))
    assert found["minValues"]["id"] == 0 and found["maxValues"]["id"] == len(values) - 1
    for bounds in (found["minValues"], found["maxValues"]):
        assert ("v.w" in bounds, "v" in bounds.get("s", {})) == (bounded, bounded)
    if bounded:
        low, high = extremes(found["rows"]["v.w"])
        slack = 999 if pa.types.is_timestamp(kind) else 0  # Delta protocol: times are cut to milliseconds
        for lowest, highest in (
            (found["minValues"]["v.w"], found["maxValues"]["v.w"]),
            (found["minValues"]["s"]["v"], found["maxValues"]["s"]["v"]),
        ):
            assert comparable(lowest, kind) <= low
            assert (high - slack if slack else high) <= comparable(highest, kind)


def test_a_delete_leaves_no_bounds_that_are_no_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = TableSpec((tmp_path / "table").as_uri())
    wide = made(pa.decimal128(20, 0), [Decimal("12345678901234567891"), None])
    moments = made(INSTANT, [2**63 - 1, 0])
    rows = pa.RecordBatch.from_arrays([pa.array([1, 99]), wide, moments], ["id", "wide", "moment"])
    by_delete(files, rows, monkeypatch)
    (found,) = added(files)
    assert found["rows"]["id"].to_pylist() == [1] * MIN_SMALL_FILES
    assert (found["minValues"], found["maxValues"]) == ({"id": 1}, {"id": 1})

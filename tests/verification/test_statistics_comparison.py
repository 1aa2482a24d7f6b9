"""Statistics in a table's log, compared with the rows of its files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession

from tests.delta.test_latest_state import Latest
from tests.rigs.stack.rows import Record
from tests.verification.test_verify_latest import verified
from tests.verification.test_verify_table import shown
from tiered_stream.verification import statistics_comparison
from tiered_stream.verification.statistics_comparison import check_statistics

pytestmark = pytest.mark.slow

WIDE = Decimal("12345678901234567891")
ODD = {
    "ingest.value.format": "json", "ingest.keys": "id", "ingest.kafkaColumns": "timestamp",
    "ingest.value.schema": "id BIGINT, amount DECIMAL(20, 2), at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, "
    "name STRING, share DOUBLE, place STRUCT<code: DECIMAL(38, 18), `b.c`: STRING>, tags ARRAY<STRING>, flag BOOLEAN",
}  # fmt: skip


def document(number: int) -> Record:
    value = {
        "id": number, "amount": f"{WIDE // 100}.91", "at": "2020-01-01T00:00:00.999999Z", "flag": bool(number % 2),
        "local": "0001-01-01T00:00:00.000001", "day": "9999-12-31", "name": "\U0001f600" * 40,
        "share": "NaN" if number == 2 else -0.0, "place": {"code": "0.123456789012345678", "b.c": None},
        "tags": [None],
    }  # fmt: skip
    return Record(b"", orjson.dumps(value))


@pytest.mark.parametrize("commit", ["auto", "spark"])
def test_statistics_of_odd_values_are_right_whoever_merges(spark: SparkSession, tmp_path: Path, commit: str) -> None:
    latest = Latest(spark, tmp_path, "odd table%")
    for number in range(3):
        latest.write(0, document(number), document(number + 1))
        latest.run({**ODD, "ingest.commit": commit})
    report = verified(latest, ODD)
    assert report.equal, shown(report)
    assert (report.statistics.wrong, report.statistics.skipped) == (0, 0) and report.statistics.files > 0


def test_wrong_bounds_are_named_and_repaired(spark: SparkSession, tmp_path: Path) -> None:
    wide = pa.array([WIDE, WIDE + 1], pa.decimal128(20, 0))
    place = pa.StructArray.from_arrays([wide, pa.array(["x", None])], ["b.c", "d"])
    days = pa.array(["a b:c", "%20"])
    write_deltalake(tmp_path / "t", pa.table({"id": wide, "place": place, "day": days}), partition_by=["day"])
    table = f"delta.`{tmp_path / 't'}`"
    assert spark.sql(f"SELECT * FROM {table} WHERE id = {WIDE}").count() == 0
    found = check_statistics(spark, str(tmp_path / "t"))
    assert (found.files, found.wrong) == (2, 4)
    assert {(each.column, each.name, each.log) for each in found.named} == {
        (column, "maxValues", str(2**63 - 1)) for column in ("id", "place.b.c")
    }
    assert {each.rows for each in found.named} == {str(WIDE), str(WIDE + 1)}
    repaired = check_statistics(spark, str(tmp_path / "t"), repair=True)
    assert (repaired.files, repaired.wrong, repaired.repaired) == (2, 0, True)
    assert spark.sql(f"SELECT * FROM {table} WHERE id = {WIDE} AND place.`b.c` = {WIDE}").count() == 1
    spark.sql(f"DELETE FROM {table} WHERE id = {WIDE}")
    assert [row["id"] for row in spark.table(table).collect()] == [WIDE + 1]


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"numRecords": 3}, [("", "numRecords", "3", "2")]),
        ({"nullCount": {"name": 0}}, [("name", "nullCount", "0", "1")]),
        ({"maxValues": {"name": "Z"}}, [("name", "maxValues", "Z", "b")]),
        ({"minValues": {"at": "2020-01-01T00:00:01.000Z"}}, [("at", "minValues")]),
        ({"maxValues": {"at": "2020-01-01T00:00:00.998Z"}}, [("at", "maxValues")]),
        ({"maxValues": {"at": "2020-01-01T00:00:00.999Z", "other": 1}}, []),
        ({"minValues": {"share": 0.5}}, [("share", "minValues", "0.5", "-1.0")]),
        ({"maxValues": {"share": 9.0}}, [("share", "maxValues", "9.0", "NaN")]),
    ],
)
def test_each_wrong_statistic_is_found(
    spark: SparkSession, tmp_path: Path, changed: Mapping[str, Any], wrong: list[tuple[str, ...]]
) -> None:
    moment = pa.array([datetime(2020, 1, 1, 0, 0, 0, 999_999, UTC)] * 2, pa.timestamp("us", "UTC"))
    rows = {"name": pa.array(["b", None]), "at": moment, "share": pa.array([-1.0, float("nan")])}
    write_deltalake(tmp_path / "t", pa.table(rows))
    table = DeltaTable(tmp_path / "t")
    (file,) = pa.table(table.get_add_actions()).to_pylist()
    again = AddAction(
        file["path"], file["size_bytes"], {}, file["modification_time"], False, orjson.dumps(changed).decode()
    )
    table.create_write_transaction([again], "append", table.schema())
    found = check_statistics(spark, str(tmp_path / "t"))
    assert found.wrong == len(wrong)
    assert [
        (each.column, each.name, each.log, each.rows)[: len(expected)]
        for each, expected in zip(found.named, wrong, strict=True)
    ] == wrong
    assert all(each.file == file["path"] for each in found.named)


def test_files_beyond_the_limit_and_with_deletion_vectors_are_skipped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    features = "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'"
    spark.sql(f"CREATE TABLE {table} (id INT, s STRUCT<d: DECIMAL(38, 2)>) USING delta TBLPROPERTIES ({features})")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN id TO number")
    for number in range(3):
        spark.sql(f"INSERT INTO {table} SELECT id, named_struct('d', id) FROM RANGE({number}, {number + 4}, 1, 1)")
    spark.sql(f"DELETE FROM {table} WHERE number = 0")
    found = check_statistics(spark, str(tmp_path / "t"))
    assert (found.files, found.skipped, found.wrong) == (2, 1, 0)
    monkeypatch.setattr(statistics_comparison, "MAX_BYTES", 1)
    assert check_statistics(spark, str(tmp_path / "t")).files == 1

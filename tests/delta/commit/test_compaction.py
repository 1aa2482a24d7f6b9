"""Small files become larger ones beside the query, and no record is lost, doubled or told to be new."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from tests.delta.archive import LONG, everything, land_in, landed, options
from tests.delta.committing import QUERY, log_of, offsets, planned, table, written, written_rows
from tests.delta.made_batches import DAY_MS, plain
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.compaction import MIN_SMALL_FILES, Compaction, compact_crowded
from tiered_stream.delta.commit.deltalake_commit import create_table
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_files import DataFile

RECORDS = 5
"""Of each batch."""


def files_at(folder: Path, day_column: str | None = None) -> TableSpec:
    made = TableSpec((folder / "table with blanks").as_uri(), day_column=day_column)
    create_table(made, table_schema(True, day_column), {"delta.appendOnly": "true"})
    return made


def commit_batches(files: TableSpec, compaction: Compaction, batches: range) -> None:
    commits = TableCommits(replace(planned(files), compaction=compaction), lambda *_: None, sleep=lambda _: None)
    for batch in batches:
        commits.commit(QUERY, batch, written(files, RECORDS, batch * RECORDS))


def test_commits_and_compactions_side_by_side_keep_every_record_once(tmp_path: Path) -> None:
    files = files_at(tmp_path)
    compaction = Compaction(files.uri, 3, lambda: compact_crowded(files))
    commit_batches(files, compaction, range(40))
    compaction.wait()
    compact_crowded(files)
    assert offsets(files) == list(range(40 * RECORDS))
    assert len(table(files).file_uris()) < MIN_SMALL_FILES
    log = [each for version in range(table(files).version() + 1) for each in log_of(files, version)]
    assert [each["txn"]["version"] for each in log if "txn" in each] == list(range(40))
    removed = [each["remove"] for each in log if "remove" in each]
    assert len(removed) >= 33 and not any(each["dataChange"] for each in removed)
    assert sum(each["add"]["dataChange"] for each in log if "add" in each) == 40
    # A query that goes on finds its last batch behind the compaction.
    commit_batches(files, compaction, range(39, 42))
    assert offsets(files) == list(range(42 * RECORDS))


def test_only_days_with_many_small_files_are_compacted(tmp_path: Path) -> None:
    files = files_at(tmp_path, "day")
    commits = TableCommits(planned(files), lambda *_: None)
    of_days: dict[int, list[DataFile]] = {0: [], 1: []}
    for batch in range(MIN_SMALL_FILES + 2):
        day = int(batch >= MIN_SMALL_FILES)
        made = written_rows(files, plain(RECORDS, batch * RECORDS, 1_700_000_000_000 + day * DAY_MS))
        of_days[day] += made
        commits.commit(QUERY, batch, made)
    compact_crowded(files)
    left = {Path(uri).name for uri in table(files).file_uris()}
    assert {Path(file.path).name for file in of_days[1]} <= left and len(left) == 3
    assert offsets(files) == list(range((MIN_SMALL_FILES + 2) * RECORDS))
    version = table(files).version()
    compact_crowded(files)
    assert table(files).version() == version


def test_a_table_is_made_and_compacted_under_the_lock(tmp_path: Path) -> None:
    files = TableSpec((tmp_path / "table").as_uri())
    versions: list[int] = []

    @contextmanager
    def lock() -> Iterator[None]:
        before = table(files).version() if versions else -1
        yield
        versions.extend((before, table(files).version()))

    create_table(files, table_schema(True, None), {}, lock)
    commit_batches(files, Compaction(files.uri, 99, lambda: None), range(MIN_SMALL_FILES))
    compact_crowded(files, lock)
    assert versions == [-1, 0, MIN_SMALL_FILES, MIN_SMALL_FILES + 1]


@pytest.mark.parametrize(("day_column", "compacted"), [("day:x", False), ("day%20#x", True)])
def test_a_compaction_leaves_paths_that_are_uris(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, day_column: str, compacted: bool
) -> None:
    """In a relative URI, `day:` would be a scheme; deltalake would write that into the log."""
    files = files_at(tmp_path, day_column)
    commit_batches(files, Compaction(files.uri, 99, lambda: None), range(MIN_SMALL_FILES))
    compact_crowded(files)
    assert (len(table(files).file_uris()) == 1) == compacted
    assert ("colon" in caplog.text) != compacted
    added = [each["add"]["path"] for each in log_of(files, table(files).version()) if "add" in each]
    assert added and all(urlsplit(path).scheme == "" for path in added)
    assert offsets(files) == list(range(MIN_SMALL_FILES * RECORDS))


def test_a_compaction_that_fails_is_told_and_leaves_the_query_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError("no room\nand more")

    files = files_at(tmp_path)
    compaction = Compaction(files.uri, 1, fail)
    with caplog.at_level(logging.WARNING):
        commit_batches(files, compaction, range(3))
        compaction.wait()
    assert offsets(files) == list(range(3 * RECORDS))
    assert re.search("not compacted.*: no room", caplog.text) and "and more" not in caplog.text


def typed_files(folder: Path, rows: list[dict[str, Any]], ddl: pa.Schema) -> TableSpec:
    """A table with as many small files as are compacted, one of each row, by turns."""
    files = TableSpec((folder / "table").as_uri())
    schema = StructType([*spark_columns(ddl, None), StructField("offset", LongType())])
    create_table(files, schema, {})
    commits = TableCommits(planned(files, schema=schema), lambda *_: None)
    for batch in range(MIN_SMALL_FILES):
        row = rows[batch % len(rows)] | {"offset": batch}
        made = pa.RecordBatch.from_pylist([row], pa.schema([*ddl, ("offset", pa.int64())]))
        commits.commit(QUERY, batch, written_rows(files, made))
    return files


EARLY_DAY, EARLY_MOMENT = date(1500, 2, 28), datetime(1899, 12, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("row", "compacted"),
    [
        ({"d": EARLY_DAY}, False),
        ({"t": EARLY_MOMENT}, False),
        ({"s": {"l": [EARLY_DAY, None]}}, False),
        ({"m": [(1, EARLY_MOMENT)]}, False),
        ({"d": date(1582, 10, 15), "t": datetime(1900, 1, 1, tzinfo=UTC), "local": datetime(1, 1, 1)}, True),
    ],
)
def test_files_that_need_sparks_version_are_not_compacted_by_deltalake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, row: dict[str, Any], compacted: bool
) -> None:
    moment = pa.timestamp("us", "UTC")
    schema = pa.schema([
        ("d", pa.date32()), ("t", moment), ("local", pa.timestamp("us")), ("n", pa.int64()),
        ("s", pa.struct([("l", pa.list_(pa.date32()))])), ("m", pa.map_(pa.int64(), moment)),
    ])  # fmt: skip
    files = typed_files(tmp_path, [row, {}], schema)
    compact_crowded(files)
    assert len(table(files).file_uris()) == (1 if compacted else MIN_SMALL_FILES)
    assert ("ingest.commit=spark" in caplog.text) != compacted


@pytest.mark.slow
@pytest.mark.parametrize("by", ["spark", "deltalake"])
def test_a_query_compacts_what_it_lands(spark: SparkSession, tmp_path: Path, by: str) -> None:
    given = {"maxOffsetsPerTrigger": "800", "ingest.commit": by, "ingest.compactEvery": "9"}
    land_in(tmp_path, spark, options(LONG, given))
    assert landed(tmp_path / "table").equals(everything(LONG))
    history = DeltaTable(tmp_path / "table").history()
    compacted = [each for each in history if each["operation"] == "OPTIMIZE"]
    assert compacted and len(history) - len(compacted) == 1 + -(-everything(LONG).num_rows // 800)

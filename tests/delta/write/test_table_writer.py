"""Files as a task writes them, read back by Arrow."""

from __future__ import annotations

import gc
import re
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.delta.made_batches import DAY_MS, ORDERS, decoded, plain
from tests.rigs.stack.rows import Record
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write import table_writer as write
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.delta.write.data_folder import LocalFolder, UploadThreads
from tiered_stream.delta.write.table_writer import TableWriter
from tiered_stream.errors import TableError
from tiered_stream.formats.rows.kafka_columns import marked
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS


@pytest.fixture
def files(tmp_path: Path) -> TableSpec:
    return TableSpec(tmp_path.as_uri())


def read(folder: Path, written: list[DataFile]) -> pa.Table:
    return pa.concat_tables(pq.ParquetFile(folder / file.path).read() for file in written)


def test_files_are_named_and_typed_as_spark_does_it(files: TableSpec, tmp_path: Path) -> None:
    writer = TableWriter(files, 12, UploadThreads())
    writer.add(ORDERS, plain(10))
    (file,) = writer.finish()
    assert re.fullmatch(r"part-00012-[0-9a-f-]{36}-c000\.snappy\.parquet", file.path)
    assert file.size == (tmp_path / file.path).stat().st_size
    assert pq.read_schema(tmp_path / file.path).remove_metadata().equals(SCHEMA_WITH_HEADERS)


def test_a_file_ends_at_its_size_and_the_next_one_begins(
    files: TableSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "ROW_GROUP_BYTES", 100_000)
    writer = TableWriter(replace(files, target_bytes=150_000, compression="none"), 0, UploadThreads())
    for number in range(20):
        writer.add(ORDERS, decoded([Record(b"k", b"v" * 500)] * 100, number * 100))
    written = writer.finish()
    assert [file.offsets[ORDERS] for file in written] == [(0, 399), (400, 799), (800, 1199), (1200, 1599), (1600, 1999)]
    assert [file.path[-12:] for file in written] == [f"-c{number:03d}.parquet"[1:] for number in range(5)]
    assert all(150_000 <= file.size < 250_000 for file in written)
    assert read(tmp_path, written).column("offset").to_pylist() == list(range(2000))


def test_rows_of_another_schema_are_in_files_of_their_own(files: TableSpec, tmp_path: Path) -> None:
    writer = TableWriter(files, 0, UploadThreads())
    writer.add(ORDERS, plain(3))
    writer.add(ORDERS, plain(2, 3).append_column("new", pa.array([1, 2])))
    one, other = writer.finish()
    assert pq.read_schema(tmp_path / other.path).names == [*pq.read_schema(tmp_path / one.path).names, "new"]
    assert (one.offsets[ORDERS], other.offsets[ORDERS]) == ((0, 2), (3, 4))
    assert one.table == other.table == files.uri


def test_a_column_that_is_called_topic_keeps_its_values_next_to_rows_with_kafkas_topic(
    files: TableSpec, tmp_path: Path
) -> None:
    kafkas = plain(1)
    fields = [marked(field, field.name) if field.name in ("offset", "timestamp") else field for field in kafkas.schema]
    at = kafkas.schema.get_field_index("topic")
    columns = [*kafkas.columns[:at], pa.array(["own"]), *kafkas.columns[at + 1 :]]
    own = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    writer = TableWriter(files, 0, UploadThreads())
    for batch in kafkas, own, kafkas:
        writer.add(ORDERS, batch)
    assert read(tmp_path, writer.finish()).column("topic").to_pylist() == [ORDERS.topic, "own", ORDERS.topic]


def test_rows_of_each_day_go_to_its_folder(files: TableSpec, tmp_path: Path) -> None:
    writer = TableWriter(replace(files, day_column="day"), 0, UploadThreads())
    beyond = Record(timestamp_ms=253_402_300_800_000)
    writer.add(ORDERS, decoded([Record(timestamp_ms=0), Record(timestamp_ms=DAY_MS), beyond, Record(timestamp_ms=1)]))
    written = {file.day: file for file in writer.finish()}
    assert {day: file.path.split("/")[0] for day, file in written.items()} == {
        "1970-01-01": "day=1970-01-01",
        "1970-01-02": "day=1970-01-02",
        None: "day=__HIVE_DEFAULT_PARTITION__",
    }
    assert read(tmp_path, [written["1970-01-01"]]).column("offset").to_pylist() == [0, 3]
    assert pq.ParquetFile(tmp_path / written[None].path).read().column_names == SCHEMA_WITH_HEADERS.names


def test_a_day_has_one_file_a_task_however_many_days_and_batches_there_are(files: TableSpec, tmp_path: Path) -> None:
    writer = TableWriter(replace(files, day_column="day"), 0, UploadThreads())
    for number in range(5):
        writer.add(ORDERS, decoded([Record(timestamp_ms=n * DAY_MS) for n in range(200)], number * 200))
    written = writer.finish()
    assert len({file.day for file in written}) == len(written) == 200
    assert {file.records for file in written} == {5}
    assert sorted(read(tmp_path, written).column("offset").to_pylist()) == list(range(1000))


def test_few_files_are_open_at_once_however_many_days_there_are(
    files: TableSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "MAX_OPEN_FILES", 3)
    writer = TableWriter(replace(files, day_column="day", target_bytes=8_000), 0, UploadThreads())
    most = 0
    begin = writer._begin

    def counted(day: str | None, schema: pa.Schema) -> write._OpenFile:
        nonlocal most
        file = begin(day, schema)
        most = max(most, len(writer._open) + 1)
        return file

    monkeypatch.setattr(writer, "_begin", counted)
    for number in range(10):
        writer.add(ORDERS, decoded([Record(timestamp_ms=n % 10 * DAY_MS) for n in range(100)], number * 100))
    written = writer.finish()
    assert most == 3 and len(written) > 10
    assert sorted(read(tmp_path, written).column("offset").to_pylist()) == list(range(1000))


def test_the_file_of_the_largest_day_stays_open_beside_many_small_ones(
    files: TableSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "ROW_GROUP_BYTES", 25_000)
    writer = TableWriter(replace(files, day_column="day"), 0, UploadThreads())
    for number in range(20):
        today = [Record(b"k", b"v" * 500, (), 9_000 * DAY_MS)] * 80
        late = [Record(b"k", b"v" * 500, (), n * DAY_MS) for n in range(20)]
        writer.add(ORDERS, decoded(today + late, number * 100))
    written = writer.finish()
    assert [file.records for file in written if file.day == "1994-08-23"] == [1600]
    assert len(written) < 3 * 21
    assert sorted(read(tmp_path, written).column("offset").to_pylist()) == list(range(2000))


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("not a folder")
    writer = TableWriter(TableSpec((tmp_path / "table").as_uri()), 0, UploadThreads())
    writer.add(ORDERS, plain(1))
    with pytest.raises(TableError, match=r"file:///.*table "):
        writer.finish()


def test_a_discarded_file_gets_no_footer_when_python_frees_its_writer(
    files: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: errors.append(str(found.exc_value)))
    monkeypatch.setattr(write, "ROW_GROUP_BYTES", 1)
    writer = TableWriter(files, 0, UploadThreads())
    writer.add(ORDERS, plain(1))
    assert writer.open_files == 1
    writer.close()
    del writer
    gc.collect()
    assert errors == []


def test_a_file_that_could_not_be_finished_is_closed_with_its_writer(
    files: TableSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[pa.NativeFile] = []

    class Full(LocalFolder):
        def open(self, path: str) -> pa.NativeFile:
            opened.append(super().open(path))
            return opened[-1]

        def finish(self, path: str, file: pa.NativeFile) -> None:
            raise OSError("no space left")

    monkeypatch.setattr(write, "open_data_folder", lambda spec, threads: Full(tmp_path))
    writer = TableWriter(files, 0, UploadThreads())
    writer.add(ORDERS, plain(1))
    with pytest.raises(TableError):
        writer.finish()
    writer.close()
    assert [file.closed for file in opened] == [True]

"""A task's files, of one table and of many."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.archives import planned
from tests.delta.archive import ODD, everything, in_order, options
from tests.delta.committing import folder_of
from tests.delta.made_batches import ORDERS, decoded, plain
from tests.rigs.stack.rows import Record
from tests.rigs.stack.spark import ROOT, spark_environment
from tiered_stream.delta.schema.routing import Route, Routing
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write import table_writer, task_writer
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.delta.write.data_folder import DataFolder
from tiered_stream.delta.write.task_writer import TableRows, TargetRows, TaskTables, TaskWriter, write_splits
from tiered_stream.errors import TableError
from tiered_stream.model import TopicPartition
from tiered_stream.options.parsing import parse_options
from tiered_stream.read import split_reader, task_storage


def routed(folder: Path, name: str = "table") -> TableRows:
    return TableRows(Routing(TableSpec(""), (Route(".*", name, f"{folder.as_uri()}/{name}"),)))


def written_of(
    folder: Path, name: str = "table", tables: TaskTables = task_writer.ALL_TABLES, **given: str
) -> task_writer.Written:
    """Everything in the topics, as one task writes it."""
    reading = options(ODD, given)
    return write_splits(planned(reading), parse_options(reading, streaming=False), routed(folder, name), 7, tables)


def read(files: list[DataFile]) -> pa.Table:
    return pa.concat_tables(pq.ParquetFile(folder_of(each.table) / each.path).read() for each in files)


def by_table(files: list[DataFile]) -> dict[str, list[DataFile]]:
    found = defaultdict(list)
    for file in files:
        found[file.table].append(file)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Without any table's own: that is made when its first files are."""
    return tmp_path


def test_every_record_of_the_splits_is_in_the_files(folder: Path) -> None:
    written = written_of(folder)
    (file,) = written.files  # small segments of four partitions
    assert in_order(read([file])).equals(everything(ODD))
    assert written.metrics.records == file.records == everything(ODD).num_rows
    assert written.metrics.remote_fetch_bytes > 0


def test_each_topic_is_in_the_files_of_its_own_table(folder: Path) -> None:
    tables = by_table(written_of(folder, "{topic}").files)
    assert {table.rpartition("/")[2] for table in tables} == set(ODD.split(","))
    for table, files in tables.items():
        topic = table.rpartition("/")[2]
        assert in_order(read(files)).equals(everything(topic))
        assert {partition.topic for file in files for partition in file.offsets} == {topic}


def test_a_task_imports_no_pandas(folder: Path) -> None:
    """Which takes 32 MiB and a third of a second of each worker."""
    task = f"""
import sys
from pathlib import Path
from tests.delta.archive import ODD, options
from tiered_stream.delta.write.data_files import file_rows
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.schema.routing import Route, Routing
from tiered_stream.delta.write.task_writer import TableRows
from tiered_stream.delta.write.task_writer import write_splits
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.batch import plan_batch

already = "pandas" in sys.modules
parsed = parse_options(options(ODD), streaming=False)
splits = plan_batch(parsed, open_log_source(parsed))
for day in (None, "day"):
    routing = Routing(TableSpec("", day_column=day), (Route(".*", "t", {folder.as_uri()!r}),))
    written = write_splits(splits, parsed, TableRows(routing), task=0)
    file_rows(written.files, written.metrics, peak_memory=0)
assert not already and "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", task], check=True, cwd=ROOT, env=spark_environment())


def test_what_a_task_fetches_and_what_it_writes_is_paced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paced = Counter[str]()

    def count(side: str, size: int, *_: object) -> bool:
        paced.update({side: size})
        return True

    def pace_of(side: str, rate: int | None) -> Callable[..., bool]:
        assert rate == 1 << 20
        return partial(count, side)

    monkeypatch.setattr(task_storage, "pace_of", pace_of)
    monkeypatch.setattr(split_reader, "pace_of", pace_of)
    monkeypatch.setattr(task_writer, "pace_of", pace_of)
    monkeypatch.setattr("tiered_stream.delta.write.table_writer.ROW_GROUP_BYTES", 1000)
    written = written_of(folder, **{"remote.max.bytes.per.second": "1m"})
    (file,) = written.files
    assert paced["fetch"] == written.metrics.remote_fetch_bytes > 0
    assert 0.5 * file.size < paced["write"] <= file.size  # all but its footer


def tables(folder: Path, count: int) -> list[TableSpec]:
    return [TableSpec(f"{folder.as_uri()}/t{number}") for number in range(count)]


def add(writer: TaskWriter, table: TableSpec, rows: pa.RecordBatch, partition: TopicPartition = ORDERS) -> None:
    writer.add(partition, TargetRows(table, rows), (0, 0))


def test_tables_that_wait_for_rows_take_bounded_memory_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_writer, "MAX_HELD_BYTES", 200_000)
    writer = TaskWriter(0)
    most = 0
    for number in range(4):
        for table in tables(folder, 10):
            add(writer, table, decoded([Record(b"k", b"v" * 500)] * 100, number * 100))
            most = max(most, sum(each.held_bytes for each in writer._tables.values()))
    assert 200_000 < most < 200_000 + 2 * 60_000
    files = by_table(writer.finish())
    assert len(files) == 10
    for each in files.values():
        assert sorted(read(each)["offset"].to_pylist()) == list(range(400))


def test_few_files_are_open_at_once_however_many_tables_there_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_writer, "MAX_OPEN_FILES", 3)
    monkeypatch.setattr("tiered_stream.delta.write.table_writer.ROW_GROUP_BYTES", 1000)
    writer = TaskWriter(0)
    for table in tables(folder, 10):
        add(writer, table, plain(100))
        assert sum(each.open_files for each in writer._tables.values()) <= 3
    assert len(by_table(writer.finish())) == 10


def test_the_rows_of_a_table_that_topics_share_go_on_in_the_file_that_is_open(folder: Path) -> None:
    (table,) = tables(folder, 1)
    writer = TaskWriter(0)
    others = TopicPartition("payments", 0)
    add(writer, table, plain(10))
    add(writer, replace(table), decoded([Record(b"k", b"v")] * 4, 90, others), others)
    (file,) = writer.finish()
    assert file.offsets == {ORDERS: (0, 9), others: (90, 93)}


CODECS, TXN = ODD.split(",")


def test_a_table_that_cannot_be_written_fails_the_task(folder: Path) -> None:
    (folder / CODECS).write_text("no folder")
    with pytest.raises(TableError, match=f"/{CODECS} "):
        written_of(folder, "{topic}")


@pytest.mark.parametrize("row_group", [16 << 20, 1])
def test_a_table_that_cannot_be_written_is_reported_with_its_offsets_and_the_others_go_on(
    folder: Path, row_group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered_stream.delta.write.table_writer.ROW_GROUP_BYTES", row_group)
    (folder / CODECS).write_text("no folder")
    written = written_of(folder, "{topic}", TaskTables(park=True))
    assert in_order(read(written.files)).equals(everything(TXN))
    (held,) = written.held
    assert held.table == f"{folder.as_uri()}/{CODECS}" and f"/{CODECS} " in held.reason
    assert held.offsets == ends(CODECS)


class FullDisk(DataFolder):
    """Neither writes to its files nor their ends have room."""

    class File(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "no space left")

        def close(self) -> None:
            if not self.closed:
                super().close()
                raise OSError(errno.ENOSPC, "no space left")

    def open(self, path: str) -> File:
        return self.File()


def test_a_table_whose_files_cannot_even_be_closed_is_reported_and_the_others_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, good = TableSpec("file:///full"), TableSpec(folder.as_uri())
    opened = table_writer.open_data_folder
    monkeypatch.setattr(
        table_writer, "open_data_folder", lambda spec, threads: FullDisk() if spec is full else opened(spec, threads)
    )
    writer = TaskWriter(0, tables=TaskTables(park=True))
    for table in full, good:
        writer.add(ORDERS, TargetRows(table, plain(3)), (0, 2))
    assert [file.table for file in writer.finish()] == [good.uri]
    assert [(held.table, held.offsets) for held in writer.held] == [(full.uri, {ORDERS: (0, 2)})]
    writer.close()


def ends(topic: str) -> dict[TopicPartition, tuple[int, int]]:
    """First and last offset of each partition."""
    rows = everything(topic).group_by("partition").aggregate([("offset", "min"), ("offset", "max")])
    return {
        TopicPartition(topic, each["partition"]): (each["offset_min"], each["offset_max"]) for each in rows.to_pylist()
    }


def test_rows_for_a_parked_table_are_not_written_but_told(folder: Path) -> None:
    tables = TaskTables([f"{folder.as_uri()}/{CODECS}", f"{folder.as_uri()}/without-rows"], park=True)
    written = written_of(folder, "{topic}", tables)
    assert [(held.table, held.offsets) for held in written.held] == [(tables.held[0], ends(CODECS))]
    assert {each.name for each in folder.iterdir()} == {TXN}


def test_one_table_alone_is_written_where_it_is_caught_up(folder: Path) -> None:
    written = written_of(folder, "{topic}", TaskTables(only=f"{folder.as_uri()}/{CODECS}"))
    assert in_order(read(written.files)).equals(everything(CODECS)) and written.held == []

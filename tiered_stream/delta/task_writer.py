"""What one task writes: rows of its splits, to the files of as many tables as they are for, memory bounded.

Splits come by topic, so the table that was longest without rows has most likely got its last: its files are closed
first where memory or open files are short.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import UUID

import pyarrow as pa

from tiered_stream.delta.data_files import DataFile, HeldRows
from tiered_stream.delta.ingest_settings import TableFiles
from tiered_stream.delta.row_transform import TableRows
from tiered_stream.delta.table_writer import MOST_OPEN_FILES, TableWriter
from tiered_stream.delta.upload_threads import UploadThreads
from tiered_stream.errors import TableError
from tiered_stream.model import Split, TopicPartition
from tiered_stream.observe.metrics import ReadMetrics
from tiered_stream.options.parsing import Options
from tiered_stream.read import SplitReader, TaskStorage
from tiered_stream.storage.throttle import Pace, pace_of

BATCH_ROWS = 131_072
"""Of one Arrow batch: each costs its share of Python, and no JVM has to take it."""
MOST_HELD_BYTES = 64 << 20
"""Of all tables but the one that gets rows: what one table may take, others may take together."""


@dataclass(frozen=True, slots=True)
class TaskTables:
    """What a task writes to: all tables, or one alone."""

    held: Collection[str] = ()
    """Keys of tables whose rows are not written, as they are parked."""
    only: str | None = None
    """The key of the one table whose rows are wanted, where it is caught up."""
    park: bool = False
    """Whether a table that cannot be written is to be reported, the others going on."""


ALL_TABLES = TaskTables()


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a task's rows, and what that cost."""

    files: list[DataFile]
    held: list[HeldRows]
    metrics: ReadMetrics


def write_splits(
    splits: Sequence[Split], options: Options, transform: TableRows, task: int, tables: TaskTables = ALL_TABLES
) -> Written:
    """Read the splits one after the other and write what they hold; `task` is a number for the files' names.

    Raises:
        TableError: a table's folder cannot be written to, and that is not to be reported only.
        TieredStreamError: as `read.read_split`.
    """
    metrics = ReadMetrics()
    storage = TaskStorage(splits, options)
    writer = TaskWriter(task, pace_of("write", options.max_bytes_per_second), tables)
    try:
        for split in splits:
            reader = SplitReader(split, options, BATCH_ROWS, storage=storage)
            for batch in reader.batches():
                offsets = batch.column("offset")[0].as_py(), batch.column("offset")[-1].as_py()
                for target, rows in transform.apply(split.topic_partition, batch):
                    writer.add(target.files, split.topic_partition, rows, offsets)
            metrics.add(reader.metrics)
        ids = {each.topic_partition.topic: each.topic_id for each in splits if each.topic_id is not None}
        return Written([_of_topics(file, ids) for file in writer.finish()], writer.held, metrics)
    finally:
        storage.close()
        writer.close()


def _of_topics(file: DataFile, ids: Mapping[str, UUID]) -> DataFile:
    """The file, the ids of its topics with it."""
    topics = {partition.topic for partition in file.offsets}
    return replace(file, topic_ids={topic: ids[topic] for topic in topics & ids.keys()})


class TaskWriter:
    """The files of one task."""

    def __init__(self, task: int, pace: Pace = lambda size: None, tables: TaskTables = ALL_TABLES) -> None:
        self._task = task
        self._pace = pace
        self._wanted = tables
        self._threads = UploadThreads()
        self._tables: dict[str, TableWriter] = {}
        self._offsets: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
        """Of all rows that came for a table, where one that cannot be written is to be reported."""
        self._why_held = dict.fromkeys(tables.held, "it is parked")
        self._held = 0
        self._opened = 0

    def add(
        self, table: TableFiles, partition: TopicPartition, batch: pa.RecordBatch, offsets: tuple[int, int] = (0, 0)
    ) -> None:
        """Take rows of one partition for one table, at least one, in offset order, from these offsets (inclusive).

        Raises:
            TableError: a table's folder cannot be written to, and that is not to be reported only.
        """
        if self._wanted.only not in (None, table.uri):
            return
        if self._wanted.park:
            seen = self._offsets.setdefault(table.uri, {})
            seen[partition] = seen.get(partition, offsets)[0], offsets[1]
        if table.uri in self._why_held:
            return
        with self._reported(table.uri):
            writer = self._tables.pop(table.uri, None) or TableWriter(table, self._task, self._pace, self._threads)
            # Taken out and put in again: the first is always the one that was longest without rows.
            self._tables[table.uri] = writer
            with self._counted(writer):
                writer.add(partition, batch)
        if self._lacks_room(self._tables.get(table.uri)):
            self._make_room(self._tables.get(table.uri))

    @property
    def held(self) -> list[HeldRows]:
        """What is in no file."""
        return [HeldRows(key, self._offsets[key], why) for key, why in self._why_held.items() if key in self._offsets]

    @contextmanager
    def _reported(self, key: str) -> Iterator[None]:
        """A table that cannot be written is given up, if that is what is wanted."""
        try:
            yield
        except TableError as error:
            if not self._wanted.park:
                raise
            self._why_held[key] = str(error)
            writer = self._tables.pop(key, None)
            if writer is not None:
                writer.close()

    def _make_room(self, besides: TableWriter | None) -> None:
        for key, writer in list(self._tables.items()):
            if writer is not besides:
                with self._reported(key), self._counted(writer):
                    writer.flush()
            if not self._lacks_room(besides):
                break

    def _lacks_room(self, besides: TableWriter | None) -> bool:
        """Whether the tables but for that one take more than they may."""
        held, opened = self._held, self._opened
        if besides is not None:
            held, opened = held - besides.held_bytes, opened - besides.open_files
        return held > MOST_HELD_BYTES or opened >= MOST_OPEN_FILES

    @contextmanager
    def _counted(self, writer: TableWriter) -> Iterator[None]:
        """What the table takes more afterwards, or less; nothing where it fails."""
        held, opened = writer.held_bytes, writer.open_files
        after = 0, 0
        try:
            yield
            after = writer.held_bytes, writer.open_files
        finally:
            self._held += after[0] - held
            self._opened += after[1] - opened

    def finish(self) -> list[DataFile]:
        """Close every file; all that were written, but for those of tables that are held.

        Raises:
            TableError: a table's folder cannot be written to, and that is not to be reported only.
        """
        found: list[DataFile] = []
        for key, writer in list(self._tables.items()):  # so that all are on their way before one is waited for
            with self._reported(key):
                writer.flush()
        for key, writer in list(self._tables.items()):
            with self._reported(key):
                found += writer.finish()
        return found

    def close(self) -> None:
        """Let go of files that are not finished, if there are any: the task has failed."""
        for writer in self._tables.values():
            writer.close()
        self._threads.close()

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

_Key = tuple[str, str]
"""The keys of the table that gets the rows, and of the table with which they are committed: `DataFile.share`."""
BATCH_ROWS = 131_072
"""Of one Arrow batch: each costs its share of Python, and no JVM has to take it."""
MOST_HELD_BYTES = 64 << 20
"""Of all tables but the one that gets rows: what one table may take, others may take together."""


@dataclass(frozen=True, slots=True)
class TaskTables:
    """What a task writes to: all tables, or one alone. A table's dead letters go with its rows."""

    held: Collection[str] = ()
    """Keys of tables whose rows are not written because the tables are parked."""
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
                for made in transform.apply(split.topic_partition, batch):
                    writer.add(made.target.files, split.topic_partition, made.rows, offsets, made.dead_letters_for)
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
        self._tables: dict[_Key, TableWriter] = {}
        self._offsets: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
        """Offsets of all records that came for a table, where one that cannot be written is to be reported."""
        self._why_held = dict.fromkeys(tables.held, "it is parked")
        self._room: dict[_Key, tuple[int, int]] = {}
        """Bytes of memory and open files of each writer, of which `_held` and `_opened` are the sums."""
        self._held = 0
        self._opened = 0

    def add(
        self,
        table: TableFiles,
        partition: TopicPartition,
        batch: pa.RecordBatch,
        offsets: tuple[int, int] = (0, 0),
        dead_letters_for: str | None = None,
    ) -> None:
        """Take rows of one partition for one table, at least one, in offset order, from these offsets (inclusive).

        `dead_letters_for` is the key of the table whose dead letters they are, if they are dead letters.

        Raises:
            TableError: a table's folder cannot be written to, and that is not to be reported only.
        """
        share = dead_letters_for or table.uri
        if self._wanted.only not in (None, share):
            return
        if self._wanted.park:
            seen = self._offsets.setdefault(share, {})
            seen[partition] = seen.get(partition, offsets)[0], offsets[1]
        if share in self._why_held:
            return
        key = table.uri, share
        with self._reported(share):
            writer = self._tables.pop(key, None) or TableWriter(table, self._task, self._pace, self._threads)
            # Taken out and put in again: the first is always the one that was longest without rows.
            self._tables[key] = writer
            with self._counted(key, writer):
                writer.add(partition, batch)
        if self._lacks_room(self._tables.get(key)):
            self._make_room(self._tables.get(key))

    @property
    def held(self) -> list[HeldRows]:
        """Records that are in no file."""
        return [HeldRows(key, self._offsets[key], why) for key, why in self._why_held.items() if key in self._offsets]

    @contextmanager
    def _reported(self, share: str) -> Iterator[None]:
        """Give up a table that cannot be written, its dead letters with it, if that is only to be reported."""
        try:
            yield
        except TableError as error:
            if not self._wanted.park:
                raise
            self._why_held[share] = str(error)
            for key in [key for key in self._tables if key[1] == share]:
                self._tables.pop(key).close()
                self._take_room(key, (0, 0))

    def _make_room(self, besides: TableWriter | None) -> None:
        for key, writer in list(self._tables.items()):
            if writer is not besides and key in self._tables:
                with self._reported(key[1]), self._counted(key, writer):
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
    def _counted(self, key: _Key, writer: TableWriter) -> Iterator[None]:
        """Count the memory and the files that the writer takes afterwards; none where it fails."""
        after = 0, 0
        try:
            yield
            after = writer.held_bytes, writer.open_files
        finally:
            self._take_room(key, after)

    def _take_room(self, key: _Key, now: tuple[int, int]) -> None:
        held, opened = self._room.get(key, (0, 0))
        self._room[key] = now
        self._held += now[0] - held
        self._opened += now[1] - opened

    def finish(self) -> list[DataFile]:
        """Close every file; all that were written, but for those of tables that are held.

        Raises:
            TableError: a table's folder cannot be written to, and that is not to be reported only.
        """
        found: list[DataFile] = []
        # All are flushed first, so that all uploads are under way before one is waited for.
        for step in (self._flush, self._finish):
            for key, writer in list(self._tables.items()):
                if key in self._tables:  # a table may have been given up in this loop
                    with self._reported(key[1]):
                        found += step(key, writer)
        return [file for file in found if file.share not in self._why_held]

    def _flush(self, key: _Key, writer: TableWriter) -> list[DataFile]:
        writer.flush()
        return []

    def _finish(self, key: _Key, writer: TableWriter) -> list[DataFile]:
        table, share = key
        return [replace(file, dead_letters_for=share if share != table else None) for file in writer.finish()]

    def close(self) -> None:
        """Let go of files that are not finished, if there are any: the task has failed."""
        for writer in self._tables.values():
            writer.close()
        self._threads.close()

"""Writer of one task: it reads the task's splits and writes their rows to data files of all tables, in bounded memory.

Splits are ordered by topic. So the table that got no rows for longest has probably got its last row. If memory or open
files are short, the files of this table are closed first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

import pyarrow as pa

from tiered_stream.delta.schema.routing import Routing
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.settings.row_settings import advising
from tiered_stream.delta.write.data_files import DataFile, HeldRows
from tiered_stream.delta.write.data_folder import UploadThreads
from tiered_stream.delta.write.table_writer import MAX_OPEN_FILES, TableWriter
from tiered_stream.errors import TableError
from tiered_stream.formats.row_decoder import RowDecoder
from tiered_stream.formats.rows.table_rules import TableRules
from tiered_stream.model import Split, TopicPartition
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.options.parsing import Options
from tiered_stream.read.split_reader import SplitReader
from tiered_stream.read.task_storage import TaskStorage
from tiered_stream.storage.throttle import Pace, pace_of

_Key = tuple[str, str]
"""Key of the table that gets the rows, and key of the table that the records were meant for (`DataFile.share`).

The two keys differ only for dead letters.
"""
BATCH_ROWS = 131_072
"""Maximum number of rows of one Arrow batch.

The maximum is large, because each batch costs Python time, and no batch is sent to a JVM.
"""
MAX_HELD_BYTES = 64 << 20
"""Maximum number of bytes in memory for the rows of all tables together, except the table that gets rows now.

The table that gets rows now has a limit of its own.
"""


@dataclass(frozen=True, slots=True)
class TaskTables:
    """Selection of the tables whose rows a task writes.

    A dead letter counts as a row of the table that its record was meant for.
    """

    held: Collection[str] = ()
    """Keys of parked tables (tables that could not be written), whose rows the task does not write."""
    only: str | None = None
    """Key of the only table whose rows are written, to add rows that a parked table lacks; None: all tables."""
    park: bool = False
    """True if the task goes on when a table cannot be written, and reports the table's records as `HeldRows`."""


ALL_TABLES = TaskTables()


@dataclass(frozen=True, slots=True)
class Written:
    """Result of a task: its data files, the records that are in no file (`held`), and the metrics of reading."""

    files: list[DataFile]
    held: list[HeldRows]
    metrics: ReadMetrics


def write_splits(
    splits: Sequence[Split], options: Options, transform: TableRows, task: int, tables: TaskTables = ALL_TABLES
) -> Written:
    """Read the splits (offset ranges of partitions) one after the other, and write their rows to data files.

    Args:
        options: options of the source.
        transform: converts records to rows of tables.
        task: number of the task, which is part of the files' names.
        tables: selection of the tables to write.

    Raises:
        TableError: a topic has no table; or a table's folder cannot be written to, and `tables.park` is off.
        TieredStreamError: a split cannot be read, or a record cannot be decoded.
    """
    metrics = ReadMetrics()
    storage = TaskStorage(splits, options)
    writer = TaskWriter(task, pace_of("write", options.max_bytes_per_second), tables)
    try:
        for split in splits:
            reader = SplitReader(split, options, BATCH_ROWS, storage=storage)
            for batch in reader.batches():
                offsets = batch.column("offset")[0].as_py(), batch.column("offset")[-1].as_py()
                for rows in transform.apply(split.topic_partition, batch):
                    writer.add(split.topic_partition, rows, offsets)
            metrics.add(reader.metrics)
        metrics.filtered_records = transform.filtered
        ids = {split.topic_partition.topic: split.topic_id for split in splits if split.topic_id is not None}
        return Written([_with_topic_ids(file, ids) for file in writer.finish()], writer.held, metrics)
    finally:
        storage.close()
        writer.close()


def _with_topic_ids(file: DataFile, ids: Mapping[str, UUID]) -> DataFile:
    """Return a copy of `file` with its topics' ids from `ids`; topics that are not in `ids` are left out."""
    topics = {partition.topic for partition in file.offsets}
    return replace(file, topic_ids={topic: ids[topic] for topic in topics & ids.keys()})


class TaskWriter:
    """Writer of one task's data files for all tables that get rows of the task; it limits memory and open files.

    `task` is the number of the task, and `tables` selects the tables whose rows are written. `pace` is called with the
    size in bytes of each row group that was written; it may wait, to limit the rate.
    """

    def __init__(self, task: int, pace: Pace = lambda size: None, tables: TaskTables = ALL_TABLES) -> None:
        self._task = task
        self._pace = pace
        self._selection = tables
        self._threads = UploadThreads()
        self._tables: dict[_Key, TableWriter] = {}
        self._offsets: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
        """First and last offset of the records for a table, by table key and partition; empty if `park` is off."""
        self._held_reasons = dict.fromkeys(tables.held, "it is parked")
        self._room: dict[_Key, tuple[int, int]] = {}
        """Bytes in memory and number of open files of each writer."""
        self._held = self._opened = 0
        """Sums of the bytes and of the open files of all writers."""

    def add(self, partition: TopicPartition, rows: TargetRows, offsets: tuple[int, int]) -> None:
        """Add rows of one partition for one table.

        Rows of a table that `TaskTables` leaves out, or that was given up after an error, are dropped. `offsets` are
        the first and the last offset of the records, both inclusive.
        """
        table = rows.target
        share = rows.dead_letters_for or table.uri
        if self._selection.only not in (None, share):
            return
        if self._selection.park:
            seen = self._offsets.setdefault(share, {})
            seen[partition] = seen.get(partition, offsets)[0], offsets[1]
        if share in self._held_reasons:
            return
        key = table.uri, share
        with self._give_up_on_error(share):
            writer = self._tables.pop(key, None) or TableWriter(table, self._task, self._threads, self._pace)
            # Pop and insert keep the dict ordered: its first table is always the one that got no rows for longest.
            self._tables[key] = writer
            writer.add(partition, rows.rows)
            self._record_room(key)
        self._make_room(self._tables.get(key))

    @property
    def held(self) -> list[HeldRows]:
        """Records that the task has read but has written to no file: one item for each table.

        The task could not write the table, or the table was parked before the task began. The list is empty if
        `TaskTables.park` is off.
        """
        return [
            HeldRows(key, self._offsets[key], why) for key, why in self._held_reasons.items() if key in self._offsets
        ]

    @contextmanager
    def _give_up_on_error(self, share: str) -> Iterator[None]:
        """Give up the table whose key is `share` if the `with` block raises a TableError.

        To give up a table means: close its writers, and drop all its further rows. The dead letters that were meant for
        the table are dropped, too. If `TaskTables.park` is false, the error is raised again instead.
        """
        try:
            yield
        except TableError as error:
            if not self._selection.park:
                raise
            self._held_reasons[share] = str(error)
            for key in [key for key in self._tables if key[1] == share]:
                self._tables.pop(key).close()
                self._record_room(key)

    def _make_room(self, excluded: TableWriter | None) -> None:
        if not self._lacks_room(excluded):
            return  # usually, and then thousands of tables are not copied
        for key, writer in list(self._tables.items()):
            if not self._lacks_room(excluded):
                break
            if writer is not excluded and key in self._tables:
                with self._give_up_on_error(key[1]):
                    writer.flush()
                    self._record_room(key)

    def _lacks_room(self, excluded: TableWriter | None) -> bool:
        """Return whether the tables together exceed `MAX_HELD_BYTES` in memory, or have `MAX_OPEN_FILES` open files.

        `excluded` is the writer of a table that is not counted; None: all tables are counted.
        """
        held, opened = self._held, self._opened
        if excluded is not None:
            held, opened = held - excluded.held_bytes, opened - excluded.open_files
        return held > MAX_HELD_BYTES or opened >= MAX_OPEN_FILES

    def _record_room(self, key: _Key) -> None:
        """Update the sums of memory and open files by the values of a writer; a closed writer counts as 0."""
        writer, (held, opened) = self._tables.get(key), self._room.get(key, (0, 0))
        now = self._room[key] = (writer.held_bytes, writer.open_files) if writer else (0, 0)
        self._held += now[0] - held
        self._opened += now[1] - opened

    def finish(self) -> list[DataFile]:
        """Close every file, wait until all files are in their folders, and return their descriptions.

        Files of a table that was given up after an error are left out.
        """
        files: list[DataFile] = []
        # Flush all tables first, so that all uploads are under way before the first wait.
        for step in (TableWriter.flush, TableWriter.finish):
            for (table, share), writer in list(self._tables.items()):
                if (table, share) in self._tables:  # a table may have been given up in this loop
                    with self._give_up_on_error(share):
                        written = step(writer) or ()
                        files += [replace(file, dead_letters_for=share if share != table else None) for file in written]
        return [file for file in files if file.share not in self._held_reasons]

    def close(self) -> None:
        """Discard unfinished files, which exist only if the task has failed, and stop the task's upload threads."""
        for writer in self._tables.values():
            writer.close()
        self._threads.close()


# Conversion of a topic's records to rows of its table and to dead letters, in the task that reads the records.


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Rows for the table `target`: at least one row, in offset order, with the table's columns except the day column.

    `dead_letters_for` is None, unless the rows are dead letters. Then `target` is a table for dead letters, and
    `dead_letters_for` is the key of the table that the records were meant for.
    """

    target: TableSpec
    rows: pa.RecordBatch
    dead_letters_for: str | None = None


@dataclass(eq=False)
class TableRows:
    """Converter of records to rows of the topic's table; a record that does not become a row becomes a dead letter.

    Each task has its own converter, used by one thread.

    Args:
        routing: routes from topics to tables.
        rules: table rules by table key, which replace the rules in `routing`.
        query: query id under which the rows are committed (application transaction), a label of dead letters; None:
            unknown.
        batch: batch id of the same application transaction, a label of dead letters; None: unknown.
    """

    routing: Routing
    rules: Mapping[str, TableRules] = field(default_factory=dict)
    query: str | None = None
    batch: int | None = None
    filtered: int = field(default=0, init=False)
    """Number of records so far that `ingest.where` left out."""
    _decoders: dict[str, RowDecoder | None] = field(default_factory=dict, init=False)

    def apply(self, partition: TopicPartition, batch: pa.RecordBatch) -> Iterator[TargetRows]:
        """Convert records of one partition to rows of the topic's table, and to rows of the table for dead letters.

        `batch` comes from the record decoder: at least one record, in offset order.

        Yields:
            Rows for the topic's table and dead letters, at least one of them in each item: usually one item of each,
            and several if the rows need much memory.

        Raises:
            TableError: the topic has no table, or the user's transform failed.
            UndecodableRecordError: a record does not decode and `ingest.onDecodeError` is `fail`, or its row breaks a
                table rule and `ingest.onDecodeError` is not `deadLetter`.
        """
        target = self.routing.target(partition.topic)
        decoder = self._decoder(partition.topic, target)
        if decoder is None:
            names = [name for name in batch.schema.names if name in target.schema.names]
            yield TargetRows(target, batch if len(names) == batch.num_columns else batch.select(names))
            return
        with advising():
            for _, decoded in decoder.decode_parts(batch):
                self.filtered += decoded.filtered
                if decoded.rows.num_rows:
                    yield TargetRows(target, decoded.rows)
                if decoded.dead is not None:
                    dead_letters = self.routing.dead_letters(target)
                    assert dead_letters, "row_settings sees to that"
                    yield TargetRows(dead_letters, self._labelled(decoded.dead, target), target.key)

    def _labelled(self, dead: pa.RecordBatch, spec: TableSpec) -> pa.RecordBatch:
        """Return the dead letters with their columns `target` (key of the table `spec`), `query` and `batch` set."""
        for name, value in {"target": spec.key, "query": self.query, "batch": self.batch}.items():
            of_column = dead.schema.field(name)
            column = pa.repeat(pa.scalar(value, of_column.type), dead.num_rows)
            dead = dead.set_column(dead.schema.get_field_index(name), of_column, column)
        return dead

    def _decoder(self, topic: str, spec: TableSpec) -> RowDecoder | None:
        if topic not in self._decoders:
            assert spec.row_format
            rows = replace(spec.row_format, rules=self.rules.get(spec.key, spec.row_format.rules))
            self._decoders[topic] = None if rows.is_plain else RowDecoder(rows)
        return self._decoders[topic]

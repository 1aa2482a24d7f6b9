"""The readers of the source whose tasks write the table's files: planned like `tiered_stream`, rows are files' names.

Offsets, and so the checkpoint, are those of `tiered_stream`: a query may go on in the other lane.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from tiered_stream.delta.data_files import file_rows
from tiered_stream.delta.ingest_settings import (
    ON_TABLE_ERROR,
    ONLY_TABLE,
    PARK,
    PARKED_FILE,
    TRANSACTION,
    source_options,
)
from tiered_stream.delta.known_rules import KnownRules, rules_text
from tiered_stream.delta.routing import Routing, TableTarget, routing_of
from tiered_stream.formats.row_format import RowFormat
from tiered_stream.formats.table_rules import TableRules
from tiered_stream.model import ASSUMED_RECORD_BYTES, Split
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.process import collection_paused, settle_worker, share_heap
from tiered_stream.source import BatchReader, SplitPartition, StreamReader

SMALLEST_TASK_BYTES = 8 << 20
"""Below this, a task of its own costs more than it gains."""
TABLE_BYTES = 1 << 19
"""One more table takes a task about as long as to land so much."""
FILES = 4
"""Of one task: at its start a core waits for the first bytes, so that fewer tasks are quicker."""


class FilesPartition(InputPartition):
    """The splits that one task lands, where else it is to report what they cost, and what is known of tables.

    `held` are those that are parked, `rules` what they ask of rows, each by key; `rows` what the planner was told by a
    registry of the rows of topics, by topic.
    """

    def __init__(
        self,
        splits: tuple[Split, ...],
        batch_log: tuple[str, ...],
        held: tuple[str, ...] = (),
        rows: Mapping[str, RowFormat] = MappingProxyType({}),
        rules: Mapping[str, TableRules] = MappingProxyType({}),
    ) -> None:
        super().__init__(splits)
        self.splits = splits
        self.batch_log = batch_log
        self.held = held
        self.rows = dict(rows)
        self.rules = dict(rules)


@dataclass(frozen=True, slots=True)
class TasksWrite:
    """What the tasks of a query write, and how its splits are made tasks."""

    routing: Routing
    park: bool
    parked_file: str
    only: str | None
    transaction: tuple[str, int | None] = ("", None)
    """The application transaction, as far as it is not that of Spark's query and batch."""

    @classmethod
    def asked(cls, options: Mapping[str, str]) -> TasksWrite:
        given = GivenOptions(options)
        park = given.read(ON_TABLE_ERROR) == PARK
        transaction = given.read(TRANSACTION)
        return cls(routing_of(options), park, given.read(PARKED_FILE), given.read(ONLY_TABLE), transaction)

    def partitions(
        self, splits: Sequence[Split], known: KnownRules, batch_log: tuple[str, ...] = ()
    ) -> list[InputPartition]:
        files = self.routing.files
        tables = [self.routing.route(topic).uri_for(topic) for topic in map(_topic, splits)]
        tasks = tasks_of(splits, target_bytes=files.target_bytes, parallelism=files.tasks, tables=tables)
        held = self._parked()
        rules = known.of(self._unknown_tables(splits))
        return [FilesPartition(task, batch_log, held, self._registered(task), rules) for task in tasks]

    def _registered(self, task: Sequence[Split]) -> dict[str, RowFormat]:
        """How to log in to the registry is among the options alone."""
        found = self.routing.registered(map(_topic, task))
        return {topic: replace(how, registry={}) for topic, how in found.items()}

    def _unknown_tables(self, splits: Sequence[Split]) -> list[TableTarget]:
        """Whose rules nobody has looked up; where tables are parked, or caught up, none that has any is written."""
        if self.routing.has_rules or self.park or self.only is not None:
            return []
        return [self.routing.target(topic) for topic in sorted(set(map(_topic, splits)))]

    def _parked(self) -> tuple[str, ...]:
        """As far as they are told: what is written for others, the driver does not commit."""
        try:
            return tuple(orjson.loads(Path(self.parked_file).read_bytes())) if self.parked_file else ()
        except FileNotFoundError:
            return ()

    def write(self, partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
        with collection_paused():
            from tiered_stream.delta.row_transform import TableRows, Transaction
            from tiered_stream.delta.task_writer import TaskTables, write_splits
            from tiered_stream.observe.metrics import micro_batch, send

        share_heap()
        if not isinstance(partition, FilesPartition):
            return
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        tables = TaskTables(partition.held, self.only, self.park and self.only is None)
        told = {topic: replace(how, registry=self.routing.rows[""].registry) for topic, how in partition.rows.items()}
        (query, batch), (name, number) = micro_batch() or (None, None), self.transaction
        of_batch = Transaction(name or query, batch if number is None else number)
        rows = TableRows(replace(self.routing, rows={**self.routing.rows, **told}), partition.rules, of_batch)
        written = write_splits(partition.splits, options, rows, task, tables)
        texts = {key: rules_text(rules) for key, rules in partition.rules.items()}
        files = [replace(file, rules=texts.get(file.share)) for file in written.files]
        send(written.metrics, (*options.metrics_addresses, *partition.batch_log))
        peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield file_rows(files, written.metrics, peak_memory, written.held)
        settle_worker()


class FilesReader(StreamReader):
    """Plans as `StreamReader` does; its tasks write."""

    def __init__(self, options: Options, tasks: TasksWrite) -> None:
        super().__init__(options)
        self._tasks = tasks
        self._rules = KnownRules()

    @classmethod
    def asked(cls, options: Mapping[str, str]) -> FilesReader:
        """That of a query with these options; errors as `parse_options`."""
        return cls(parse_options(source_options(options), streaming=True), TasksWrite.asked(options))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_tasks": self._tasks}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._tasks.partitions(self.splits(start, end), self._rules, self.batch_log)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.write(partition, self.options)


class FilesBatchReader(BatchReader):
    """Plans as `BatchReader` does; its tasks write."""

    def __init__(self, options: Options, tasks: TasksWrite) -> None:
        super().__init__(options)
        self._tasks = tasks

    @classmethod
    def asked(cls, options: Mapping[str, str]) -> FilesBatchReader:
        """That of a query with these options; errors as `parse_options`."""
        return cls(parse_options(source_options(options), streaming=False), TasksWrite.asked(options))

    def partitions(self) -> Sequence[InputPartition]:
        planned = super().partitions()
        splits = [each.split for each in planned if isinstance(each, SplitPartition)]
        return self._tasks.partitions(splits, KnownRules()) or planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.write(partition, self.options)


def _topic(split: Split) -> str:
    return split.topic_partition.topic


def tasks_of(
    splits: Sequence[Split], *, target_bytes: int, parallelism: int, tables: Sequence[str] = ()
) -> list[tuple[Split, ...]]:
    """Neighbours together, in tasks of about the same size, so that none is waited for.

    A task has about `FILES` files of `target_bytes`, or less where else there were fewer than `parallelism` tasks.
    `tables`: that of each split, unless they have one.
    """
    sizes = [split.storage_bytes or len(split.offsets) * ASSUMED_RECORD_BYTES for split in splits]
    for at, (before, table) in enumerate(pairwise(tables), 1):
        sizes[at] += TABLE_BYTES if table != before else 0
    share = -(-sum(sizes) // parallelism)
    most = min(FILES * target_bytes, max(SMALLEST_TASK_BYTES, share))
    # No split is more than a task: one from a broker may span a gap of any length in the offsets.
    weights = [min(size, most) for size in sizes]
    total = sum(weights)
    tasks: list[list[Split]] = [[] for _ in range(max(1, round(total / most)))]
    for split, weight, end in zip(splits, weights, accumulate(weights), strict=True):
        # By where its middle lies in the whole; in whole numbers, so that none is rounded up to the end.
        tasks[(2 * end - weight) * len(tasks) // (2 * total)].append(split)
    return [tuple(task) for task in tasks if task]

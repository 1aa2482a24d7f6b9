"""Spark readers of the direct lane: they plan like the `tiered_stream` source, but their tasks write the table's files.

The tasks return rows that name the files. The readers have the same offsets and checkpoints as the `tiered_stream`
source, so a query can continue in the Spark lane, and back.
"""

from __future__ import annotations

import resource
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.requirements.merge_requirements import merged_fields, rules_for_tasks
from tiered_stream.delta.schema.routing import Routing, TaskSettings
from tiered_stream.delta.schema.row_schema import fit_to_table
from tiered_stream.delta.settings.ingest_settings import TableSpec, source_options
from tiered_stream.delta.write.data_files import file_rows, rules_text
from tiered_stream.errors import TableError
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.rows.table_rules import RowRules, TableRules, UncertainCheckError
from tiered_stream.model import ASSUMED_RECORD_BYTES, ReportAddress, Split
from tiered_stream.observe.read_metrics import new_part
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.process.heap_and_gc import settle_worker, share_heap
from tiered_stream.spark.source import BatchReader
from tiered_stream.spark.split_partition import SplitPartition
from tiered_stream.spark.stream_reader import StreamReader

# Cache of table rules in the planner of a query for many tables.
#
# When a micro-batch has rows for a table for the first time, the planner looks up the rules in the table's log.

_OPENED_AT_ONCE = 16


class KnownRules:
    """Cache of table rules (NOT NULL, CHECK constraints, lengths of texts), by which tasks check rows.

    `fields` has, by table key (`TableSpec.key`), the columns that a MERGE sets, in Spark's JSON. It has only tables
    with one row for each key (`ingest.mode=upsert`) that were looked up.
    """

    def __init__(self) -> None:
        self._known: dict[str, TableRules] = {}
        self.fields: dict[str, Sequence[Mapping[str, Any]]] = {}

    def of(self, targets: Iterable[TableSpec]) -> Mapping[str, TableRules]:
        """Return the rules of the tables `targets` by table key; a table without rules is left out.

        A table that does not exist yet has the rules with which it will be created. A table is also left out if it
        cannot be opened, or if tasks cannot check its rules. The driver then commits to the table only if the table has
        no rules that tasks must check. Tables for dead letters (records that cannot become rows) are left out, too. If
        the library deltalake is not installed, no table is looked up.
        """
        with_rows = {target.key: target for target in targets if target.row_format is not None}
        missing = [target for key, target in with_rows.items() if key not in self._known]
        if missing and find_spec("deltalake"):
            with ThreadPoolExecutor(_OPENED_AT_ONCE, "table-rules") as threads:
                found = zip(missing, threads.map(_look_up, missing), strict=True)
            for target, (rules, fields) in found:
                if rules is not None:
                    self._known[target.key] = rules
                if target.keys:
                    self.fields[target.key] = fields
        return {key: self._known[key] for key in with_rows if self._known.get(key)}

    def forget(self, keys: Iterable[str]) -> None:
        """Forget the rules of the tables `keys`, so that the next call of `of` looks them up again.

        Call this method for parked tables (tables that could not be written), because their rules may have changed.
        """
        for key in keys:
            self._known.pop(key, None)


def _look_up(spec: TableSpec) -> tuple[TableRules | None, Sequence[Mapping[str, Any]]]:
    """Return a table's rules, and the columns that a MERGE sets in the table, in Spark's JSON.

    A missing table has the rules with which it will be created. The rules are None if the table cannot be opened, if
    tasks cannot check its rules, or if the table is missing and will have no rules.
    """
    from tiered_stream.delta.commit.deltalake_commit import describe, open_table

    assert spec.row_format
    fields: Sequence[Mapping[str, Any]] = ()
    try:
        table = open_table(spec)
        description = describe(table) if table else TableDescription(tuple(spec.schema.jsonValue()["fields"]))
        fields = merged_fields(description, spec.own_columns)
        rules = rules_for_tasks(description, spec)
        if not spec.keys:
            RowRules(rules, spec.row_format.written)
            if not set(rules.not_null) <= set(spec.row_format.written.names):
                return None, fields
    except (TableError, UncertainCheckError):
        return None, fields
    return None if table is None and not rules else rules, fields


SMALLEST_TASK_BYTES = 8 << 20
"""Smallest size in bytes of a task's splits, if records are divided among more tasks; each task has a fixed cost."""
TABLE_BYTES = 1 << 19
"""Cost of each further table in a task, as a number of bytes: to land records of this size takes about as long."""
FILES = 4
"""Maximum number of files of the target size (`ingest.targetFileSize`) that one task is planned to write.

A core waits for the first bytes of each task, so fewer and larger tasks are faster.
"""


@dataclass
class FilesPartition(InputPartition):
    """Input partition of one task: the task's splits, and values that the planner passes to the task.

    - `batch_log` has the addresses to which the task sends its metrics.
    - `held` has the keys of parked tables (tables that could not be written), for which the task writes no rows.
    - `rows` has, by topic, the row formats whose schemas the planner got from a schema registry.
    - `rules` has, by table key, the table rules that the planner has looked up.
    - `part` is the name of the input partition in the metrics that its task sends.
    """

    splits: tuple[Split, ...]
    batch_log: tuple[ReportAddress, ...]
    held: tuple[str, ...]
    rows: Mapping[str, RowFormat]
    rules: Mapping[str, TableRules]
    part: str = field(default_factory=new_part)


@dataclass(frozen=True, slots=True)
class TasksWrite:
    """Object by which the planner groups splits into tasks, and by which each task writes files."""

    settings: TaskSettings

    @property
    def routing(self) -> Routing:
        return self.settings.routing

    def partitions(
        self, splits: Sequence[Split], known: KnownRules, batch_log: tuple[ReportAddress, ...] = ()
    ) -> list[InputPartition]:
        files = self.routing.spec
        tables = [self.routing.route(topic).uri_for(topic) for topic in map(_topic, splits)]
        tasks = tasks_of(splits, target_bytes=files.target_bytes, parallelism=files.tasks, tables=tables)
        held = self._parked()
        known.forget(held)
        rules = known.of(self._tables_without_rules(splits, held))
        return [FilesPartition(task, batch_log, held, self._registered(task, known), rules) for task in tasks]

    def _registered(self, task: Sequence[Split], known: KnownRules) -> dict[str, RowFormat]:
        """Return, by topic of the task's splits, the row formats with schemas from a schema registry.

        The row format for a table with `ingest.mode=upsert` also has the table's columns that only older schemas have.
        The row formats do not have the registry's settings, because these settings contain the login to the registry.
        """
        topics = set(map(_topic, task))
        row_formats = dict(self.routing.registered(topics))
        for topic in topics if known.fields else ():
            target = self.routing.target(topic)
            if target.row_format and target.row_format.value.registered and (fields := known.fields.get(target.key)):
                row_formats[topic] = fit_to_table(target.row_format, fields)
        return {topic: replace(row_format, registry={}) for topic, row_format in row_formats.items()}

    def _tables_without_rules(self, splits: Sequence[Split], held: Collection[str]) -> list[TableSpec]:
        """Return the tables that get rows from the splits, and whose rules the planner must look up.

        `held` has the keys of parked tables, which get no rows. If the row formats already include the tables' rules,
        the list is empty.
        """
        if self.routing.has_rules:
            return []
        targets = [self.routing.target(topic) for topic in sorted(set(map(_topic, splits)))]
        return [target for target in targets if target.key not in held and self.settings.only in (None, target.key)]

    def _parked(self) -> tuple[str, ...]:
        """Return the keys of parked tables (tables that could not be written), which the driver has written to a file.

        If there is no such file, the result is empty.
        """
        try:
            file = self.settings.parked_file
            return tuple(orjson.loads(Path(file).read_bytes())) if file else ()
        except FileNotFoundError:
            return ()

    def write(self, partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
        from tiered_stream.delta.write.task_writer import TableRows, TaskTables, write_splits
        from tiered_stream.observe.read_metrics import current_micro_batch, send

        share_heap()
        if not isinstance(partition, FilesPartition):
            return
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        only = self.settings.only
        tables = TaskTables(partition.held, only, self.routing.spec.parks and only is None)
        registered = {
            topic: replace(row_format, registry=self.routing.rows.get(topic, self.routing.rows[""]).registry)
            for topic, row_format in partition.rows.items()
        }
        (query, batch), (name, number) = current_micro_batch() or (None, None), self.settings.transaction
        routing = replace(self.routing, rows={**self.routing.rows, **registered})
        rows = TableRows(routing, partition.rules, name or query, batch if number is None else number)
        written = write_splits(partition.splits, options, rows, task, tables)
        texts = {key: rules_text(rules) for key, rules in partition.rules.items()}
        files = [replace(file, rules=texts.get(file.share)) for file in written.files]
        send(written.metrics, (*options.report_addresses, *partition.batch_log), partition.part)
        peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield file_rows(files, written.metrics, peak_memory, written.held)
        settle_worker()


class FilesReader(StreamReader):
    """Streaming reader that plans like `StreamReader`, and whose tasks write the tables' files."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options` are the query's options. Raises ConfigurationError if options are invalid."""
        super().__init__(parse_options(source_options(options), streaming=True))
        self._tasks = TasksWrite(TaskSettings.of(options))
        self._rules = KnownRules()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_tasks": self._tasks}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._tasks.routing.check_separate_tables({partition.topic for partition in self.offsets.from_dict(end)})
        return self.logged(self._tasks.partitions(self.splits(start, end), self._rules, self.batch_log), end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.write(partition, self.options)


class FilesBatchReader(BatchReader):
    """Batch reader that plans like `BatchReader`, and whose tasks write the tables' files."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options` are the query's options. Raises ConfigurationError if options are invalid."""
        super().__init__(parse_options(source_options(options), streaming=False))
        self._tasks = TasksWrite(TaskSettings.of(options))

    def partitions(self) -> Sequence[InputPartition]:
        planned = super().partitions()
        splits = [partition.split for partition in planned if isinstance(partition, SplitPartition)]
        self._tasks.routing.check_separate_tables(set(map(_topic, splits)))
        return self._tasks.partitions(splits, KnownRules()) or planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.write(partition, self.options)


def _topic(split: Split) -> str:
    return split.topic_partition.topic


def tasks_of(
    splits: Sequence[Split], *, target_bytes: int, parallelism: int, tables: Sequence[str] = ()
) -> list[tuple[Split, ...]]:
    """Group neighbouring splits into tasks of about the same size, so that all tasks take about the same time.

    A task fills up to about `FILES` files. If this would give fewer than `parallelism` tasks, tasks are smaller, but
    not below `SMALLEST_TASK_BYTES`. Each tuple in the result has the splits of one task.

    Args:
        splits: splits of a micro-batch, in the order of their topics and offsets.
        target_bytes: target size of a file, in bytes.
        parallelism: number of tasks that run at once.
        tables: URI of each split's table; empty if all splits go to one table.
    """
    sizes = [split.storage_bytes or len(split.offsets) * ASSUMED_RECORD_BYTES for split in splits]
    for at, (before, table) in enumerate(pairwise(tables), 1):
        sizes[at] += TABLE_BYTES if table != before else 0
    share = -(-sum(sizes) // parallelism)
    max_bytes = min(FILES * target_bytes, max(SMALLEST_TASK_BYTES, share))
    # The size of a split is limited to one task, because a split from a broker may span an offset gap of any length.
    weights = [min(size, max_bytes) for size in sizes]
    total = sum(weights)
    tasks: list[list[Split]] = [[] for _ in range(max(1, round(total / max_bytes)))]
    for split, weight, end in zip(splits, weights, accumulate(weights), strict=True):
        # The middle of a split decides its task. With floats, rounding could give an index beyond the last task.
        tasks[(2 * end - weight) * len(tasks) // (2 * total)].append(split)
    return [tuple(task) for task in tasks if task]

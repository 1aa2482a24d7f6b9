"""Commits to a table of the latest state by deltalake, which merges a micro-batch's rows in the driver's process.

Such a table has one row for each key. Spark's MERGE (`merge.py`) reads the new rows and the table twice, and takes some
ten times the CPU time. But it uses all executors, meets every requirement of a table, and needs no bound on the rows.
So Spark merges the rows that deltalake cannot merge.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs
from pyspark.sql.types import StructType

from tiered_stream.delta.commit.deltalake_commit import NO_CHECKPOINT, DeltalakeTable, DeltalakeTransaction, append
from tiered_stream.delta.commit.deltalake_statistics import UnsafeTimes, find_unsafe_times, writer_properties
from tiered_stream.delta.commit.key_order import UNORDERED_KEY
from tiered_stream.delta.commit.merge import INSERTS, MergeClauses, MergedTable, unordered_error
from tiered_stream.delta.commit.transaction import BatchCommit, TableState
from tiered_stream.delta.requirements.lane import case_mismatch, table_rules
from tiered_stream.delta.requirements.merge_requirements import why_not_merged_by_deltalake
from tiered_stream.delta.schema.row_schema import spark_columns, struct_type
from tiered_stream.delta.schema.sql_types import arrow_schema, common_fields
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.delta.write.file_systems import open_folder
from tiered_stream.delta.write.latest_rows import DELETED_AT, DELETES, STAGED, UnorderedKeyError, last_rows
from tiered_stream.errors import TableError
from tiered_stream.formats.rows.change_records import named_column

log = logging.getLogger(__name__)

MAX_ROWS_BYTES = 512 << 20
"""Maximum size in bytes of a micro-batch's rows in Arrow memory; Spark merges a larger micro-batch."""
MAX_JOIN_BYTES = 1 << 30
"""Maximum memory in bytes for deltalake's join of new rows with the table; if more is needed, Spark merges the rows."""
_EXHAUSTED = "Resources exhausted"
"""Text in the error of a join that needs too much memory (DataFusion: `DataFusionError::ResourcesExhausted`)."""
_UNORDERED = re.compile(rf"{UNORDERED_KEY}: (\S+ and [\w./?-]+)")
"""Pattern in the error of a MERGE if a key has records in two partitions; the pattern's group has both partitions."""


@dataclass(eq=False)
class DeltalakeMergedTable:
    """Table with one row for each key, opened for commits by deltalake: a `transaction.CommitTable`.

    `merged` is the same table for Spark's MERGE. If `by_spark` is true, Spark merges micro-batches that deltalake
    cannot merge. If `by_spark` is false, commits of these micro-batches raise TableError.
    """

    table: DeltalakeTable
    merged: MergedTable
    by_spark: bool
    searched: set[str] = field(default_factory=set)
    """Paths of the table's files that were searched for dates and times that deltalake cannot rewrite right."""
    unsafe_times: UnsafeTimes = UnsafeTimes.NONE
    """Kinds of these dates and times in the files `searched`, and in the rows that were merged."""

    def prepare(self) -> None:
        self.table.prepare()

    def begin(self) -> DeltalakeMerge:
        return DeltalakeMerge(self, self.table.begin())


class _SparkNeededError(Exception):
    """Error for rows that Spark can merge but deltalake cannot; its text is the reason, in one line."""


class DeltalakeMerge:
    """One attempt to merge a micro-batch into a table by deltalake: a `transaction.DeltaTransaction`."""

    def __init__(self, of: DeltalakeMergedTable, transaction: DeltalakeTransaction) -> None:
        self._of = of
        self._transaction = transaction
        self.state: TableState = transaction.state

    def last_batch(self, query_id: str) -> int | None:
        return self._transaction.last_batch(query_id)

    def commit(self, batch: BatchCommit) -> int:
        if not batch.files:
            return self._transaction.commit(batch)
        of = self._of
        try:
            version = self._merge(batch)
        except _SparkNeededError as reason:
            if not of.by_spark:
                raise TableError(
                    f"rows cannot be merged into the table {of.merged.address}: {reason}, which needs Spark's MERGE. "
                    "Start the query in a session with delta-spark, and with ingest.commit=auto"
                ) from None
            log.info("the table %s: Spark merges batch %d: %s", of.merged.address, batch.batch_id, reason)
            of.merged.begin().commit(batch)
            # Another driver may have merged the batch before this attempt of Spark began.
            return self.state.version + 1
        of.merged.remove(batch.files)
        return version

    def _merge(self, batch: BatchCommit) -> int:
        """Merge the rows of the batch by deltalake; return a version of the table.

        The batch is in the returned version or in a later one.

        Raises:
            _SparkNeededError: only Spark can merge the rows; nothing is committed.
            UncertainCommitError: another commit came first, or the result is unknown.
            TableError: the table refused the commit, or a key has records in two partitions that no column orders.
        """
        merged, spec = self._of.merged, self._of.merged.spec
        if reason := why_not_merged_by_deltalake(self.state.description, spec.merge_on):
            raise _SparkNeededError(reason)
        folder = open_folder(spec.uri, spec.storage)
        with_times = self._are_times_in_years(folder, batch.files)
        columns = merged.columns(self.state.description)
        staged = _staged(folder, batch.files, columns)
        # deltalake distinguishes upper and lower case in names.
        keys = [named_column(staged.schema, name) or name for name in spec.keys]
        order_by = spec.order_by and named_column(staged.schema, spec.order_by)
        clauses = merged.clauses(self.state.description, batch.files, keys, order_by)
        try:
            source = last_rows(staged, keys, order_by, clauses.known, table_rules(self.state.description).not_null)
            source = source.select([*columns.names, DELETES, DELETED_AT, *clauses.known.values()])
            write = partial(self._write, batch, source, clauses, with_times)
            return self._transaction.write(batch, write, {"userMetadata": batch.metadata()})
        except UnorderedKeyError as error:
            raise unordered_error(str(merged.address), str(error)) from None

    def _write(
        self,
        batch: BatchCommit,
        rows: pa.Table,
        clauses: MergeClauses,
        with_times: bool,
        table: DeltaTable,
        properties: CommitProperties,
    ) -> None:
        """Merge `rows`, the rows of `batch`, into `table` by the MERGE in `clauses`, in one commit with `properties`.

        If Spark could merge the rows instead, the join gets at most `MAX_JOIN_BYTES` of memory. `with_times` must be
        false if a date or a time of the rows or of the table can be outside of the years 1 to 9999.

        Raises:
            _SparkNeededError: the join needs more memory than `MAX_JOIN_BYTES`.
            UnorderedKeyError: a key has records in two partitions, and no column orders them.
        """
        version = table.version()
        merger = table.merge(
            rows.to_reader(),
            clauses.matched,
            source_alias="source",
            target_alias="target",
            max_spill_size=MAX_JOIN_BYTES if self._of.by_spark else None,
            writer_properties=writer_properties(table, self._of.merged.spec.codec, with_times=with_times),
            commit_properties=properties,
            post_commithook_properties=NO_CHECKPOINT,
        )
        if clauses.unordered:
            merger = merger.when_matched_delete(_if_unordered(clauses))
        merger = merger.when_matched_delete(clauses.delete)
        if clauses.own:
            merger = merger.when_matched_update({**clauses.updates, **clauses.own}, clauses.replace)
        merger = merger.when_matched_update(dict(clauses.updates), clauses.update)
        try:
            merger.when_not_matched_insert(dict(clauses.values), INSERTS).execute()
        except DeltaError as error:
            if _EXHAUSTED in str(error):
                raise _SparkNeededError("rows and table need more memory than one process may take") from None
            if found := _UNORDERED.search(str(error)):
                raise UnorderedKeyError(found[1]) from None
            raise
        if table.version() == version:
            # deltalake writes no version if no row has changed, but the table must have the micro-batch's transaction.
            append(replace(batch, files=()), table, properties)

    def _are_times_in_years(self, folder: fs.FileSystem, files: Sequence[DataFile]) -> bool:
        """Return whether all dates and times of the table and of the new rows in `files` are in the years 1 to 9999.

        Paths are relative to `folder`, the table's folder. Raise `_SparkNeededError` if there are dates before 1582 or
        times before 1900, because only Spark can rewrite them.
        """
        of = self._of
        if not any(_has_days_or_times(each.type) for each in arrow_schema(struct_type(self.state.description.fields))):
            return True
        paths = {unquote(path) for path in self._transaction.paths()}
        odd = of.unsafe_times | find_unsafe_times(folder, [*(paths - of.searched), *(file.path for file in files)])
        if UnsafeTimes.NEED_VERSION_KEY in odd:
            raise _SparkNeededError("there are dates before 1582 or times before 1900")
        of.searched, of.unsafe_times = paths, odd
        return UnsafeTimes.BEYOND_YEARS not in odd


def _if_unordered(clauses: MergeClauses) -> str:
    """Return an SQL condition on a pair of rows with the same key; it fails if Kafka gives their records no order.

    Otherwise, the condition is false. DataFusion has no function that raises an error. So the condition casts a text
    that is no number, because DataFusion's error has this text. DataFusion may cast before it evaluates a condition
    around the cast, so the text itself depends on the condition.
    """
    text = f"CASE WHEN {clauses.unordered} THEN '{UNORDERED_KEY}: ' || {clauses.partitions} ELSE '0' END"
    return f"CAST({text} AS BIGINT) = 1"


def _staged(folder: fs.FileSystem, files: Sequence[DataFile], columns: StructType) -> pa.Table:
    """Read the files that tasks wrote for a MERGE; return their rows with the columns `columns` and `STAGED`.

    Raises:
        _SparkNeededError: the rows have more than `MAX_ROWS_BYTES`, or the name of a nested field has another case in
            the rows than in `columns`.
    """
    schema = pa.schema([*arrow_schema(columns), *STAGED])
    tables, size = [], 0
    for rows in _row_groups(folder, files):
        size += rows.nbytes
        if size > MAX_ROWS_BYTES:
            raise _SparkNeededError(f"its rows have more than {MAX_ROWS_BYTES >> 20} MiB")
        # Arrow casts structs by exact names, so a field whose name has another case would become null.
        for known, own in common_fields(columns.jsonValue(), spark_columns(rows.schema, None).jsonValue()):
            if reason := case_mismatch(known["type"], own["type"], f"{known['name']}."):
                raise _SparkNeededError(reason)
        tables.append(_fitted(rows, schema))
    return pa.concat_tables(tables)


def _row_groups(folder: fs.FileSystem, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    for file in files:
        with folder.open_input_file(file.path) as source:
            parquet = pq.ParquetFile(source)
            for number in range(parquet.num_row_groups):
                yield parquet.read_row_group(number)


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return `rows` with the columns and types of `schema`; a column that `rows` lacks is null.

    Names of columns are compared without regard to case.
    """
    known = {name.lower(): name for name in rows.column_names}
    columns = [
        rows.column(known[each.name.lower()]).cast(each.type)
        if each.name.lower() in known
        else pa.nulls(len(rows), each.type)
        for each in schema
    ]
    return pa.table(columns, schema=schema)


def _has_days_or_times(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) or any(
        _has_days_or_times(kind.field(number).type) for number in range(kind.num_fields)
    )

"""Commits to a table of the latest state: one MERGE by the session's delta-spark applies all rows of a micro-batch.

Tasks have staged the rows: each file has the last row of each key among the rows that its task kept in memory. Spark
reads the files, keeps the last row of each key, and merges these rows into the table. Delta writes the micro-batch's
application transaction in the commit of the MERGE (`spark.databricks.delta.write.txnAppId`). So a repeated micro-batch
changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import orjson
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from tiered_stream.delta.catalog.address import TableAddress, known_scheme
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, all_messages, first_line, is_conflict, java_classes
from tiered_stream.delta.commit.delta_spark_commit import FINAL, INTERRUPTED, DeltaSparkTable, DeltaSparkTransaction
from tiered_stream.delta.commit.key_order import mixed_sql, rank_sql
from tiered_stream.delta.commit.transaction import BatchCommit, DeltaTransaction, TableState, UncertainCommitError
from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.schema.row_schema import spark_columns, struct_type
from tiered_stream.delta.schema.sql_types import sql_name, sql_text
from tiered_stream.delta.settings.ingest_settings import TableFiles
from tiered_stream.delta.settings.upsert_settings import MERGE_ON, ORDER_BY
from tiered_stream.delta.write.data_files import DataFile, offset_ranges
from tiered_stream.delta.write.latest_rows import DELETES, STAGED
from tiered_stream.errors import ConfigurationError, TableError

_APPLICATION, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MERGE_SETTINGS = {
    # A column that the rows lack keeps its value, whatever the session wants of its own merges.
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # Delta's MERGE does not find a CHAR column that Spark pads as it reads the table. The texts in files are padded.
    "spark.sql.readSideCharPadding": "false",
}
"""Settings of every session that merges rows into a table of the latest state."""
_SETTINGS = {
    **MERGE_SETTINGS,
    # Delta would copy the source before it reads the source twice; staged files never change.
    "spark.databricks.delta.merge.materializeSource": "none",
}
_NO_GLOBS = {"__globPaths__": "false"}
"""Option of Spark's readers by which a path may have `[`, `{` or `*`."""
_SOURCE, _RANK, _MIXED = "tiered_stream_upserts", "__staged_rank", "__staged_mixed"
_FAILED = {
    "org.apache.spark.SparkException",
    "org.apache.spark.SparkRuntimeException",
    "org.apache.spark.sql.delta.schema.DeltaInvariantViolationException",
}
"""Java classes of errors in Spark's work on the rows, which another attempt would raise again."""
_CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|\bJob \d+ cancelled\b")
"""Pattern in Spark's error for a job that was cancelled. A table's own constraint may have the word, too."""
_UNORDERED = "tiered_stream: a key occurs in several partitions"
_NOT_EMPTY = "tiered_stream: the table has rows"


@dataclass(frozen=True)
class MergedTable:
    """Table of the latest state, opened for commits: a `transaction.CommitTable`.

    `files` has the key columns. `merge_on` is the value of `ingest.mergeOn`. `written` are the columns of the rows.
    """

    spark: SparkSession
    address: TableAddress
    files: TableFiles
    merge_on: str | None
    written: StructType
    _grown: set[str] = field(default_factory=set, init=False, compare=False)
    """Names in lower case of the columns that earlier batches of the query have added to the table."""

    def prepare(self) -> None:
        """Do nothing, because delta-spark keeps the table's state."""

    def begin(self) -> DeltaTransaction:
        return MergeTransaction(self, DeltaSparkTable(self.spark, self.address).begin())

    @cached_property
    def session(self) -> SparkSession:
        """Copy of the session for this table's merges, so that their settings reach no other query."""
        return SparkSession(self.spark.sparkContext, self.spark._jsparkSession.cloneSession())

    @cached_property
    def folder(self) -> str:
        """Path of the table's folder, in the form that Spark accepts."""
        return unquote(known_scheme(self.spark, self.files.uri)).rstrip("/")

    def columns(self, description: TableDescription, files: Sequence[DataFile]) -> StructType:
        """Return the table's columns that rows of the query have, with the names and types of the table.

        If earlier batches have added a column, a record without its field has null there, whatever `files` have.
        """
        grown = (StructType.fromJson(orjson.loads(text)) for text in {file.schema for file in files} if text)
        self._grown.update(name.lower() for schema in grown for name in schema.names)
        names = self._grown.union(map(str.lower, self.written.names))
        table = struct_type(description.fields)
        return StructType([StructField(each.name, each.dataType) for each in table if each.name.lower() in names])

    def check_condition(self, description: TableDescription) -> None:
        """Raise ConfigurationError if `ingest.mergeOn` is no condition on columns of the table and of the rows."""
        if self.merge_on is None:
            return
        target = struct_type(description.fields)
        empty = [self.session.createDataFrame([], schema) for schema in (target, self.written)]
        try:
            empty[0].alias("target").crossJoin(empty[1].alias("source")).where(self.merge_on)
        except PySparkException as error:
            raise ConfigurationError(
                f"{MERGE_ON.name}={self.merge_on} is no condition on columns of target, the table {self.address}, and "
                f"of source, the new rows: {first_line(error)}"
            ) from error

    def remove(self, files: Sequence[DataFile]) -> None:
        """Remove staged files after their commit; VACUUM removes files that stay."""
        with suppress(Py4JError):
            hadoop = self.spark._jsparkSession.sessionState().newHadoopConf()
            for file in files:
                path = _java(self.spark).org.apache.hadoop.fs.Path(f"{self.folder}/{file.path}")
                path.getFileSystem(hadoop).delete(path, False)


class MergeTransaction:
    """One attempt to merge a micro-batch into a table: a `transaction.DeltaTransaction`."""

    def __init__(self, table: MergedTable, transaction: DeltaSparkTransaction) -> None:
        self._table = table
        self._transaction = transaction
        self.state: TableState = transaction.state

    def last_batch(self, query_id: str) -> int | None:
        return self._transaction.last_batch(query_id)

    def commit(self, batch: BatchCommit) -> int:
        if not batch.files:
            return self._transaction.commit(batch)
        table, session = self._table, self._table.session
        settings = {
            **_SETTINGS, _APPLICATION: batch.query_id, _VERSION: str(batch.batch_id), _METADATA: batch.metadata()
        }  # fmt: skip
        for name, value in settings.items():
            session.conf.set(name, value)
        columns = table.columns(self.state.description, batch.files)
        clauses = merge_clauses(columns.names, table.files.keys, is_newer_sql(table.files.order_by), table.merge_on)
        only_insert = not self._transaction.has_rows()
        try:
            self._last_rows(batch.files, columns).createOrReplaceTempView(_SOURCE)
            session.sql(merge_sql(table.address.sql_name, _SOURCE, clauses, only_insert=only_insert))
        except JAVA_ERRORS as error:
            if _is_stopped(error):
                raise
            raise _table_error(table, error) from error
        table.remove(batch.files)
        return self.state.version + 1

    def _last_rows(self, files: Sequence[DataFile], columns: StructType) -> DataFrame:
        """Return the last row of each key among the rows of the staged files."""
        table = self._table
        schema = StructType([*columns, *spark_columns(STAGED, None)])
        paths = [f"{table.folder}/{file.path}" for file in files]
        rows = table.session.read.schema(schema).options(**_NO_GLOBS).parquet(*paths)
        one = len(offset_ranges(files)) == 1
        ranked, last = last_rows_sql(columns.names, table.files.keys, table.files.order_by, one=one)
        return rows.selectExpr("*", *ranked).where(f"{_RANK} = 1").selectExpr(*last)


@dataclass(frozen=True, slots=True)
class MergeClauses:
    """Parts of a MERGE as SQL, which Spark and deltalake read alike. `target` is the table, and `source` the new rows.

    `key` is the table's first key. `matched`, `delete` and `update` are the conditions for a row of both to be the
    same, to be deleted, and to be updated. `insert` is the condition for a new row to be inserted. `values` has the new
    values, by column.
    """

    key: str
    matched: str
    delete: str
    update: str
    insert: str
    values: Mapping[str, str]


def merge_clauses(
    columns: Sequence[str], keys: Sequence[str], is_newer: str | None, merge_on: str | None
) -> MergeClauses:
    """Return the parts of a MERGE of rows with `columns`, whose rows are identified by the columns `keys`.

    `is_newer` is SQL that is true if a new row may replace the row of the table; None: it may always. `merge_on` is the
    value of `ingest.mergeOn`.
    """
    same = [f"target.{sql_name([key])} = source.{sql_name([key])}" for key in keys]
    only = f" AND {is_newer}" if is_newer else ""
    return MergeClauses(
        f"target.{sql_name([keys[0]])}",
        " AND ".join([*same, *([f"({merge_on})"] if merge_on else [])]),
        f"source.{DELETES}{only}",
        f"NOT source.{DELETES}{only}",
        f"NOT source.{DELETES}",
        {name: f"source.{name}" for name in (sql_name([name]) for name in columns)},
    )


def is_newer_sql(order_by: str | None) -> str | None:
    """Return SQL that is true if the table's row has no larger value of `order_by`; None: no column orders rows."""
    if order_by is None:
        return None
    by = sql_name([order_by])
    return f"(target.{by} IS NULL OR source.{by} >= target.{by})"


def merge_sql(table: str, source: str, merged: MergeClauses, *, only_insert: bool = False) -> str:
    """Return the MERGE of the view `source` of new rows into `table`, which is SQL text itself.

    If `only_insert` is true, for a table without rows, the MERGE reads the new rows once in place of twice. It fails if
    another writer has added rows, which it would leave as they are.
    """
    values = ", ".join(f"target.{name} = {value}" for name, value in merged.values.items())
    changes = [
        f"WHEN MATCHED AND {merged.delete} THEN DELETE",
        f"WHEN MATCHED AND {merged.update} THEN UPDATE SET {values}",
    ]
    is_empty = f"raise_error(concat({sql_text(_NOT_EMPTY + ': ')}, CAST({merged.key} AS STRING))) IS NULL"
    clauses = [
        f"MERGE INTO {table} AS target USING {source} AS source ON {merged.matched}",
        *([f"AND {is_empty}"] if only_insert else changes),
        f"WHEN NOT MATCHED AND {merged.insert} THEN INSERT ({', '.join(merged.values)})",
        f"VALUES ({', '.join(merged.values.values())})",
    ]
    return " ".join(clauses)


def last_rows_sql(
    columns: Sequence[str], keys: Sequence[str], order_by: str | None, *, one: bool
) -> tuple[list[str], list[str]]:
    """Return two lists of SQL expressions: columns that rank the rows of a key, and the columns of the last rows.

    The last row of a key has rank 1. If `one` is false, the rows are of several partitions. Then Kafka gives a key's
    rows in several partitions no order, so that without `order_by` Spark raises an error for such a key.
    """
    ranked = [f"{rank_sql(keys, order_by)} AS {_RANK}"]
    deletes = DELETES
    if not one and order_by is None:
        ranked.append(f"{mixed_sql(keys)} AS {_MIXED}")
        error = f"raise_error(concat({sql_text(_UNORDERED + ': ')}, {_MIXED}))"
        deletes = f"CASE WHEN {_MIXED} IS NULL THEN {DELETES} ELSE CAST({error} AS BOOLEAN) END AS {DELETES}"
    return ranked, [*(sql_name([name]) for name in columns), deletes]


def _is_stopped(error: Py4JJavaError | CapturedException) -> bool:
    """Return whether the query is being stopped; Spark recognizes the error only if it passes unchanged."""
    return bool(java_classes(error) & INTERRUPTED) or _CANCELLED.search(first_line(error)) is not None


def _table_error(table: MergedTable, error: Py4JJavaError | CapturedException) -> TableError:
    """Return the error of a failed MERGE; it is an UncertainCommitError if another attempt may succeed."""
    for message in all_messages(error):
        _, found, partitions = message.partition(f"{_UNORDERED}: ")
        if found:
            return unordered_error(str(table.address), partitions.splitlines()[0])
        if f"{_NOT_EMPTY}: " in message:
            return UncertainCommitError(f"another writer has added the first rows to the table {table.address}")
    fails_again = bool(java_classes(error) & (FINAL | _FAILED)) and not is_conflict(error)
    kind = TableError if fails_again else UncertainCommitError
    return kind(f"rows cannot be merged into the table {table.address} by Spark's Delta: {first_line(error)}")


def unordered_error(table: str, partitions: str) -> TableError:
    """Return the error for a key with records in several partitions, which no column orders."""
    return TableError(
        f"a key of the table {table} has records in the partitions {partitions}, and Kafka gives them no order: set "
        f"{ORDER_BY.name} to a column that does, such as timestamp"
    )


def _java(spark: SparkSession) -> Any:
    return spark._jvm

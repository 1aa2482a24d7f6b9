"""Commits to a table of the latest state: one MERGE by the session's delta-spark applies all rows of a micro-batch.

Such a table has one row for each key. Tasks have staged the new rows: each file has the last row of each key among the
rows that its task kept in memory. Spark reads the files, keeps the last row of each key, and merges these rows into the
table. Delta writes the micro-batch's application transaction in the commit of the MERGE
(`spark.databricks.delta.write.txnAppId`). So a repeated micro-batch changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tiered_stream.delta.catalog.address import USER_METADATA, TableAddress, known_scheme
from tiered_stream.delta.catalog.java_errors import (
    JAVA_ERRORS,
    first_line,
    is_conflict,
    is_stopped,
    java_classes,
    raised_text,
)
from tiered_stream.delta.commit.delta_spark_commit import ALL_ROWS, FINAL, DeltaSparkTable, DeltaSparkTransaction
from tiered_stream.delta.commit.key_order import UNORDERED_KEY, last_rows
from tiered_stream.delta.commit.transaction import BatchCommit, DeltaTransaction, TableState, UncertainCommitError
from tiered_stream.delta.requirements.lane import COMPUTED, TableDescription, table_rules
from tiered_stream.delta.requirements.merge_requirements import merged_columns
from tiered_stream.delta.requirements.session_requirements import CODEC
from tiered_stream.delta.schema.row_plan import record_columns
from tiered_stream.delta.schema.row_schema import spark_columns, struct_type
from tiered_stream.delta.schema.sql_types import sql_name, sql_text
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.settings.row_settings import MERGE_ON, ORDER_BY, OWN_COLUMNS
from tiered_stream.delta.write.data_files import DataFile, offset_ranges
from tiered_stream.delta.write.latest_rows import DELETED_AT, DELETES, STAGED, known_at
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.spark.session import copied_session

_APPLICATION, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
MERGE_SETTINGS = {
    # The MERGE names all columns, whatever the session wants of its own merges.
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # Delta's MERGE does not find a CHAR column that Spark pads as it reads the table. The texts in files are padded.
    "spark.sql.readSideCharPadding": "false",
    # Columns of staged files may have names in another case than in the table; Spark would read nulls.
    "spark.sql.caseSensitive": "false",
    # Errors of `raise_error` have an error class, by which they are recognized.
    "spark.sql.legacy.raiseErrorWithoutErrorClass": "false",
    **ALL_ROWS,
}
"""Spark settings of every session that merges rows into a table with one row for each key."""
_SETTINGS = {
    **MERGE_SETTINGS,
    # Delta would copy the source before it reads the source twice; staged files never change.
    "spark.databricks.delta.merge.materializeSource": "none",
}
_NO_GLOBS = {"__globPaths__": "false"}
"""Option by which Spark's readers take `[`, `{` and `*` in a path literally."""
_SOURCE = "tiered_stream_upserts"
_FAILED = {
    "org.apache.spark.SparkException",
    "org.apache.spark.SparkRuntimeException",
    "org.apache.spark.sql.delta.schema.DeltaInvariantViolationException",
}
"""Java classes of errors in Spark's work on the rows, which another attempt would raise again."""
INSERTS = f"NOT source.{DELETES}"
"""SQL condition of a MERGE on a new row whose key the table does not have; if it is true, the row is inserted."""
PLACE = ("topic", "partition")
"""Kafka's columns that say in which partition a record is."""
_NOT_EMPTY = "tiered_stream: the table has rows"


@dataclass(frozen=True)
class MergedTable:
    """Table with one row for each key, opened for commits by Spark's MERGE: a `transaction.CommitTable`.

    `spec` has the key columns and `ingest.mergeOn`.
    """

    spark: SparkSession
    address: TableAddress
    spec: TableSpec

    def prepare(self) -> None:
        """Do nothing, because delta-spark keeps the table's state in memory, so that it need not be read ahead."""

    def begin(self) -> DeltaTransaction:
        return MergeTransaction(self, DeltaSparkTable(self.spark, self.address).begin())

    @cached_property
    def session(self) -> SparkSession:
        """Copy of the session for this table's merges, so that their settings reach no other query."""
        return copied_session(self.spark, {})

    @cached_property
    def folder(self) -> str:
        """Path of the table's folder, in the form that Spark accepts."""
        return unquote(known_scheme(self.spark, self.spec.uri)).rstrip("/")

    def columns(self, description: TableDescription) -> StructType:
        """Return the columns that a MERGE sets, with the names and types that they have in the table.

        `description` is the table's metadata and protocol.
        """
        return merged_columns(description, self.spec.own_columns)

    def clauses(
        self, description: TableDescription, files: Sequence[DataFile], keys: Sequence[str], order_by: str | None
    ) -> MergeClauses:
        """Return the parts of a MERGE of the rows in `files`, which tasks have written for the MERGE.

        `keys` are the key columns. `order_by` is the column that orders rows of one key; None: there is no such column.
        For deltalake, these names have the same case as in the table.
        """
        columns, kafka = self.columns(description).names, record_columns(self.spec)
        written = {name.lower(): name for name in columns}
        names = (written.get(kafka.get(each, "").lower()) for each in PLACE) if order_by is None else ()
        places = [name for name in names if name is not None]
        own = own_columns(description, columns)
        known = known_at(columns, {name for file in files for name in file.placeholders})
        return merge_clauses(columns, keys, order_by, self.spec.merge_on, places, own, known)

    def check(self, description: TableDescription) -> None:
        """Check that `ingest.ownColumns` and `ingest.mergeOn` suit the table's columns.

        Raises:
            ConfigurationError: the table lacks a column in `ingest.ownColumns`, or `ingest.mergeOn` is no condition on
                the table's columns.
        """
        target = struct_type(description.fields)
        known = {name.lower() for name in target.names}
        for name in self.spec.own_columns:
            if name.lower() not in known:
                raise ConfigurationError(
                    f"{OWN_COLUMNS.name} has {name}, which the table {self.address} lacks: correct the name, or add "
                    "the column with ALTER TABLE first"
                )
        if self.spec.merge_on is None:
            return
        empty = [self.session.createDataFrame([], schema) for schema in (target, self.columns(description))]
        try:
            empty[0].alias("target").crossJoin(empty[1].alias("source")).where(self.spec.merge_on)
        except PySparkException as error:
            raise ConfigurationError(
                f"{MERGE_ON.name}={self.spec.merge_on} is no condition on columns of target, the table {self.address}, "
                f"and of source, the new rows: {first_line(error)}"
            ) from error

    def remove(self, files: Sequence[DataFile]) -> None:
        """Remove the files that tasks wrote for a MERGE, after its commit; VACUUM removes files that stay."""
        with suppress(Py4JError):
            jvm: Any = self.spark._jvm
            hadoop = self.spark._jsparkSession.sessionState().newHadoopConf()
            for file in files:
                path = jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{file.path}")
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
            **_SETTINGS, CODEC: table.spec.codec, _APPLICATION: batch.query_id, _VERSION: str(batch.batch_id),
            USER_METADATA: batch.metadata(),
        }  # fmt: skip
        for name, value in settings.items():
            session.conf.set(name, value)
        columns = table.columns(self.state.description)
        clauses = table.clauses(self.state.description, batch.files, table.spec.keys, table.spec.order_by)
        only_insert = not self._transaction.has_rows()
        schema = StructType([*columns, *spark_columns(STAGED, None)])
        paths = [f"{table.folder}/{file.path}" for file in batch.files]
        try:
            staged = session.read.schema(schema).options(**_NO_GLOBS).parquet(*paths)
            last_rows(
                staged, columns, table.spec.keys, table.spec.order_by, clauses.known,
                table_rules(self.state.description).not_null,
                one=len(offset_ranges(batch.files)) == 1, resets=bool(clauses.own),
            ).createOrReplaceTempView(_SOURCE)  # fmt: skip
            session.sql(merge_sql(table.address.sql_name, _SOURCE, clauses, only_insert=only_insert))
        except JAVA_ERRORS as error:
            if is_stopped(error):
                raise
            raise _table_error(table, error) from error
        table.remove(batch.files)
        return self.state.version + 1


@dataclass(frozen=True, slots=True)
class MergeClauses:
    """Parts of a MERGE as SQL that both Spark and deltalake understand.

    In the SQL, `target` is the table, and `source` has the new rows. A pair is a row of the table and a new row with
    the same key.

    - `key` is the table's first key column.
    - `matched` is the condition by which a row of the table and a new row are a pair.
    - `delete`, `update` and `replace` are conditions on a pair: the table's row is deleted, is updated, or becomes a
      new row, because its key was deleted meanwhile.
    - `values` has the values of an inserted row, by column.
    - `updates` has the new values of the table's row in a pair, by column.
    - `own` has the columns that records never set, with their values in a new row.
    - `known` has the names of helper columns of the new rows, by the column that has placeholders in some new rows
      (`latest_rows.known_at`).
    - `unordered` is a condition on a pair: its records are in two partitions, so that Kafka gives them no order.
      `partitions` is SQL for a text with the two partitions. Both are empty if a column orders records.
    """

    key: str
    matched: str
    delete: str
    update: str
    values: Mapping[str, str]
    unordered: str
    partitions: str
    own: Mapping[str, str]
    known: Mapping[str, str]
    replace: str
    updates: Mapping[str, str]


def merge_clauses(
    columns: Sequence[str],
    keys: Sequence[str],
    order_by: str | None,
    merge_on: str | None,
    places: Sequence[str] = (),
    own: Mapping[str, str] = MappingProxyType({}),
    known: Mapping[str, str] = MappingProxyType({}),
) -> MergeClauses:
    """Return the parts of a MERGE of rows with the columns `columns`.

    Args:
        columns: columns that the MERGE sets.
        keys: columns that identify a row.
        order_by: column that orders the rows of a key: a new row replaces the table's row if its value is not smaller.
            None: a new row always replaces the table's row.
        merge_on: value of `ingest.mergeOn`, an SQL condition by which the MERGE reads fewer files; None: it is not set.
        places: columns with a row's topic and partition, as far as the table has them; empty if a column orders rows.
        own: columns that records never set, with their values in a new row (`own_columns`).
        known: result of `latest_rows.known_at` for the columns with placeholders. If a new row has a placeholder in a
            column, and no earlier new row of its key has a value, the table's row keeps its value.
    """
    names = [sql_name([place]) for place in places]
    texts = (
        " || '/' || ".join(f"coalesce(CAST({side}.{name} AS STRING), '?')" for name in names)
        for side in ("target", "source")
    )
    same = [f"target.{sql_name([key])} = source.{sql_name([key])}" for key in keys]
    only = "" if order_by is None else f" AND {_not_below_sql(f'source.{sql_name([order_by])}', order_by)}"
    values = {name: f"source.{name}" for name in (sql_name([name]) for name in columns)}
    updates = {
        name: f"CASE WHEN {_is_newer_sql(f'source.{column}', order_by)} THEN source.{name} ELSE target.{name} END"
        for name, column in ((sql_name([name]), column) for name, column in known.items())
    }
    return MergeClauses(
        f"target.{sql_name([keys[0]])}",
        " AND ".join([*same, *([f"({merge_on})"] if merge_on else [])]),
        f"source.{DELETES}{only}",
        f"NOT source.{DELETES}{only}",
        values,
        " OR ".join(f"target.{name} <> source.{name}" for name in names),
        " || ' and ' || ".join(texts) if names else "",
        own,
        known,
        f"{_is_newer_sql(f'source.{DELETED_AT}', order_by)} AND NOT source.{DELETES}{only}",
        {**values, **updates},
    )


def own_columns(description: TableDescription, written: Sequence[str]) -> dict[str, str]:
    """Return the table's columns that are not in `written`, with SQL for the value of each in an inserted row.

    Columns that Delta computes itself are left out.
    """
    names = {name.lower() for name in written}
    others = (field for field in description.fields if field["name"].lower() not in names)
    kinds = {sql_name([field["name"]]): field.get("metadata", {}) for field in others}
    plain = {name: metadata for name, metadata in kinds.items() if not COMPUTED & metadata.keys()}
    return {name: "DEFAULT" if "CURRENT_DEFAULT" in metadata else "NULL" for name, metadata in plain.items()}


def _is_newer_sql(value: str, order_by: str | None) -> str:
    """Return an SQL condition: `value` is not null, and the table's row has no larger value of `order_by`.

    If `order_by` is None, the condition is `value` itself, which is true or null.
    """
    return value if order_by is None else f"{value} IS NOT NULL AND {_not_below_sql(value, order_by)}"


def _not_below_sql(value: str, order_by: str) -> str:
    """Return an SQL condition: the table's row has no larger value of `order_by` than the SQL expression `value`."""
    by = f"target.{sql_name([order_by])}"
    return f"({by} IS NULL OR {value} >= {by})"


def merge_sql(table: str, source: str, merged: MergeClauses, *, only_insert: bool = False) -> str:
    """Return the MERGE statement that merges the new rows in the view `source` into `table`, both named as SQL text.

    `only_insert` is for a table without rows. The MERGE then reads the new rows once, not twice. It fails if another
    writer has added rows, because it would leave these rows as they are.
    """
    values = ", ".join(f"target.{name} = {value}" for name, value in merged.updates.items())
    reset = ", ".join(f"target.{name} = {value}" for name, value in merged.own.items())
    changes = [
        *([f"WHEN MATCHED AND {_if_unordered(merged)} THEN DELETE"] if merged.unordered else []),
        f"WHEN MATCHED AND {merged.delete} THEN DELETE",
        *([f"WHEN MATCHED AND {merged.replace} THEN UPDATE SET {values}, {reset}"] if reset else []),
        f"WHEN MATCHED AND {merged.update} THEN UPDATE SET {values}",
    ]
    is_empty = f"raise_error(concat({sql_text(_NOT_EMPTY + ': ')}, CAST({merged.key} AS STRING))) IS NULL"
    clauses = [
        f"MERGE INTO {table} AS target USING {source} AS source ON {merged.matched}",
        *([f"AND {is_empty}"] if only_insert else changes),
        f"WHEN NOT MATCHED AND {INSERTS} THEN INSERT ({', '.join(merged.values)})",
        f"VALUES ({', '.join(merged.values.values())})",
    ]
    return " ".join(clauses)


def _if_unordered(merged: MergeClauses) -> str:
    """Return an SQL condition on a pair of rows with the same key; it fails if Kafka gives their records no order.

    Otherwise, the condition is false.
    """
    error = f"raise_error({sql_text(UNORDERED_KEY + ': ')} || {merged.partitions})"
    return f"CASE WHEN {merged.unordered} THEN CAST({error} AS BOOLEAN) ELSE false END"


def _table_error(table: MergedTable, error: Py4JJavaError | CapturedException) -> TableError:
    """Return the error to raise for a failed MERGE; it is an UncertainCommitError if another attempt may succeed."""
    raised = raised_text(error) or ""
    if raised.startswith(f"{UNORDERED_KEY}: "):
        return unordered_error(str(table.address), raised.removeprefix(f"{UNORDERED_KEY}: "))
    if raised.startswith(_NOT_EMPTY):
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

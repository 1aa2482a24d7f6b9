"""Table to which a redrive appends the rows of dead letters, or into which it merges rows with keys.

Each number with which a redrive marks dead letters (column `redrive`) has a separate application transaction in the
table. The version of that transaction is the value of `Outcome` for the dead letters with this number.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from tiered_stream.delta.catalog.address import find_address
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, first_line, is_conflict, raised_text, spark_errors
from tiered_stream.delta.commit.commit_attempts import drops_transactions
from tiered_stream.delta.commit.delta_spark_commit import DeltaSparkTable, find_by_spark
from tiered_stream.delta.commit.key_order import UNORDERED_KEY, columns_with_placeholders, last_rows
from tiered_stream.delta.commit.merge import MERGE_SETTINGS, PLACE, merge_clauses, merge_sql, own_columns
from tiered_stream.delta.commit.transaction import BatchCommit, UncertainCommitError
from tiered_stream.delta.redrive.dead_letter_marks import Outcome
from tiered_stream.delta.requirements.lane import table_rules
from tiered_stream.delta.requirements.merge_requirements import merged_columns
from tiered_stream.delta.requirements.session_requirements import SESSION_TRANSACTION
from tiered_stream.delta.schema.routing import Routing
from tiered_stream.delta.schema.sql_types import sql_name, sql_text
from tiered_stream.delta.settings.ingest_settings import TOPIC, TableSpec
from tiered_stream.delta.settings.row_settings import KAFKA_COLUMNS, ORDER_BY
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.options.parsing import Subscription
from tiered_stream.spark.session import copied_session

# Rows of dead letters for a table of the latest state (`ingest.mode=upsert`), and the MERGE that applies them.
#
# A dead letter may be older than the row of its key. So a row changes only if it is not newer than the letter's record.
# The column `ingest.orderBy` decides, or Kafka's partition and offset, which the table must have. Offsets of several
# partitions have no order. So without `ingest.orderBy`, a letter stays a dead letter if another letter or the row of
# its key is from another partition.

SOURCE = "tiered_stream_redriven"
"""Name of the temporary view from which the MERGE of a redrive reads the new rows."""
KEY = "__staged_key"
"""Name of a column with the key columns of a dead letter's row, as a struct; null: the dead letter does not decode."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Keys of one table with `ingest.mode=upsert`, and the columns that say which of two records of a key is newer.

    `order_by` is the column by which records are compared; None: Kafka's offsets are compared. `kafka` has the names of
    the table's columns that hold Kafka's columns, by Kafka's name. `merge_on` is the value of `ingest.mergeOn`.
    `own_columns` are the table's columns that records never set. `has_placeholders` says whether rows can have
    placeholders of values that the database does not send (`ingest.unavailableValue`).
    """

    keys: tuple[str, ...]
    order_by: str | None
    kafka: Mapping[str, str]
    merge_on: str | None
    own_columns: tuple[str, ...] = ()
    has_placeholders: bool = False

    @classmethod
    def of(cls, spec: TableSpec, row_format: RowFormat) -> KeyedRows | None:
        """Return the `KeyedRows` of the table `spec` with rows of the format `row_format`; None: it has no keys."""
        if not row_format.keys:
            return None
        kafka = {name: own for name, own in row_format.kafka_columns if name in ("topic", "partition", "offset")}
        order_by, has_placeholders = row_format.order_by or None, bool(row_format.placeholder)
        return cls(row_format.keys, order_by, kafka, spec.merge_on, spec.own_columns, has_placeholders)

    def check_order(self, name: str, *, shared: bool) -> None:
        """Check that the table shows which of two records of a key is newer.

        Args:
            name: name of the table, for the error.
            shared: True if several topics share the table.

        Raises:
            ConfigurationError: no column orders the records, and the table lacks a column with a record's position.
        """
        needed = ("topic", "partition", "offset") if shared else ("partition", "offset")
        missing = [each for each in needed if each not in self.kafka]
        if self.order_by is None and missing:
            raise ConfigurationError(
                f"a dead letter may be older than the row of its key, and the table {name} does not show it: it has no "
                f"column for Kafka's {' and '.join(missing)} ({KAFKA_COLUMNS.name}), and no column orders the records "
                f"({ORDER_BY.name}). Replay the topic from the time of the oldest letter, without --to"
            )

    def known_at(self, staged: DataFrame, table: StructType) -> dict[str, str]:
        """Return the name of a helper column for each column of `table` in which `staged` rows can have placeholders.

        A placeholder stands for a value that the database did not send. The helper column has the value of `order_by`
        in the key's newest row without a placeholder (true, if `order_by` is None), or null if there is no such row.
        """
        known = {name.lower() for name in staged.columns if self.has_placeholders}
        columns = StructType([each for each in table if each.name.lower() in known])
        return columns_with_placeholders(columns, self.keys, self.order_by)

    def last_rows(
        self, staged: DataFrame, table: StructType, known_at: Mapping[str, str], not_null: Collection[str]
    ) -> DataFrame:
        """Return the last row of each key among `staged`, with the columns of `table`, `DELETES` and `DELETED_AT`.

        `staged` has columns of the table and `latest_rows.STAGED`. Columns of the table that `staged` lacks become
        null. `known_at` is the result of the method `known_at`, whose helper columns the returned rows also have.
        `not_null` are the table's columns that are NOT NULL.
        """
        names = {name.lower() for name in staged.columns}
        missing = {each.name: sql.lit(None).cast(each.dataType) for each in table if each.name.lower() not in names}
        return last_rows(
            staged.withColumns(missing), table, self.keys, self._compared, known_at, not_null, one=True, resets=True
        )

    @property
    def _compared(self) -> str:
        """Name of the column that shows whether a record is newer than the row of its key."""
        return self.kafka["offset"] if self.order_by is None else self.order_by

    def without_unordered(self, letters: DataFrame, table: DataFrame, topic: str) -> DataFrame:
        """Return `letters`, with a `reason` for each dead letter whose key has records in several partitions.

        Kafka gives these records no order, so the dead letter stays a dead letter. A `reason` that is not null is kept.
        `letters` has the columns `topic`, `partition`, `reason` and `KEY`. The result has no column `KEY`.
        `table` is the table that gets the rows. If the table has no column for the topic, `topic` is its only topic.
        """
        keys = ", ".join(f"{sql_name([key])} AS k{number}" for number, key in enumerate(self.keys))
        own = {name: sql_name([self.kafka[name]]) for name in PLACE if name in self.kafka}
        place = f"concat({own.get('topic', sql_text(topic))}, '/', {own['partition']})"
        rows = table.selectExpr(f"struct({keys}) AS {KEY}", f"{place} AS place")
        own_places = letters.where(f"{KEY} IS NOT NULL").selectExpr(KEY, "concat(topic, '/', partition) AS place")
        bounds = (
            rows.unionByName(own_places).groupBy(KEY).agg(sql.min("place").alias("low"), sql.max("place").alias("high"))
        )
        reason = (
            "concat('its key has records in the partitions ', low, ' and ', high, ', and Kafka gives them no order: "
            f"set {ORDER_BY.name} to a column that does, such as timestamp')"
        )
        found = letters.join(bounds.where("low <> high"), KEY, "left")
        return found.withColumn("reason", sql.expr(f"coalesce(reason, {reason})")).drop(KEY, "low", "high")

    def merge_sql(self, table: str, columns: Sequence[str], own: Mapping[str, str], known_at: Mapping[str, str]) -> str:
        """Return the MERGE statement that merges the view `SOURCE` into `table`, which is named as SQL text.

        `columns` are the columns that the MERGE sets. `own` has the columns of the table that the view lacks, with
        their values in a new row (`merge.own_columns`). `known_at` is the result of the method `known_at`.
        """
        places = [self.kafka[name] for name in PLACE if name in self.kafka and self.order_by is None]
        clauses = merge_clauses(columns, self.keys, self._compared, self.merge_on, places, own, known_at)
        return merge_sql(table, SOURCE, clauses)


def is_shared(routing: Routing, subscription: Subscription, topic: str) -> bool:
    """Return whether records of another topic may go to the table of `topic`."""
    route = routing.route(topic)
    if TOPIC in route.table or route.pattern == re.escape(topic):
        return False
    named = {*subscription.topics, *(partition.topic for partition in subscription.assigned)}
    return subscription.pattern is not None or any(
        routing.route(other).uri_for(other) == route.uri_for(topic) for other in named - {topic}
    )


log = logging.getLogger(__name__)

NEWEST = (1 << 63) - 1
"""Highest possible batch id: as the id of the last batch in a table, it means that all batches are in the table."""


class RedrivenTable:
    """Table to which redrives append the rows of dead letters, or into which they merge them.

    `name` is the table's path, or its name in Spark's catalog. `letters_id` is Delta's id of the table for dead
    letters, from which names of application transactions are made.
    """

    def __init__(self, spark: SparkSession, name: str, letters_id: str) -> None:
        self._spark = spark
        self._name = name
        self._letters_id = letters_id

    def last_finished(self, query: str) -> int:
        """Return the id of the last batch of the query (`query` is its id) that is in the table.

        Returns:
            The batch id. If the table does not exist, or has no application transaction of the query: -1. But if the
                table drops old application transactions: `NEWEST`, so that all batches count as finished.
        """
        begun = find_by_spark(self._spark, self._name)
        if begun is None:
            return -1
        last = begun.last_batch(query)
        return last if last is not None else NEWEST if drops_transactions(begun) else -1

    def outcome(self, number: int, topic: str) -> Outcome | None:
        """Return the outcome of the topic's dead letters whose column `redrive` is `number`.

        The outcome says whether their rows were appended, or whether the redrive was given up (`Outcome`). None:
        neither has happened yet.

        Raises:
            TableError: the table cannot be read.
        """
        begun = find_by_spark(self._spark, self._name)
        last = None if begun is None else begun.last_batch(self._transaction(topic, number))
        return None if last is None else Outcome(last)

    def append(self, rows: DataFrame, number: int, topic: str) -> bool:
        """Append the rows of the topic's dead letters whose column `redrive` is `number`, with the outcome `APPENDED`.

        If the dead letters with this `number` already have an outcome, Delta skips the rows.

        Returns:
            True if the rows were appended or skipped. False if nothing was appended because another commit came first.
        """
        transaction = self._transaction(topic, number)
        writer = rows.write.format("delta").mode("append").option("txnAppId", transaction)
        writer = writer.option("txnVersion", Outcome.APPENDED.value)
        with spark_errors(self._name, "appended to"):
            folder = find_address(self._spark, self._name).location
            return self._comes_first(lambda: writer.save(folder))

    def merging_session(self, number: int, topic: str) -> SparkSession:
        """Return a copy of the session in which a MERGE gives the topic's dead letters the outcome `APPENDED`.

        `number` is the value of the dead letters' column `redrive`. The settings of the copy affect no other query.
        """
        transaction, version = SESSION_TRANSACTION
        settings = {transaction: self._transaction(topic, number), version: str(Outcome.APPENDED.value)}
        return copied_session(self._spark, {**settings, **MERGE_SETTINGS})

    def merge(self, session: SparkSession, staged: DataFrame, keyed: KeyedRows) -> bool:
        """Merge rows of dead letters into this table, which has `ingest.mode=upsert`.

        If the dead letters already have an `Outcome` in the table, Delta skips the rows.

        Args:
            session: session from `merging_session`, which has the dead letters' application transaction.
            staged: rows of the table in this session, with the columns `latest_rows.STAGED`.
            keyed: the table's keys, and the columns that say which of two records of a key is newer.

        Returns:
            True if the rows were merged or skipped. False if nothing was merged, because another commit came first, or
                because a key has records in several partitions and so no order (`KeyedRows.without_unordered`).
        """
        address = find_address(self._spark, self._name)
        description = DeltaSparkTable(self._spark, address).begin().state.description
        with spark_errors(self._name, "merged into"):
            columns = merged_columns(description, keyed.own_columns)
            known_at, own = keyed.known_at(staged, columns), own_columns(description, columns.names)
            rows = keyed.last_rows(staged, columns, known_at, table_rules(description).not_null)
            rows.createOrReplaceTempView(SOURCE)
            statement = keyed.merge_sql(address.sql_name, columns.names, own, known_at)
            return self._comes_first(lambda: session.sql(statement))

    def _comes_first(self, commit: Callable[[], object]) -> bool:
        """Call `commit`, and return whether it succeeded.

        The result is false if another commit came first, or if a key has records in several partitions and so no order.
        Other errors are raised unchanged.
        """
        try:
            commit()
        except JAVA_ERRORS as error:
            if not is_conflict(error) and not (raised_text(error) or "").startswith(UNORDERED_KEY):
                raise
            log.info("%s: another commit came first: %s", self._name, first_line(error))
            return False
        return True

    def give_up(self, number: int, topic: str) -> None:
        """Commit the outcome `GIVEN_UP` of the topic's dead letters whose column `redrive` is `number`.

        Do nothing if the dead letters already have an outcome, or if another commit comes first.

        Raises:
            TableError: the table cannot be reached, or refuses the commit.
        """
        transaction = self._transaction(topic, number)
        begun = DeltaSparkTable(self._spark, find_address(self._spark, self._name)).begin()
        # Because the outcome is read in this transaction, Delta refuses the transaction's commit if an append comes
        # first. Without the read, Delta would accept the commit, because its version of the transaction is higher.
        if begun.last_batch(transaction) is not None:
            return
        try:
            begun.commit(BatchCommit(transaction, Outcome.GIVEN_UP.value, []))
        except UncertainCommitError as error:
            log.info("%s: another commit came first: %s", self._name, error)

    def _transaction(self, topic: str, number: int) -> str:
        return f"tiered-stream redrive {self._letters_id} {topic} {number}"

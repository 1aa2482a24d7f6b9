"""Table to which a redrive appends the rows of dead letters.

Each number with which a redrive marks dead letters (column `redrive`) has a separate application transaction in the
table. The version of that transaction is the value of `Outcome` for the dead letters with this number.
"""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame, SparkSession

from tiered_stream.delta.catalog.address import find_address, table_location
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS, first_line, is_conflict, raised_text, spark_errors
from tiered_stream.delta.commit.batch_commit import drops_transactions
from tiered_stream.delta.commit.delta_spark_commit import DeltaSparkTable, DeltaSparkTransaction
from tiered_stream.delta.commit.merge import MERGE_SETTINGS, UNORDERED_KEY, own_columns
from tiered_stream.delta.commit.transaction import BatchCommit, UncertainCommitError
from tiered_stream.delta.redrive.dead_letter_marks import is_version
from tiered_stream.delta.redrive.keyed_rows import SOURCE, KeyedRows
from tiered_stream.delta.redrive.redrive_protocol import Outcome
from tiered_stream.delta.requirements.lane import table_rules
from tiered_stream.delta.requirements.merge_requirements import merged_columns
from tiered_stream.delta.requirements.session_requirements import SESSION_TRANSACTION
from tiered_stream.spark.session import copied_session

log = logging.getLogger(__name__)

NEWEST = (1 << 63) - 1
"""Highest possible batch id: as the id of the last batch in a table, it means that all batches are in the table."""


class RedrivenTable:
    """Table to which redrives append the rows of dead letters.

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

        Raises:
            TableError: the table cannot be read.
        """
        begun = self._begin()
        if begun is None:
            return -1
        last = begun.last_batch(query)
        return last if last is not None else NEWEST if drops_transactions(begun) else -1

    def outcome(self, number: int, topic: str) -> Outcome | None:
        """Return the outcome of the topic's dead letters whose column `redrive` is `number`; None: no outcome yet.

        Dead letters that an earlier version of this package has marked always have an outcome.

        Raises:
            TableError: the table cannot be read.
        """
        begun = self._begin()
        transaction = self._transaction(topic, None if is_version(number) else number)
        last = None if begun is None else begun.last_batch(transaction)
        if is_version(number):
            # Earlier versions used one transaction for all numbers, and deleted the dead letters next.
            return Outcome.GIVEN_UP if last is None or last < number else Outcome.APPENDED
        return None if last is None else Outcome(last)

    def append(self, rows: DataFrame, number: int, topic: str) -> bool:
        """Append the rows of the topic's dead letters whose column `redrive` is `number`, with the outcome `APPENDED`.

        If the dead letters with this `number` already have an outcome, Delta skips the rows.

        Returns:
            False if nothing was appended because another commit came first. Otherwise true, even if Delta skipped the
                rows.

        Raises:
            TableError: the table refuses the rows, or cannot be reached.
        """
        transaction = self._transaction(topic, number)
        writer = rows.write.format("delta").mode("append").option("txnAppId", transaction)
        writer = writer.option("txnVersion", Outcome.APPENDED.value)
        with spark_errors(self._name, "appended to"):
            folder = table_location(self._spark, find_address(self._spark, self._name))
            try:
                writer.save(folder)
            except JAVA_ERRORS as error:
                if not is_conflict(error):
                    raise
                log.info("%s: another commit came first: %s", self._name, first_line(error))
                return False
        return True

    def merging_session(self, number: int, topic: str) -> SparkSession:
        """Return a copy of the session in which a MERGE gives the topic's dead letters the outcome `APPENDED`.

        `number` is the value of their column `redrive`. The settings of the copy reach no other query.
        """
        transaction, version = SESSION_TRANSACTION
        settings = {transaction: self._transaction(topic, number), version: str(Outcome.APPENDED.value)}
        return copied_session(self._spark, {**settings, **MERGE_SETTINGS})

    def merge(self, session: SparkSession, staged: DataFrame, keyed: KeyedRows) -> bool:
        """Merge rows of dead letters into this table of the latest state, unless Delta has their outcome already.

        Args:
            session: session from `merging_session`.
            staged: rows of the table in this session, with the columns `latest_rows.STAGED`.
            keyed: the table's keys, and the order of a key's records.

        Returns:
            False if nothing was merged because another commit came first. The other commit may have brought a row of
                another partition, by which a letter has no order (`KeyedRows.without_unordered`).

        Raises:
            TableError: the table refuses the rows, or cannot be reached.
        """
        address = find_address(self._spark, self._name)
        description = DeltaSparkTable(self._spark, address).begin().state.description
        with spark_errors(self._name, "merged into"):
            columns = merged_columns(description, keyed.own_columns)
            known_at, own = keyed.known_at(staged, columns), own_columns(description, columns.names)
            rows = keyed.last_rows(staged, columns, known_at, table_rules(description).not_null)
            rows.createOrReplaceTempView(SOURCE)
            try:
                session.sql(keyed.merge_sql(address.sql_name, columns.names, own, known_at))
            except JAVA_ERRORS as error:
                if not is_conflict(error) and not (raised_text(error) or "").startswith(UNORDERED_KEY):
                    raise
                log.info("%s: another commit came first: %s", self._name, first_line(error))
                return False
        return True

    def give_up(self, number: int, topic: str) -> None:
        """Commit the outcome `GIVEN_UP` of the topic's dead letters whose column `redrive` is `number`.

        Do nothing if they have an outcome, or if another commit comes first.

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

    def _begin(self) -> DeltaSparkTransaction | None:
        address = find_address(self._spark, self._name)
        return None if address.uri is None else DeltaSparkTable(self._spark, address).find()

    def _transaction(self, topic: str, number: int | None = None) -> str:
        name = f"tiered-stream redrive {self._letters_id} {topic}"
        return name if number is None else f"{name} {number}"

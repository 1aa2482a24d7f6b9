"""Commits of a query's dead letters to a table for dead letters, so that each batch has its dead letters exactly once.

A dead letter is a record that cannot become a row. One transaction cannot commit to two tables. So a batch's dead
letters are committed first, and then the rows are committed to the table that the records were meant for. If that table
has the batch, both tables are complete.

If a batch fails between the two commits, it is repeated. By then the schema or a constraint may have changed, so that
other records are dead letters. So each dead letter names its table, query and batch. Before a repeated batch commits
its dead letters, the old dead letters of batches that their table lacks are removed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sql

from tiered_stream.delta.catalog.address import find_address
from tiered_stream.delta.catalog.java_errors import spark_errors
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.delta_spark_commit import has_delta_spark, reading_all_rows
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.settings.row_settings import MAX_DEAD_LETTERS, DeadLetterLimit
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.errors import DeadLetterLimitError

if TYPE_CHECKING:
    from delta.tables import DeltaTable

Unfinished = Mapping[str, int]
"""Id of a query's newest batch in each table, by the table's key; the mapping selects unfinished dead letters.

A dead letter names a table and a batch. It is unfinished if this table does not have this batch yet, so that the batch
id is higher than the id of the newest batch in the table.
"""


def check_limit(limit: DeadLetterLimit | None, dead: int, records: int, table: str) -> None:
    """Raise DeadLetterLimitError if `dead` dead letters among a micro-batch's `records` records exceed the limit.

    A limit of None is never exceeded. `table` is the name of the table for dead letters in the error. Call this
    function before the first commit of the micro-batch.
    """
    if limit is not None and limit.is_exceeded(dead, records):
        raise DeadLetterLimitError(
            f"{dead:,} of the {records:,} records of the micro-batch are dead letters, more than "
            f"{MAX_DEAD_LETTERS.name}={limit}: nothing of it is in any table, nor in {table}. Look at what the "
            "topics hold, correct the schema or raise the limit, and start the query again"
        )


@dataclass(frozen=True)
class DeadLetterTable:
    """Table for dead letters that one query has opened for commits on the driver."""

    open: Callable[[], TableCommits]
    """Function that opens the table for dead letters again, and returns a new `TableCommits` without cached values."""
    remove: Callable[[str, Unfinished], None]
    """Function that removes the unfinished dead letters of a query, given by its id, from the table.

    It raises TableError if it cannot remove them.
    """
    commits: TableCommits

    def commit(self, query_id: str, batch_id: int, files: Sequence[DataFile], unfinished: Unfinished) -> None:
        """Commit `files` as the batch's dead letters; without files, there is no commit.

        If an earlier attempt at the batch has committed dead letters, they are removed first, even if `files` is empty.
        In this case, the query's dead letters for each table in `unfinished` are removed if their batch id is above the
        batch id in `unfinished`. The table does not have these batches yet.

        Raises:
            TableError: the table for dead letters cannot be changed.
        """
        if self.commits.is_committed(query_id, batch_id):
            self.replace(query_id, files, unfinished)
        elif files:
            self.commits.commit(query_id, batch_id, files)

    def replace(self, query_id: str, files: Sequence[DataFile], unfinished: Unfinished) -> None:
        """Remove the query's unfinished dead letters for the tables in `unfinished`, then commit `files`, if any.

        A dead letter is unfinished if its batch id is above the batch id in `unfinished`, because its table does not
        have the batch yet. The method can be called again after a crash, with the same result.

        Raises:
            TableError: the table for dead letters cannot be changed.
        """
        self.remove(query_id, unfinished)
        if files:
            self.open().commit(new_transaction(query_id), 0, files)


def new_transaction(query_id: str) -> str:
    """Return a new transaction name for a repeated batch, because the table already has the batch under `query_id`."""
    return f"{query_id} repeated {uuid4()}"


def remove_dead_letters(spark: SparkSession, table: TableSpec, which: Column) -> None:
    """Delete the dead letters that meet the condition `which` from `table`, with the session's delta-spark.

    Raises:
        TableError: the table for dead letters cannot be changed.
    """
    with spark_errors(table.name, "changed"):
        _open_by_spark(spark, table).delete(which)


def update_dead_letters(spark: SparkSession, table: TableSpec, which: Column, values: Mapping[str, Column]) -> None:
    """Set columns of the dead letters in `table` that meet the condition `which`, with the session's delta-spark.

    `values` are the new values, by column name.

    Raises:
        TableError: the table for dead letters cannot be changed.
    """
    with spark_errors(table.name, "changed"):
        _open_by_spark(spark, table).update(which, {**values})


def has_dead_letters(spark: SparkSession, table: TableSpec, which: Column) -> bool:
    """Return whether `table` has dead letters that meet the condition `which`; the session's delta-spark reads them.

    Raises:
        TableError: the table for dead letters cannot be read.
    """
    with spark_errors(table.name, "read"):
        return not _open_by_spark(spark, table).toDF().where(which).isEmpty()


def _open_by_spark(spark: SparkSession, table: TableSpec) -> DeltaTable:
    from delta.tables import DeltaTable

    return DeltaTable.forPath(reading_all_rows(spark), find_address(spark, table.name).location)


def remove_unfinished(spark: SparkSession, table: TableSpec, query_id: str, unfinished: Unfinished) -> None:
    """Delete the query's unfinished dead letters for the tables in `unfinished` from `table`, a table for dead letters.

    A dead letter is unfinished if its batch id is above the batch id in `unfinished`, because its table does not have
    the batch yet. The session's delta-spark deletes the dead letters, or deltalake if the session has no delta-spark.

    Raises:
        TableError: the table for dead letters cannot be changed.
    """
    if has_delta_spark(spark):
        later = (
            (sql.col("target") == sql.lit(key)) & (sql.col("batch") > sql.lit(newest))
            for key, newest in unfinished.items()
        )
        which = reduce(operator.or_, later, sql.lit(False))
        remove_dead_letters(spark, table, (sql.col("query") == sql.lit(query_id)) & which)
    else:
        from tiered_stream.delta.commit.deltalake_commit import delete_rows

        tables = (f"(target = {_literal(key)} AND batch > {newest})" for key, newest in unfinished.items())
        delete_rows(table, f"query = {_literal(query_id)} AND ({' OR '.join(tables)})")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

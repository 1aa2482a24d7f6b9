"""Dead letters of a query, committed exactly once with the batch of the table that their records were for.

Two tables cannot be committed to at once. So the dead letters of a batch are committed first, and the table's rows
after them: a batch is whole in both when the table has it. Where a batch failed between the two commits, its records
may be sorted anew when it is repeated, because the schema or a constraint has changed. So dead letters name the table,
the query and the batch that they belong to, and those of a batch that the table does not have are removed before the
repeated batch commits its own.
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
from pyspark.sql.types import StructType

from tiered_stream.delta.address import find_address, table_location
from tiered_stream.delta.commit import TableCommits
from tiered_stream.delta.data_files import DataFile
from tiered_stream.delta.delta_spark_commit import has_delta_spark
from tiered_stream.delta.java_errors import spark_errors
from tiered_stream.delta.routing import TableTarget
from tiered_stream.delta.row_schema import spark_columns
from tiered_stream.delta.row_settings import MAX_DEAD_LETTERS, DeadLetterLimit
from tiered_stream.errors import DeadLetterLimitError
from tiered_stream.formats.row_format import DEAD_LETTER_SCHEMA

if TYPE_CHECKING:
    from delta.tables import DeltaTable

Unfinished = Mapping[str, int]
"""Keys of tables, each with the query's newest batch that the table has: dead letters of later ones are unfinished."""


def dead_letter_columns() -> StructType:
    """Columns of a table for dead letters."""
    return spark_columns(DEAD_LETTER_SCHEMA, None)


def check_limit(limit: DeadLetterLimit | None, dead: int, records: int, table: str) -> None:
    """Raises DeadLetterLimitError: of so many records of a micro-batch too many are dead letters."""
    if limit is not None and limit.is_passed(dead, records):
        raise DeadLetterLimitError(
            f"{dead:,} of the {records:,} records of the micro-batch are dead letters, more than "
            f"{MAX_DEAD_LETTERS.name}={limit}: nothing of it is in any table, nor in {table}. Look at what the "
            "topics hold, mend the schema or raise the limit, and start the query again"
        )


def check_files(limit: DeadLetterLimit | None, files: Sequence[DataFile], tables: Sequence[str]) -> None:
    """The same of files, before they are committed; `tables` are the names of the tables for dead letters."""
    dead = sum(file.records for file in files if file.dead_letters_for is not None)
    check_limit(limit, dead, sum(file.records for file in files), ", ".join(sorted(tables)))


@dataclass(frozen=True)
class DeadLetterTable:
    """A table for dead letters, opened by one query on the driver."""

    target: TableTarget
    open: Callable[[], TableCommits]
    """Opens it once more."""
    remove: Callable[[str, Unfinished], None]
    """Removes a query's unfinished dead letters from it; raises TableError."""
    commits: TableCommits

    def has_earlier(self, query_id: str, batch_id: int) -> bool:
        """Whether an earlier attempt at the batch has committed dead letters. Raises as `TableCommits.is_committed`."""
        return self.commits.is_committed(query_id, batch_id)

    def commit(self, query_id: str, batch_id: int, files: Sequence[DataFile], unfinished: Unfinished) -> None:
        """Let the table have the files as the batch's dead letters for the tables in `unfinished`, and no others.

        Raises:
            TableError: as `TableCommits.commit`.
        """
        if self.has_earlier(query_id, batch_id):
            self.replace(query_id, files, unfinished)
        elif files:
            self.commits.commit(query_id, batch_id, files)

    def replace(self, query_id: str, files: Sequence[DataFile], unfinished: Unfinished) -> None:
        """Remove the unfinished dead letters of the tables and commit the files; a crash between the two is repeated.

        Raises:
            TableError: as `TableCommits.commit`.
        """
        self.remove(query_id, unfinished)
        if files:
            # Under a name of its own: the query's own transaction says that the batch is there.
            self.open().commit(f"{query_id} repeated {uuid4()}", 0, files)


@dataclass(frozen=True)
class DeadLetterCommits:
    """The dead letters of a query with one table."""

    table: DeadLetterTable
    limit: DeadLetterLimit | None

    def commit_first(
        self, table: TableCommits, key: str, query_id: str, batch_id: int, files: Sequence[DataFile]
    ) -> list[DataFile]:
        """Commit the dead letters among the files of a batch that the table, whose key is `key`, does not have.

        Returns:
            The other files.

        Raises:
            DeadLetterLimitError: there are too many.
            TableError: the table would not take the files, or as `TableCommits.commit`.
        """
        check_files(self.limit, files, [self.table.target.name])
        dead = [file for file in files if file.dead_letters_for is not None]
        if dead or self.table.has_earlier(query_id, batch_id):
            table.check(files)
            self.table.commit(query_id, batch_id, dead, {key: batch_id - 1})
        return [file for file in files if file.dead_letters_for is None]


def remove_dead_letters(spark: SparkSession, table: TableTarget, which: Column) -> None:
    """Delete dead letters by the session's Delta. Raises TableError: the table cannot be changed."""
    with spark_errors(table.name, "changed"):
        _open_by_spark(spark, table).delete(which)


def update_dead_letters(spark: SparkSession, table: TableTarget, which: Column, values: Mapping[str, Column]) -> None:
    """Change dead letters by the session's Delta. Raises TableError: the table cannot be changed."""
    with spark_errors(table.name, "changed"):
        _open_by_spark(spark, table).update(which, {**values})


def has_dead_letters(spark: SparkSession, table: TableTarget, which: Column) -> bool:
    """Return whether there are such dead letters. Raises TableError: the table cannot be read."""
    with spark_errors(table.name, "read"):
        return not _open_by_spark(spark, table).toDF().where(which).isEmpty()


def _open_by_spark(spark: SparkSession, table: TableTarget) -> DeltaTable:
    from delta.tables import DeltaTable

    return DeltaTable.forPath(spark, table_location(spark, find_address(spark, table.name)))


def remove_unfinished(spark: SparkSession, table: TableTarget, query_id: str, unfinished: Unfinished) -> None:
    """Delete the query's dead letters for these tables from later batches than each table has.

    By the session's Delta, or by deltalake where the session has none.

    Raises:
        TableError: the table cannot be changed.
    """
    if has_delta_spark(spark):
        later = (
            (sql.col("target") == sql.lit(key)) & (sql.col("batch") > sql.lit(newest))
            for key, newest in unfinished.items()
        )
        which = reduce(operator.or_, later, sql.lit(False))
        remove_dead_letters(spark, table, (sql.col("query") == sql.lit(query_id)) & which)
    else:
        from tiered_stream.delta.deltalake_commit import delete_rows

        tables = (f"(target = {_literal(key)} AND batch > {newest})" for key, newest in unfinished.items())
        delete_rows(table.files, f"query = {_literal(query_id)} AND ({' OR '.join(tables)})")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

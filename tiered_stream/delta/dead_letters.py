"""The table that dead letters go to, as one more table of each micro-batch; and how many of them are too many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructType

from tiered_stream.delta.commit import TableCommits
from tiered_stream.delta.data_files import DataFile
from tiered_stream.delta.routing import TableTarget
from tiered_stream.delta.row_schema import spark_columns
from tiered_stream.delta.row_settings import MAX_DEAD_LETTERS, DeadLetterLimit
from tiered_stream.errors import DeadLetterLimitError
from tiered_stream.formats.row_format import DEAD_LETTER_SCHEMA


def dead_letter_columns() -> StructType:
    """The table's."""
    return spark_columns(DEAD_LETTER_SCHEMA, None)


def check_limit(limit: DeadLetterLimit | None, dead: int, records: int, table: str) -> None:
    """Raises DeadLetterLimitError: of so many records of a micro-batch too many are dead letters."""
    if limit is not None and limit.is_passed(dead, records):
        raise DeadLetterLimitError(
            f"{dead:,} of the {records:,} records of the micro-batch are dead letters, more than "
            f"{MAX_DEAD_LETTERS.name}={limit}: nothing of it is in any table, nor in {table}. Look at what the "
            "topics hold, mend the schema or raise the limit, and start the query again"
        )


def check_files(limit: DeadLetterLimit | None, files: Sequence[DataFile], dead_tables: Mapping[str, str]) -> None:
    """The same of files, before they are committed; `dead_tables` are folders of tables, by name."""
    dead = sum(file.records for file in files if file.table in dead_tables.values())
    check_limit(limit, dead, sum(file.records for file in files), ", ".join(sorted(dead_tables)))


@dataclass(frozen=True)
class DeadLetterCommits:
    """The table beside the one table of a query. Its dead letters are committed first: a batch is then whole in both
    when the table has it, by which it is known."""

    commits: TableCommits
    target: TableTarget
    limit: DeadLetterLimit | None

    def commit(self, query_id: str, batch_id: int, files: Sequence[DataFile]) -> list[DataFile]:
        """Commit the dead letters among the files, unless the batch is there; the other files.

        Raises:
            DeadLetterLimitError: there are too many.
            TableError: as `TableCommits.commit`.
        """
        check_files(self.limit, files, {self.target.name: self.target.key})
        aside = [file for file in files if file.table == self.target.key]
        if aside:
            self.commits.commit(query_id, batch_id, aside)
        return [file for file in files if file.table != self.target.key]

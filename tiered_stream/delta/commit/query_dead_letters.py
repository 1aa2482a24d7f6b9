"""Commits to the tables for dead letters of a query that writes many tables.

A table for dead letters is opened when a batch needs it for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tiered_stream.delta.commit.batch_commit import TableCommits
from tiered_stream.delta.commit.dead_letters import DeadLetterTable
from tiered_stream.delta.schema.routing import Routing, TableTarget
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.errors import TieredStreamError

OpenDeadLetters = Callable[[TableTarget], DeadLetterTable]
"""Function that opens a table for dead letters, or creates it if it is missing; it raises TieredStreamError."""


class QueryDeadLetters:
    """Object that commits a query's dead letters to the tables for dead letters; only one thread may use it.

    Arguments and results name a table by its key. `tables_for` and `replace` raise TieredStreamError if a table for
    dead letters cannot be opened, read or changed.
    """

    def __init__(self, routing: Routing, open_table: OpenDeadLetters) -> None:
        self._routing = routing
        self._open_table = open_table
        self._opened: dict[str, DeadLetterTable] = {}
        self._first_batch = True
        """True until this run has done its first batch, because an earlier run may have begun that batch."""

    @property
    def commits(self) -> Mapping[str, TableCommits]:
        """`TableCommits` of each table for dead letters that is open, by the table's key."""
        return {key: table.commits for key, table in self._opened.items()}

    def batch_done(self) -> None:
        """Record that this run has finished a batch.

        From now on, `tables_for` does not look for dead letters of an earlier run, because an earlier run cannot have
        begun a batch after the first batch of this run.
        """
        self._first_batch = False

    def tables_for(self, files: Sequence[DataFile], topics: Iterable[str], query_id: str, batch_id: int) -> list[str]:
        """Return the keys of the tables for dead letters to which the batch must be committed.

        The settings of `topics` name the tables for dead letters. A table is left out unless it gets some of the
        batch's `files`, or got dead letters when an earlier run attempted the batch.
        """
        keys = []
        for target in self._targets(topics):
            if _for_table(files, target.key):
                keys.append(self._table(target).target.key)
            elif self._first_batch and self._table(target).has_earlier(query_id, batch_id):
                keys.append(target.key)
        return keys

    def commit(
        self, key: str, query_id: str, batch_id: int, files: Sequence[DataFile], tables: Iterable[str]
    ) -> TieredStreamError | None:
        """Commit the dead letters in `files` that go to the table for dead letters with the key `key`.

        `tables_for` must have opened this table. `tables` are the keys of the tables for which the records of these
        dead letters were meant. The batch must not be in these tables yet.

        Returns:
            The error if the commit failed, else None. After an error, the next batch opens the table for dead letters
            again.
        """
        try:
            unfinished = dict.fromkeys(tables, batch_id - 1)
            self._opened[key].commit(query_id, batch_id, _for_table(files, key), unfinished)
        except TieredStreamError as error:
            del self._opened[key]
            return error
        return None

    def replace(self, topics: Iterable[str], query_id: str, files: Sequence[DataFile], table: str, newest: int) -> None:
        """Replace the query's dead letters of one table and of batches after `newest` by the dead letters in `files`.

        `table` is the key of the table that the records were meant for, and `newest` is the query's newest batch in
        that table. In each table for dead letters that the settings of `topics` name, the old dead letters are removed,
        and then the new dead letters are committed.
        """
        for target in self._targets(topics):
            self._table(target).replace(query_id, _for_table(files, target.key), {table: newest})

    def _targets(self, topics: Iterable[str]) -> list[TableTarget]:
        targets = (self._routing.dead_letters(self._routing.target(topic)) for topic in topics)
        return list({target.key: target for target in targets if target is not None}.values())

    def _table(self, target: TableTarget) -> DeadLetterTable:
        if target.key not in self._opened:
            self._opened[target.key] = self._open_table(target)
        return self._opened[target.key]


def _for_table(files: Iterable[DataFile], key: str) -> list[DataFile]:
    return [file for file in files if file.dead_letters_for is not None and file.table == key]

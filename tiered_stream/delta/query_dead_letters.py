"""The tables for dead letters of a query that writes many tables, opened when they are first wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tiered_stream.delta.commit import TableCommits
from tiered_stream.delta.data_files import DataFile
from tiered_stream.delta.dead_letters import DeadLetterTable
from tiered_stream.delta.routing import Routing, TableTarget
from tiered_stream.errors import TieredStreamError

OpenDeadLetters = Callable[[TableTarget], DeadLetterTable]
"""Opens a table for dead letters, or makes it. Raises TieredStreamError."""


class QueryDeadLetters:
    """What the commits of a query ask of its tables for dead letters; used by one thread.

    Tables are known by their keys. All methods raise TieredStreamError where a table cannot be opened or changed.
    """

    def __init__(self, routing: Routing, open_table: OpenDeadLetters) -> None:
        self._routing = routing
        self._open_table = open_table
        self._opened: dict[str, DeadLetterTable] = {}
        self._first_batch = True
        """Whether the batch may be one that an earlier run has begun."""

    @property
    def commits(self) -> Mapping[str, TableCommits]:
        """Of the tables that are open, by key."""
        return {key: table.commits for key, table in self._opened.items()}

    def batch_done(self) -> None:
        """The next batch is new: no earlier run has begun it."""
        self._first_batch = False

    def taking_part(self, files: Sequence[DataFile], topics: Iterable[str], query_id: str, batch_id: int) -> list[str]:
        """Tables that get dead letters among these files, or may have some of an earlier attempt at the batch."""
        found = []
        for target in self._targets(topics):
            if _for_table(files, target.key):
                found.append(self._table(target).target.key)
            elif self._first_batch and self._table(target).has_earlier(query_id, batch_id):
                found.append(target.key)
        return found

    def commit(
        self, key: str, query_id: str, batch_id: int, files: Sequence[DataFile], tables: Iterable[str]
    ) -> TieredStreamError | None:
        """Commit the dead letters for one table among the files of a batch, which these `tables` do not have.

        Returns:
            Why it failed, if it did: it is opened again for the next batch.
        """
        try:
            unfinished = dict.fromkeys(tables, batch_id - 1)
            self._opened[key].commit(query_id, batch_id, _for_table(files, key), unfinished)
        except TieredStreamError as error:
            del self._opened[key]
            return error
        return None

    def replace(self, topics: Iterable[str], query_id: str, files: Sequence[DataFile], table: str, newest: int) -> None:
        """Commit the dead letters among the files of one table in place of those after its `newest` batch."""
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

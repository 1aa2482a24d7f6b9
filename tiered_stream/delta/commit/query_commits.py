"""The driver's commits for one query, to one table or to many: the rows of each batch, and its dead letters.

A dead letter is a record that cannot become a row. A batch is committed to its tables one after the other or up to 8 at
once. A table's dead letters are committed before its rows (`dead_letters.py`). A table whose records are all dead
letters gets a commit without rows.

There are two policies. `OneTable` commits each batch to the query's only table, even a batch without rows.
`ManyTables` (`many_tables.py`) commits a batch only to the tables for which it has files.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from cachetools import LRUCache

from tiered_stream.delta.checkpoint.query_tables import Landed
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.dead_letters import DeadLetterTable
from tiered_stream.delta.schema.routing import Routing
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_files import DataFile, HeldRows, landed_rows
from tiered_stream.errors import ConfigurationError, DataLossError, TableError, TieredStreamError
from tiered_stream.observe.landed_rows import LandedRows

log = logging.getLogger(__name__)

MAX_OPEN_TABLES = 2000
"""Maximum number of tables that stay open between batches; opening a table again reads its newest log files."""

Result = TypeVar("Result")
OpenCommits = Callable[[TableSpec, Landed], TableCommits]
"""Function that opens a table, or creates a missing table; it raises TieredStreamError if it cannot open the table.

The arguments are the table, and the query's newest batch that the table must have.
"""
OpenDeadLetters = Callable[[TableSpec], DeadLetterTable]
"""Function that opens a table for dead letters, or creates a missing one; it raises TieredStreamError if it cannot."""


@dataclass(frozen=True, slots=True)
class Share:
    """Files of a batch that belong to the table `spec`: its rows, and dead letters whose records were meant for it.

    `landed` is the newest batch that the table must have. `commits` is None until the table is opened. `dead_letters`
    are the tables for dead letters that are set for the topics in `files`.
    """

    spec: TableSpec
    files: Sequence[DataFile]
    landed: Landed
    commits: TableCommits | None
    dead_letters: Sequence[TableSpec] = ()
    has_batch: bool = False
    """True if the table already has the batch."""


Failed = dict[str, TieredStreamError]
"""Errors of the tables that could not be written, by table key."""


@dataclass(eq=False)
class QueryCommits(ABC):
    """Object that commits the batches of one query, one batch at a time, to its tables and tables for dead letters.

    A table is opened when its first files arrive, and stays open for later batches.
    """

    routing: Routing
    open_table: OpenCommits
    open_dead_letters: OpenDeadLetters

    def __post_init__(self) -> None:
        self._dead_letters: dict[str, DeadLetterTable] = {}
        self._first_batch = True
        """True until this run has done its first batch, because an earlier run may have begun that batch."""
        self._keys: dict[str, str] = {}
        """Keys of the tables that were opened, by the table id in Delta's metadata."""
        self.open_commits: LRUCache[str, TableCommits] = LRUCache(MAX_OPEN_TABLES)
        """Tables that are open, by table key."""
        self._landed: list[LandedRows] = []
        """Numbers of rows committed since the last call of `take_landed`; all threads append to this list."""

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Return true if all tables are known to have the batch already, so that its records need not be read."""
        return False

    def prepare(self) -> None:
        """Start to read a table's state in the background, if the next batch is certainly for this table."""
        return

    @abstractmethod
    def commit(self, query_id: str, batch_id: int, files: Sequence[DataFile], held: Sequence[HeldRows] = ()) -> None:
        """Commit a batch's files to their tables, except tables that already have the batch.

        `held` describes records that tasks wrote to no file. `take_landed` returns the numbers of committed rows.

        Raises:
            TieredStreamError: a table could not be written.
        """

    def take_landed(self) -> list[LandedRows]:
        """Return the numbers of rows and dead letters committed since the last call, one item for each commit.

        Commits count even if another table of the batch failed. Rows of a parked table (a table that could not be
        written) count when they are committed at last.
        """
        committed, self._landed = self._landed, []
        return committed

    def commit_all(self, shares: Mapping[str, Share], query_id: str, batch_id: int) -> tuple[dict[str, Landed], Failed]:
        """Commit the files of a batch to all tables in `shares`, each table's dead letters before its rows.

        Returns:
            Two mappings by table key: the newest batch of each table that has the batch now, and the error of each
            table that could not be written.

        Raises:
            ConfigurationError: one table was opened by two names.
        """
        dead_letters, failed = self._dead_letter_tables(shares, query_id, batch_id)
        opening = {key: share for key, share in shares.items() if key not in failed}
        checked = {key for keys_of_table in dead_letters.values() for key in keys_of_table}
        opened, refused = self._run_all(lambda each: self._open_share(each, query_id, batch_id, checked), opening)
        failed |= refused
        self.open_commits.update({key: share.commits for key, share in opened.items() if share.commits})
        self._check_names(opened)
        landed = {key: Landed(batch_id, share.landed.version) for key, share in opened.items() if share.has_batch}
        ready = {key: share for key, share in opened.items() if not share.has_batch}
        for table, keys in dead_letters.items():
            going_on = [key for key in keys if key in ready and key not in failed]
            failed |= self._commit_dead_letters(table, going_on, ready, query_id, batch_id)
        committing = {key: share for key, share in ready.items() if key not in failed}
        committed, refused = self._run_all(lambda each: self.commit_share(each, query_id, batch_id), committing)
        failed |= refused
        for key in failed:
            self.open_commits.pop(key, None)
        self._first_batch = False
        return {**landed, **committed}, failed

    def _run_all(self, do: Callable[[Share], Result], shares: Mapping[str, Share]) -> tuple[dict[str, Result], Failed]:
        """Call `do` with each table's share of a batch.

        Returns:
            Two mappings by table key: the results, and the errors of calls that raised TieredStreamError.
        """
        done: dict[str, Result] = {}
        failed: Failed = {}
        for key, result in self._calls(do, shares).items():
            try:
                done[key] = result()
            except TieredStreamError as error:
                failed[key] = error
        return done, failed

    def _calls(self, do: Callable[[Share], Result], shares: Mapping[str, Share]) -> dict[str, Callable[[], Result]]:
        """Return, by table key, a function that returns the result of `do(share)`, or raises the error of this call.

        A subclass can call `do` in threads, and return after all calls have ended.
        """
        return {key: partial(do, share) for key, share in shares.items()}

    def _open_share(self, share: Share, query_id: str, batch_id: int, checked: Collection[str]) -> Share:
        """Open the table of `share` if it is not open yet; return `share` with `commits` and `has_batch` set.

        If the table's key is in `checked` and the table does not have the batch, also check that the table would accept
        the files.

        Raises:
            TieredStreamError: the table cannot be opened or read, or would not accept the files.
        """
        commits = share.commits or self.open_table(share.spec, share.landed)
        has_batch = commits.is_committed(query_id, batch_id)
        if has_batch:
            log.info("%s: batch %d is in the table already", share.spec.name, batch_id)
        elif share.spec.key in checked:
            commits.check(query_id, batch_id, share.files)
        return replace(share, commits=commits, has_batch=has_batch)

    def commit_share(self, share: Share, query_id: str, batch_id: int) -> Landed:
        """Commit the rows in `share`, one table's files of the batch, and return the batch as the table's newest one.

        The table must be open (`share.commits`). The errors are the same as in `TableCommits.commit`.
        """
        assert share.commits
        rows = [file for file in share.files if file.dead_letters_for is None]
        version = share.commits.commit(query_id, batch_id, rows)
        landed = landed_rows(share.spec.name, share.spec.rows.dead_letter_table or "", share.files)
        self._landed.append(share.commits.with_keys(landed, query_id, batch_id, version))
        return Landed(batch_id, share.landed.version if version is None else version)

    def _check_names(self, opened: Mapping[str, Share]) -> None:
        """Check that no table was opened by two names; tables for dead letters are checked, too.

        Under both names, a batch has the same application transaction in the table. So the second commit of the batch
        would wrongly count as done.

        Raises:
            ConfigurationError: one table was opened by two names.
        """
        tables = {key: share.commits for key, share in opened.items() if share.commits}
        tables |= {key: table.commits for key, table in self._dead_letters.items()}
        for key, commits in tables.items():
            table_id = commits.planned.description.table_id
            other = self._keys.setdefault(table_id, key)
            if other != key:
                raise ConfigurationError(
                    f"{other} and {key} are one table (its id is {table_id}): name it the same way in "
                    "ingest.table, ingest.route and ingest.deadLetterTable. Nothing of the batch was committed to it"
                )

    # Dead letters

    def _dead_letter_tables(
        self, shares: Mapping[str, Share], query_id: str, batch_id: int
    ) -> tuple[dict[str, list[str]], Failed]:
        """Open the tables for dead letters to which a batch commits.

        A table for dead letters is left out unless it gets some of the batch's files, or got dead letters when an
        earlier run attempted the batch.

        Returns:
            Two mappings. The first has, by the key of a table for dead letters, the keys of the tables in `shares`
            whose dead letters go to it. The second has, by the key of a table in `shares`, the error if a table for
            its dead letters cannot be opened.
        """
        shares_of_table: dict[str, list[str]] = {}
        failed: Failed = {}
        for key, share in shares.items():
            try:
                for spec in share.dead_letters:
                    has_files = bool(dead_letters_in(share.files, spec.key))
                    if not (has_files or self._first_batch):
                        continue
                    table = self.dead_letter_table(spec)
                    if has_files or table.commits.is_committed(query_id, batch_id):
                        shares_of_table.setdefault(spec.key, []).append(key)
            except TieredStreamError as error:
                failed[key] = error
        return shares_of_table, failed

    def dead_letter_table(self, spec: TableSpec) -> DeadLetterTable:
        """Return the table for dead letters `spec`, which the first call opens, and which then stays open.

        Raises:
            TieredStreamError: the table cannot be opened.
        """
        if spec.key not in self._dead_letters:
            self._dead_letters[spec.key] = self.open_dead_letters(spec)
        return self._dead_letters[spec.key]

    def _commit_dead_letters(
        self, table: str, keys: Sequence[str], shares: Mapping[str, Share], query_id: str, batch_id: int
    ) -> Failed:
        """Commit dead letters of the tables with the keys `keys` to the table for dead letters with the key `table`.

        After an error, the next batch opens the table for dead letters again.

        Returns:
            An error for each key in `keys` if the commit fails, else an empty mapping.
        """
        files = dead_letters_in((file for key in keys for file in shares[key].files), table)
        try:
            if keys:
                self._dead_letters[table].commit(query_id, batch_id, files, dict.fromkeys(keys, batch_id - 1))
        except TieredStreamError as error:
            del self._dead_letters[table]
            return dict.fromkeys(keys, self._dead_letters_failed(error))
        return {}

    def _dead_letters_failed(self, error: TieredStreamError) -> TieredStreamError:
        """Return the error to report for a table whose dead letters could not be committed because of `error`."""
        return error


class OneTable(QueryCommits):
    """Object that commits each batch of one query to its only table `spec`, even a batch without rows."""

    def __init__(
        self, routing: Routing, spec: TableSpec, commits: TableCommits, open_dead_letters: OpenDeadLetters
    ) -> None:
        """Open the table for dead letters, if there is one; raises TieredStreamError if it cannot be opened.

        `commits` are the query's commits into its only table `spec`. `open_dead_letters` opens tables for dead letters.
        """
        super().__init__(routing, lambda *_: commits, open_dead_letters)
        dead_letters = routing.dead_letters(spec)
        if dead_letters is not None:
            self.dead_letter_table(dead_letters)
        self._share = Share(spec, (), Landed(), commits, [dead_letters] if dead_letters else [])
        self._commits = commits

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        if not self._commits.is_committed(query_id, batch_id):
            return False
        log.info("%s: batch %d is in the table already", self._share.spec.name, batch_id)
        self._landed.append(LandedRows(self._share.spec.name, 0))
        return True

    def prepare(self) -> None:
        self._commits.prepare()

    def commit(self, query_id: str, batch_id: int, files: Sequence[DataFile], held: Sequence[HeldRows] = ()) -> None:
        assert not held, "tasks hold rows only for tables that may be parked"
        _, failed = self.commit_all({self._share.spec.key: replace(self._share, files=files)}, query_id, batch_id)
        for error in failed.values():
            raise error


def dead_letters_in(files: Iterable[DataFile], key: str) -> list[DataFile]:
    """Return the files of dead letters that go to the table for dead letters with the key `key`."""
    return [file for file in files if file.dead_letters_for is not None and file.table == key]


def error_like(error: TieredStreamError, message: str) -> TieredStreamError:
    """Return an error with this message, caused by `error`.

    It is a DataLossError or a ConfigurationError if `error` is one, otherwise a TableError.
    """
    kind = next((known for known in (DataLossError, ConfigurationError) if isinstance(error, known)), TableError)
    failure = kind(message)
    failure.__cause__ = error
    return failure

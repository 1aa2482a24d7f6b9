"""The driver's commits for a query that writes many tables: one commit for each table with files, up to 8 at once.

A table is opened when its first files arrive, and stays open for later batches. If a table cannot be written, the other
tables still get the batch; if the batch is repeated, they do not get it again. With `ingest.onTableError=park`, the
table that cannot be written is parked, and the query continues without it. Later, the offset ranges that a parked table
lacks are read again, and their rows are committed. This commit has the id of the last batch in these ranges, so that a
commit whose response was lost is recognized.

A table's dead letters are committed before its rows (`dead_letters.py`). While a table is parked, neither its rows nor
its dead letters are committed. A table whose records are all dead letters gets a commit without rows.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Protocol, TypeVar

from cachetools import LRUCache
from pyspark.sql.types import StructType

from tiered_stream.delta.checkpoint.query_tables import Held, Landed, Parked, QueryTables, QueryTablesLog
from tiered_stream.delta.commit.batch_commit import TableCommits
from tiered_stream.delta.commit.query_dead_letters import OpenDeadLetters, QueryDeadLetters
from tiered_stream.delta.schema.routing import Routing, TableTarget
from tiered_stream.delta.settings.ingest_settings import TableFiles, table_properties
from tiered_stream.delta.settings.row_settings import DEAD_LETTER_TABLE
from tiered_stream.delta.settings.upsert_settings import MERGE_ON
from tiered_stream.delta.write.data_files import DataFile, HeldRows, landed_rows, offset_ranges
from tiered_stream.errors import ConfigurationError, DataLossError, TableError, TieredStreamError
from tiered_stream.model import PartitionRanges
from tiered_stream.observe.landed_rows import LandedRows
from tiered_stream.options.given_options import GivenOptions

log = logging.getLogger(__name__)

COMMITS_AT_ONCE = 8
MAX_OPEN_TABLES = 2000
"""Maximum number of tables that stay open between batches; opening a table again reads its newest log files."""
BATCHES_BETWEEN_TRIES = 10
"""Number of batches between two attempts of the driver to catch up parked tables, which could not be written."""
_MAX_NAMED = 5

_Result = TypeVar("_Result")
OpenTable = Callable[[TableTarget, Landed], TableCommits]
"""Function that opens a table, or creates it if it is missing; it raises TieredStreamError.

The arguments are the table, and the newest batch that it must have.
"""


class ParkedRowsReader(Protocol):
    """Reader that reads records again for parked tables, and that reports to the planner which tables are parked.

    A parked table is one that could not be written when the records were read first.
    """

    def report_parked(self, parked: Sequence[str]) -> None:
        """Report to the planner the keys of all parked tables, which are tables that could not be written.

        From the next planned batch on, tasks write no rows for these tables.
        """

    def files(self, key: str, ranges: PartitionRanges, query_id: str, batch_id: int) -> Sequence[DataFile]:
        """Read offset ranges again, write the rows and dead letters of the table `key`, and return their files.

        The files are not committed yet. The dead letters get the query id `query_id` and the batch id `batch_id`.

        Raises:
            DataLossError: records in the ranges are gone.
            TieredStreamError: the records could not be read, or the files could not be written.
        """


@dataclass(frozen=True, slots=True)
class _Share:
    """Files of a batch that belong to the table `target`: files of rows, and files of dead letters meant for the table.

    `landed` is the newest batch that the table must have. `commits` is None until the table is opened.
    """

    target: TableTarget
    files: Sequence[DataFile]
    landed: Landed
    commits: TableCommits | None
    has_batch: bool = False
    """True if the table already has the batch."""

    @property
    def rows(self) -> list[DataFile]:
        return [file for file in self.files if file.dead_letters_for is None]


_Failed = dict[str, TieredStreamError]
"""Errors of the tables that could not be written, by table key."""


@dataclass(eq=False)
class ManyTables:
    """Object that commits the batches of one query to all its tables, one batch at a time.

    If `park` is true, a table that cannot be written is parked: the query continues without the table, and catches it
    up later. If `park` is false, the query fails.
    """

    routing: Routing
    open_table: OpenTable
    open_dead_letters: OpenDeadLetters
    tables_log: QueryTablesLog
    rows_reader: ParkedRowsReader
    _: KW_ONLY
    park: bool
    in_thread: Callable[[Callable[[str], Any]], Callable[[str], Any]] = lambda do: do
    """Function that wraps a function for another thread, such as pyspark's `inheritable_thread_target`.

    Spark's jobs of the wrapped function then belong to the query, and end when the query is stopped.
    """

    def __post_init__(self) -> None:
        self._dead_letters = QueryDeadLetters(self.routing, self.open_dead_letters)
        self._keys: dict[str, str] = {}
        """Keys of the tables that were opened, by the table id in Delta's metadata."""
        self._known: LRUCache[str, TableCommits] = LRUCache(MAX_OPEN_TABLES)
        self._landed: list[LandedRows] = []
        """Rows that were committed since the last batch; the thread pool's threads append to it."""
        self._threads = ThreadPoolExecutor(COMMITS_AT_ONCE, "table-commits")

    def begin(self, query_id: str) -> None:
        """Catch up the tables that an earlier run has parked, and report to the planner the tables that stay parked.

        An earlier run parked a table if it could not write the table, and continued without it. The caller calls this
        method before the first batch of a run.

        Raises:
            DataLossError: records that a parked table lacks are gone.
            TableError: a parked table still cannot be written, and `park` is false.
        """
        last = self.tables_log.last_done()
        tables = self._caught_up(query_id, self.tables_log.before(last + 1))
        if last >= 0:
            self.tables_log.after(last, tables)
        if tables.parked and not self.park:
            first = next(iter(tables.parked.values()))
            raise TableError(f"the table {first.name}, which is parked, cannot be caught up: {first.reason}")
        self.rows_reader.report_parked(list(tables.parked))

    def commit(
        self, query_id: str, batch_id: int, files: Sequence[DataFile], held: Sequence[HeldRows] = ()
    ) -> list[LandedRows]:
        """Commit a batch's files to their tables, except tables that already have the batch or are parked.

        A parked table is one that could not be written; the query's state has the offset ranges that it lacks. If
        `park` is true, tables that cannot be written now are parked, and their errors are not raised. If a table raises
        DataLossError, the errors are raised even then. `held` describes records that tasks wrote to no file. The tables
        of these records are parked, too.

        Returns:
            The rows and dead letters that were committed, also for parked tables that were caught up now or by `begin`.

        Raises:
            TableError: some tables, which the error names, could not be written; the other tables have the batch.
            DataLossError: in place of TableError, if the first failed table raised it. Or records that a parked table
                lacks are gone.
            ConfigurationError: in place of TableError, if the first failed table raised it. Or topics of one table have
                different settings, or one table was opened by two names.
        """
        tables = self.tables_log.before(batch_id)
        ranges, reasons = _held_ranges(files, held, tables.parked)
        shares = self._shares([file for file in files if file.share not in ranges], tables.landed)
        landed, failed = self._commit_all(shares, query_id, batch_id)
        self._dead_letters.batch_done()
        if failed and (not self.park or any(isinstance(error, DataLossError) for error in failed.values())):
            raise _failure({shares[key].target.name: error for key, error in failed.items()}, batch_id)
        for key, error in failed.items():
            ranges[key], reasons[key] = offset_ranges(shares[key].files), str(error)
        tables = tables.with_landed(landed)
        if ranges:
            tables = self._parked(tables, batch_id, ranges, reasons)
        if tables.parked:
            if batch_id % BATCHES_BETWEEN_TRIES == 0:
                tables = self._caught_up(query_id, tables)
            _warn(tables.parked)
            self.rows_reader.report_parked(list(tables.parked))
        self.tables_log.after(batch_id, tables)
        return self.take_landed()

    def take_landed(self) -> list[LandedRows]:
        """Return, once, the rows and dead letters that were committed, although a table then failed its batch."""
        committed, self._landed = self._landed, []
        return committed

    def _shares(self, files: Sequence[DataFile], landed: Mapping[str, Landed]) -> dict[str, _Share]:
        """Group a batch's files by the table that they belong to; return the groups by table key.

        A dead letter's file belongs to the table that its record was meant for. `landed` has the newest batch of each
        table, by table key.

        Raises:
            ConfigurationError: topics that go to one table have different settings for it.
        """
        by_table: dict[str, list[DataFile]] = defaultdict(list)
        for file in files:
            by_table[file.share].append(file)
        return {
            key: _Share(self._target(_topics(of_table)), of_table, landed.get(key, Landed()), self._known.get(key))
            for key, of_table in by_table.items()
        }

    def _target(self, topics: Sequence[str]) -> TableTarget:
        """Return the table to which all of the topics go.

        Raises:
            ConfigurationError: the topics have different settings for the table.
        """
        first = self.routing.target(topics[0])
        for other in topics[1:]:
            if _shared_settings(self.routing.target(other)) != _shared_settings(first):
                raise ConfigurationError(
                    f"topics {topics[0]} and {other} share the table {first.name}, but have different settings for it: "
                    "give both the same ingest.topic.… settings, or send one of them to another table by ingest.route"
                )
        return first

    def _commit_all(
        self, shares: Mapping[str, _Share], query_id: str, batch_id: int
    ) -> tuple[dict[str, Landed], _Failed]:
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
        opened, refused = self._run_for_tables(
            lambda key: self._open_share(shares[key], query_id, batch_id, checked=key in checked), opening
        )
        failed |= refused
        self._known.update({key: share.commits for key, share in opened.items() if share.commits})
        self._check_names(opened)
        landed = {key: Landed(batch_id, share.landed.version) for key, share in opened.items() if share.has_batch}
        ready = {key: share for key, share in opened.items() if not share.has_batch}
        for table, keys in dead_letters.items():
            going_on = [key for key in keys if key in ready and key not in failed]
            failed |= self._commit_dead_letters(table, going_on, ready, query_id, batch_id)
        committing = {key: share for key, share in ready.items() if key not in failed}
        committed, refused = self._run_for_tables(lambda key: self._commit(ready[key], query_id, batch_id), committing)
        failed |= refused
        for key in failed:
            self._known.pop(key, None)
        return {**landed, **committed}, failed

    def _run_for_tables(self, do: Callable[[str], _Result], keys: Iterable[str]) -> tuple[dict[str, _Result], _Failed]:
        """Call `do` with each table key in the thread pool.

        Returns:
            Two mappings by table key: the results, and the errors of calls that raised TieredStreamError.
        """
        running = {key: self._threads.submit(self.in_thread(do), key) for key in keys}
        done: dict[str, _Result] = {}
        failed: _Failed = {}
        for key, future in running.items():
            try:
                done[key] = future.result()
            except TieredStreamError as error:
                failed[key] = error
        return done, failed

    def _open_share(self, share: _Share, query_id: str, batch_id: int, *, checked: bool) -> _Share:
        """Open the table of `share` if it is not open yet; return `share` with `commits` and `has_batch` set.

        If `checked` is true and the table does not have the batch, also check that the table would accept the files.
        """
        commits = share.commits or self.open_table(share.target, share.landed)
        has_batch = commits.is_committed(query_id, batch_id)
        if has_batch:
            log.info("%s: batch %d is in the table already", share.target.name, batch_id)
        elif checked:
            commits.check(share.files)
        return replace(share, commits=commits, has_batch=has_batch)

    def _commit(self, share: _Share, query_id: str, batch_id: int) -> Landed:
        assert share.commits
        version = share.commits.commit(query_id, batch_id, share.rows)
        self._note(share, query_id, batch_id, version)
        return Landed(batch_id, share.landed.version if version is None else version)

    def _note(self, share: _Share, query_id: str, batch_id: int, version: int | None) -> None:
        assert share.commits
        place = GivenOptions(share.target.settings).read(DEAD_LETTER_TABLE)
        landed = landed_rows(share.target.name, place or "", share.files)
        self._landed.append(share.commits.with_keys(landed, query_id, batch_id, version))

    def _check_names(self, opened: Mapping[str, _Share]) -> None:
        """Check that no table was opened by two names; tables for dead letters are checked, too.

        Under both names, a batch has the same application transaction in the table. So the second commit of the batch
        would wrongly count as done.

        Raises:
            ConfigurationError: one table was opened by two names.
        """
        tables = {key: share.commits for key, share in opened.items() if share.commits}
        for key, commits in {**tables, **self._dead_letters.commits}.items():
            other = self._keys.setdefault(commits.table_id, key)
            if other != key:
                raise ConfigurationError(
                    f"{other} and {key} are one table (its id is {commits.table_id}): name it the same way in "
                    "ingest.table, ingest.route and ingest.deadLetterTable. Nothing of the batch was committed to it"
                )

    def _dead_letter_tables(
        self, shares: Mapping[str, _Share], query_id: str, batch_id: int
    ) -> tuple[dict[str, list[str]], _Failed]:
        """Open the tables for dead letters to which a batch commits.

        Returns:
            Two mappings. The first has, by the key of a table for dead letters, the keys of the tables in `shares`
            whose dead letters it gets. The second has, by the key of a table in `shares`, the error if a table for its
            dead letters cannot be opened.
        """
        shares_of_table: dict[str, list[str]] = {}
        failed: _Failed = {}
        for key, share in shares.items():
            try:
                for table in self._dead_letters.tables_for(share.files, _topics(share.files), query_id, batch_id):
                    shares_of_table.setdefault(table, []).append(key)
            except TieredStreamError as error:
                failed[key] = error
        return shares_of_table, failed

    def _commit_dead_letters(
        self, table: str, keys: Sequence[str], shares: Mapping[str, _Share], query_id: str, batch_id: int
    ) -> _Failed:
        """Commit the dead letters that were meant for the tables `keys` to one table for dead letters (key `table`).

        Returns:
            An error for each key in `keys` if the commit fails, else an empty mapping.
        """
        files = [file for key in keys for file in shares[key].files]
        error = self._dead_letters.commit(table, query_id, batch_id, files, keys) if keys else None
        if error is None:
            return {}
        return {key: _as_error_like(error, f"its dead letters were not committed: {error}") for key in keys}

    # Tables that are parked

    def _parked(
        self, tables: QueryTables, batch_id: int, ranges: Mapping[str, PartitionRanges], reasons: Mapping[str, str]
    ) -> QueryTables:
        """Return a copy of `tables` in which each table in `ranges` is parked.

        `ranges` has, by table key, the offset ranges of the batch that the table lacks. If the table is parked already,
        they are added to the offset ranges that it lacks. `reasons` has, by table key, the reason for each table that
        is not parked yet.
        """
        parked = dict(tables.parked)
        for key, of_table in ranges.items():
            held, before = Held(batch_id, of_table), parked.get(key)
            name = self._target(sorted({partition.topic for partition in of_table})).name
            parked[key] = Parked(name, reasons[key], held) if before is None else before.holding(held)
        return replace(tables, parked=parked)

    def _caught_up(self, query_id: str, tables: QueryTables) -> QueryTables:
        """Try to commit the rows that the parked tables lack; return `tables` with fewer parked tables.

        A table that gets all rows that it lacks is no longer parked. If the rows cannot be committed to a table, the
        table stays parked, with the new reason.

        Raises:
            DataLossError: records that a parked table lacks are gone.
        """
        for key, parked in tables.parked.items():
            try:
                landed, parked = self._lacking(query_id, key, parked, tables)
                if landed is None:
                    landed = self._catch_up(query_id, key, parked, tables)
            except DataLossError as error:
                raise DataLossError(f"the parked table {parked.name} cannot be caught up: {error}") from error
            except TieredStreamError as error:
                self._known.pop(key, None)
                again = replace(parked, reason=str(error))
                tables = replace(tables, parked={**tables.parked, key: again})
            else:
                log.warning("the table %s has what it lacked, and is parked no more", parked.name)
                left = {other: table for other, table in tables.parked.items() if other != key}
                tables = replace(tables.with_landed({key: landed}), parked=left)
        return tables

    def _lacking(self, query_id: str, key: str, parked: Parked, tables: QueryTables) -> tuple[Landed | None, Parked]:
        """Open a parked table, and look up in the table's log which of the offset ranges in `parked` it still lacks.

        Returns:
            The table's newest batch and `parked`, if the table lacks nothing. Otherwise None, and a copy of `parked`
            whose `tried` has all the ranges that the table lacks.
        """
        before = tables.landed.get(key, Landed())
        topics = sorted({partition.topic for partition in parked.tried.ranges})
        commits = self._known[key] = self.open_table(self._target(topics), before)
        held = [held_batch for held_batch in (parked.tried, parked.since) if held_batch is not None]
        lacks = [held_batch for held_batch in held if not commits.is_committed(query_id, held_batch.batch)]
        if not lacks:
            return Landed(parked.newest.batch, before.version), parked
        # All ranges are committed under the newest batch's id: a later run looks for this id if the response is lost.
        lacking = lacks[0].joined(replace(lacks[-1], batch=parked.newest.batch))
        return None, replace(parked, tried=lacking, since=None)

    def _catch_up(self, query_id: str, key: str, parked: Parked, tables: QueryTables) -> Landed:
        lacks, commits = parked.tried, self._known[key]
        files = self.rows_reader.files(key, lacks.ranges, query_id, lacks.batch)
        topics = sorted({partition.topic for partition in lacks.ranges})
        share = _Share(self._target(topics), files, tables.landed.get(key, Landed()), commits)
        commits.check(files)
        has = max(share.landed.batch, commits.last_batch(query_id, lacks.batch))
        self._dead_letters.replace(topics, query_id, files, key, has)
        version = commits.commit(query_id, lacks.batch, share.rows)
        self._note(share, query_id, lacks.batch, version)
        return Landed(lacks.batch, version or 0)


def _held_ranges(
    files: Sequence[DataFile], held: Sequence[HeldRows], parked: Mapping[str, Parked]
) -> tuple[dict[str, PartitionRanges], dict[str, str]]:
    """Return the offset ranges of a batch whose rows are not committed now, and the reasons, both by table key.

    The rows are not committed because their table is already in `parked`, or because a task could not write them to
    files (`held`). The reasons are taken from `held`. A table that is already in `parked` and not in `held` has no
    reason.
    """
    reasons = {rows.table: rows.reason for rows in held}
    without = reasons.keys() | parked.keys()
    by_table: dict[str, list[DataFile | HeldRows]] = defaultdict(list)
    for file in files:
        by_table[file.share].append(file)
    for rows in held:
        by_table[rows.table].append(rows)
    return {key: offset_ranges(of_table) for key, of_table in by_table.items() if key in without}, reasons


def _topics(files: Sequence[DataFile]) -> list[str]:
    return sorted({partition.topic for file in files for partition in file.offsets})


def _warn(parked: Mapping[str, Parked]) -> None:
    for table in parked.values():
        offsets = sum(map(len, table.tried.joined(table.newest).ranges.values()))
        log.warning(
            "the table %s is parked, and lacks %d offsets up to batch %d: %s",
            table.name, offsets, table.newest.batch, table.reason,
        )  # fmt: skip


def _shared_settings(target: TableTarget) -> tuple[TableFiles, StructType, dict[str, str], str | None]:
    """Return the settings that all topics of one table must have in common: files, schema, properties, `mergeOn`."""
    merge_on = GivenOptions(target.settings).read(MERGE_ON)
    return target.files, target.schema, table_properties(target.settings), merge_on


def _failure(failed: Mapping[str, TieredStreamError], batch_id: int) -> TieredStreamError:
    """Return one error for all failed tables; `failed` has their errors, by table name.

    The error has the text of the first table's error, and names up to `_MAX_NAMED` other tables. It is a DataLossError
    or a ConfigurationError if the first table's error is, and otherwise a TableError.
    """
    (name, error), *others = failed.items()
    named = ", ".join(other for other, _ in others[:_MAX_NAMED])
    unnamed = f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else ""
    also = f" (nor did {named}{unnamed})" if others else ""
    return _as_error_like(error, f"the table {name} did not take batch {batch_id}{also}: {error}")


def _as_error_like(error: TieredStreamError, message: str) -> TieredStreamError:
    kind = next((known for known in (DataLossError, ConfigurationError) if isinstance(error, known)), TableError)
    failure = kind(message)
    failure.__cause__ = error
    return failure

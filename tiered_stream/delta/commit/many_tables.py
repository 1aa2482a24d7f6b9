"""The driver's commits for a query that writes many tables: one commit for each table with files, up to 8 at once.

If a table cannot be written, the other tables still get the batch; if the batch is repeated, they do not get it again.
With `ingest.onTableError=park`, the table that cannot be written is parked, and the query continues without it. While a
table is parked, neither its rows nor its dead letters are committed. Later, the offset ranges that a parked table lacks
are read again, and their rows are committed. This commit has the id of the last batch in these ranges, so that a commit
whose response was lost is recognized.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tiered_stream.delta.checkpoint.query_tables import Held, Landed, Parked, QueryTables, QueryTablesLog
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.query_commits import QueryCommits, Result, Share, dead_letters_in, error_like
from tiered_stream.delta.schema.routing import table_for
from tiered_stream.delta.settings.ingest_settings import ROUTE, TableSpec
from tiered_stream.delta.write.data_files import DataFile, HeldRows, offset_ranges
from tiered_stream.errors import ConfigurationError, DataLossError, TableError, TieredStreamError, some_of
from tiered_stream.model import PartitionRanges

log = logging.getLogger(__name__)

COMMITS_AT_ONCE = 8
BATCHES_BETWEEN_TRIES = 10
"""Number of batches between two attempts of the driver to catch up parked tables, which could not be written."""
Work = Callable[[Share], Any]
"""Function that a thread calls with one table's share of a batch, such as a function that commits the share."""


class ParkedRowsReader(Protocol):
    """Reader that reads records again for parked tables, and that reports to the planner which tables are parked.

    A parked table is one that could not be written when the records were read for the first time.
    """

    def report_parked(self, parked: Sequence[str]) -> None:
        """Report to the planner the keys of all parked tables, which are tables that could not be written.

        From the next planned batch on, tasks write no rows for these tables.
        """

    def files(self, key: str, ranges: PartitionRanges, query_id: str, batch_id: int) -> Sequence[DataFile]:
        """Read offset ranges again, write rows and dead letters for the table with the key `key`, and return the files.

        The files are not committed yet. The dead letters get the query id `query_id` and the batch id `batch_id`.

        Raises:
            DataLossError: records in the ranges are gone.
            TieredStreamError: the records could not be read, or the files could not be written.
        """


@dataclass(eq=False)
class ManyTables(QueryCommits):
    """Object that commits the batches of one query to the tables for which they have files, one batch at a time.

    With `ingest.onTableError=park`, a table that cannot be written is parked: the query continues without the table,
    and commits the missing rows later. Otherwise, the query fails.
    """

    tables_log: QueryTablesLog
    rows_reader: ParkedRowsReader
    in_thread: Callable[[Work], Work] = lambda do: do
    """Function that wraps a function for another thread, such as pyspark's `inheritable_thread_target`.

    Spark's jobs of the wrapped function then belong to the query, and end when the query is stopped.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._threads = ThreadPoolExecutor(COMMITS_AT_ONCE, "table-commits")
        self._first_topics: dict[str, str] = {}
        """First topic that had rows for a table in this run, by table key; the table is opened with its settings."""

    def _calls(self, do: Callable[[Share], Result], shares: Mapping[str, Share]) -> dict[str, Callable[[], Result]]:
        calls = {key: self._threads.submit(self.in_thread(do), share) for key, share in shares.items()}
        wait(calls.values())  # an unexpected error of one call must not leave the others running
        return {key: call.result for key, call in calls.items()}

    def begin(self, query_id: str) -> None:
        """Commit the rows that parked tables lack, and report to the planner the tables that stay parked.

        An earlier run parked a table if it could not write the table, and continued without it. Call this method before
        the first batch of a run.

        Raises:
            ConfigurationError: a topic goes to another table now, and its earlier table is parked.
            DataLossError: records that a parked table lacks are gone.
            TableError: a parked table still cannot be written, and `ingest.onTableError` is not `park`.
        """
        last = self.tables_log.last_done()
        tables = self.tables_log.before(last + 1)
        self._check_routes(tables.parked)
        tables = self._caught_up(query_id, tables)
        if last >= 0:
            self.tables_log.after(last, tables)
        if tables.parked and not self.routing.spec.parks:
            first = next(iter(tables.parked.values()))
            raise TableError(f"the table {first.name}, which is parked, cannot be caught up: {first.reason}")
        self.rows_reader.report_parked(list(tables.parked))

    def commit(self, query_id: str, batch_id: int, files: Sequence[DataFile], held: Sequence[HeldRows] = ()) -> None:
        """Commit a batch's files to their tables, except tables that already have the batch or are parked.

        A parked table is one that could not be written; the query's state has the offset ranges that it lacks. With
        `ingest.onTableError=park`, a table that cannot be written now is parked, and its error is not raised unless one
        of the errors is a DataLossError. `held` describes records that tasks wrote to no file. The tables of these
        records are parked, too.

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
        landed, failed = self.commit_all(shares, query_id, batch_id)
        parks = self.routing.spec.parks and not any(isinstance(error, DataLossError) for error in failed.values())
        if failed and not parks:
            raise _failure({shares[key].spec.name: error for key, error in failed.items()}, batch_id)
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

    def _shares(self, files: Sequence[DataFile], landed: Mapping[str, Landed]) -> dict[str, Share]:
        """Group a batch's files by the table that they belong to; return the groups by table key.

        A file of dead letters belongs to the table that their records were meant for. `landed` has the newest batch of
        each table, by table key.

        Raises:
            ConfigurationError: topics of one table have different settings.
        """
        by_table: dict[str, list[DataFile]] = defaultdict(list)
        for file in files:
            by_table[file.share].append(file)
        return {
            key: self._share(offset_ranges(of_table), of_table, landed.get(key, Landed()), self.open_commits.get(key))
            for key, of_table in by_table.items()
        }

    def _share(
        self, ranges: PartitionRanges, files: Sequence[DataFile], landed: Landed, commits: TableCommits | None
    ) -> Share:
        targets = (self.routing.dead_letters(self.routing.target(partition.topic)) for partition in sorted(ranges))
        dead_letters = {target.key: target for target in targets if target is not None}
        return Share(self._target(ranges), files, landed, commits, list(dead_letters.values()))

    def _dead_letters_failed(self, error: TieredStreamError) -> TieredStreamError:
        return error_like(error, f"its dead letters were not committed: {error}")

    def _target(self, ranges: PartitionRanges) -> TableSpec:
        """Return the table of all topics in `ranges`; raise ConfigurationError if the topics' settings differ."""
        topics = sorted({partition.topic for partition in ranges})
        topic = self._first_topics.setdefault(self.routing.target(topics[0]).key, topics[0])
        first = self.routing.target(topic)
        for other in topics:
            if self.routing.target(other).shared != first.shared:
                raise ConfigurationError(
                    f"topics {topic} and {other} share the table {first.name}, but have different settings for it: "
                    "give both the same ingest.topic.… settings, or send one of them to another table by ingest.route"
                )
        return first

    # Tables that are parked

    def _check_routes(self, parked: Mapping[str, Parked]) -> None:
        """Check that the topics whose rows a parked table lacks still go to this table.

        Another table cannot get these rows under their batch id, because it may have later batches of the query.

        Raises:
            ConfigurationError: a topic goes to another table now.
        """
        for key, table in parked.items():
            for partition, lacking in sorted(table.lacks.items()):
                route = self.routing.route(partition.topic)
                if route.uri_for(partition.topic) != key:
                    raise ConfigurationError(
                        f"topic {partition.topic} goes to the table {table_for(route.table, partition.topic)} now, but "
                        f"the parked table {table.name} lacks {partition} from {lacking.start} to {lacking.end}: "
                        f"{table.reason}. Send the topic to {table.name} again ({ROUTE.name}) until this table has the "
                        "rows. To land them in another table, start a query with a new checkpoint at these offsets "
                        "(startingOffsets)"
                    )

    def _parked(
        self, tables: QueryTables, batch_id: int, ranges: Mapping[str, PartitionRanges], reasons: Mapping[str, str]
    ) -> QueryTables:
        """Return a copy of `tables` in which each table in `ranges` is parked.

        A parked table is one that could not be written. `ranges` has, by table key, the offset ranges of the batch that
        the table lacks. If the table is parked already, these ranges are added to the ones that it lacks. `reasons`
        has, by table key, the reason for each table that is not parked yet.
        """
        parked = dict(tables.parked)
        for key, of_table in ranges.items():
            held, before = Held(batch_id, of_table), parked.get(key)
            name = self._target(of_table).name
            parked[key] = Parked(name, reasons[key], held) if before is None else before.holding(held)
        return replace(tables, parked=parked)

    def _caught_up(self, query_id: str, tables: QueryTables) -> QueryTables:
        """Try to commit the rows that the parked tables lack; return the new state of the query's tables.

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
                self.open_commits.pop(key, None)
                again = replace(parked, reason=str(error))
                tables = replace(tables, parked={**tables.parked, key: again})
            else:
                log.warning("the table %s has what it lacked, and is parked no more", parked.name)
                left = {other: table for other, table in tables.parked.items() if other != key}
                tables = replace(tables.with_landed({key: landed}), parked=left)
        return tables

    def _lacking(self, query_id: str, key: str, parked: Parked, tables: QueryTables) -> tuple[Landed | None, Parked]:
        """Open a parked table, and look up in its log which of the offset ranges in `parked` the table still lacks.

        `key` is the table's key. `tables` is the state of the query's tables, which has the table's newest known batch.

        Returns:
            The table's newest batch and `parked`, if the table lacks nothing. Otherwise None, and a copy of `parked`
                whose `tried` has all the ranges that the table lacks.
        """
        before = tables.landed.get(key, Landed())
        commits = self.open_commits[key] = self.open_table(self._target(parked.tried.ranges), before)
        held = [held_batch for held_batch in (parked.tried, parked.since) if held_batch is not None]
        lacks = [held_batch for held_batch in held if not commits.is_committed(query_id, held_batch.batch)]
        if not lacks:
            return Landed(parked.newest.batch, before.version), parked
        # All ranges are committed under the newest batch's id: a later run looks for this id if the response is lost.
        lacking = lacks[0].joined(replace(lacks[-1], batch=parked.newest.batch))
        return None, replace(parked, tried=lacking, since=None)

    def _catch_up(self, query_id: str, key: str, parked: Parked, tables: QueryTables) -> Landed:
        lacks, commits = parked.tried, self.open_commits[key]
        files = self.rows_reader.files(key, lacks.ranges, query_id, lacks.batch)
        share = self._share(lacks.ranges, files, tables.landed.get(key, Landed()), commits)
        commits.check(query_id, lacks.batch, files)
        has = max(share.landed.batch, commits.last_batch(query_id, lacks.batch))
        for spec in share.dead_letters:
            self.dead_letter_table(spec).replace(query_id, dead_letters_in(files, spec.key), {key: has})
        return self.commit_share(replace(share, landed=Landed()), query_id, lacks.batch)


def _held_ranges(
    files: Sequence[DataFile], held: Sequence[HeldRows], parked: Mapping[str, Parked]
) -> tuple[dict[str, PartitionRanges], dict[str, str]]:
    """Return the offset ranges of a batch whose rows are not committed now, and the reasons, both by table key.

    The rows are not committed because their table is already in `parked`, or because a task could not write the rows
    to files (`held`). The reasons are taken from `held`. A table that is already in `parked` and not in `held` has no
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


def _warn(parked: Mapping[str, Parked]) -> None:
    for table in parked.values():
        offsets = sum(map(len, table.lacks.values()))
        log.warning(
            "the table %s is parked, and lacks %d offsets up to batch %d: %s",
            table.name, offsets, table.newest.batch, table.reason,
        )  # fmt: skip


def _failure(failed: Mapping[str, TieredStreamError], batch_id: int) -> TieredStreamError:
    """Return one error for all tables that failed; `failed` has their errors, by table name.

    The error has the text of the first table's error, and names up to 5 other tables. It is a DataLossError or a
    ConfigurationError if the first table's error is one, otherwise a TableError.
    """
    (name, error), *others = failed.items()
    also = f" (nor did {some_of([other for other, _ in others])})" if others else ""
    return error_like(error, f"the table {name} did not take batch {batch_id}{also}: {error}")

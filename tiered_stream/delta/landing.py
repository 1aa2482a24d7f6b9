"""`land`: a streaming query that brings topics into a Delta table, by the lane that the table allows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tiered_stream.delta.address import TableAddress, find_address, make_by_spark
from tiered_stream.delta.compaction import compaction_of
from tiered_stream.delta.data_files import data_files, held_rows, observed
from tiered_stream.delta.data_files_source import SOURCE, FilesDataSource
from tiered_stream.delta.dead_letters import DeadLetterCommits, check_files
from tiered_stream.delta.delta_spark_commit import DeltaSparkTable, has_delta_spark
from tiered_stream.delta.ingest_settings import (
    COMMIT,
    TRANSACTION,
    TableFiles,
    check_names,
    source_options,
    table_files,
    table_properties,
)
from tiered_stream.delta.landing_by_topic import (
    TopicTables,
    dead_letter_place,
    is_by_topic,
    plan_routing,
    tables_query,
)
from tiered_stream.delta.lane import Lane, TableDescription, left_out, table_rules
from tiered_stream.delta.query_evolution import stream_of
from tiered_stream.delta.query_run import AVAILABLE_NOW, BoundedRun, QueryRun, query_id_of
from tiered_stream.delta.routing import Route, Routing, TableTarget, routing_options
from tiered_stream.delta.row_schema import plan_topics, shared_columns, time_zone
from tiered_stream.delta.row_settings import evolution_of, infers, row_settings
from tiered_stream.delta.session_checks import check_file_system, check_table
from tiered_stream.delta.spark_lane import SparkLane
from tiered_stream.delta.spark_lane_session import check_spark_sink
from tiered_stream.delta.suitability import Suitability, fitted, look_at, reach
from tiered_stream.delta.table_growth import growth_of
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.formats.row_format import RowFormat
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.source import reporting_to, reports_address
from tiered_stream.spark_session import is_connect, register_source

if TYPE_CHECKING:
    from tiered_stream.delta.commit import TableCommits

log = logging.getLogger(__name__)

_ASKED = "it was asked for"
LANES = ("auto", *(each.value for each in Lane))


def land(
    spark: SparkSession,
    *,
    options: Mapping[str, str],
    table: str,
    checkpoint: str,
    trigger: str = AVAILABLE_NOW,
    lane: str = "auto",
    name: str | None = None,
) -> StreamingQuery:
    """Start a query that lands topics in a Delta table, every record once; the table is made when it is missing.

    Args:
        options: those of `format("tiered_stream")`, and `ingest.*` settings for the table.
        table: a path (it has a slash in it), or a name in the catalog; with `{topic}` in it, each topic has its own.
        checkpoint: the query's checkpoint location; either lane goes on from where the other left it.
        trigger: `availableNow`, or an interval such as `10 seconds`.
        lane: `direct`, `spark`, or `auto`: direct where the table allows it; the log says which, and why.
        name: the query's name.

    Raises:
        ConfigurationError: an option is wrong, the table does not fit, or it does not allow the lane that was asked.
        TableError: the table cannot be reached or made.
    """
    return plan_query(
        spark, options=options, table=table, checkpoint=checkpoint, trigger=trigger, lane=lane, name=name
    ).start()


def plan_query(
    spark: SparkSession,
    *,
    options: Mapping[str, str],
    table: str,
    checkpoint: str,
    trigger: str = AVAILABLE_NOW,
    lane: str = "auto",
    name: str | None = None,
) -> Landing | TopicsLanding:
    """What `land` starts; arguments and errors as there.

    Of many tables none is looked at yet. One that is missing may be made as late as at the start.
    """
    if not is_by_topic(options, table):
        run = QueryRun(checkpoint, trigger, name)
        return _plan_landing(spark, options, table, run, lane, None, makes_later=True)
    check_settings(options, lane)
    check_file_system(spark, "the checkpoint", checkpoint)
    return TopicsLanding(spark, plan_routing(spark, options, table, lane), QueryRun(checkpoint, trigger, name))


@dataclass(frozen=True)
class Landing:
    """A query that is ready to start."""

    spark: SparkSession
    settings: Mapping[str, str]
    address: TableAddress
    files: TableFiles
    schema: StructType
    run: QueryRun
    bounded: BoundedRun | None
    found: Suitability
    rows: Mapping[str, RowFormat]
    again: Callable[[], Landing]
    """Plans it once more, after the table was made."""

    @property
    def lane(self) -> Lane:
        return Lane.SPARK if self.found.why_not else Lane.DIRECT

    @property
    def reason(self) -> str:
        """Why the lane is the one it is, who commits, and what becomes of columns that are not written."""
        table, why_not, committer = self.found.table, self.found.why_not, self.found.committer
        said = [why_not or "nothing in the table forbids it"]
        if committer and not why_not:
            said.append(f"{committer.by} commits ({committer.reason})")
        names = left_out(table, self.schema) if table else ()
        if names:
            said.append(f"NULL in {', '.join(names)}, which records do not have")
        return "; ".join(said)

    def start(self) -> StreamingQuery:
        """Start it."""
        # Who leaves the choice to us should see it where nobody has set logging up, if it is the slower lane.
        level = logging.WARNING if self.lane is Lane.SPARK and self.reason != _ASKED else logging.INFO
        log.log(level, "%s: the %s lane: %s", self.address, self.lane.value, self.reason)
        if self.lane is Lane.DIRECT:
            return self._start_direct()
        lane = SparkLane(self.spark, self.settings, self.address, self.files, self.rows, self.run, self.bounded)
        return lane.start()

    def _start_direct(self) -> StreamingQuery:
        commits: Future[TableCommits] = Future()
        if self.found.make is None:
            commits.set_result(self._commits())
            return self._start_query(commits)
        query = self._start_query(commits)
        try:
            # Meanwhile Spark starts the query's planner, a Python process.
            made = self.found.make()
            if made.why_not is None and made.rows == self.found.rows:
                commits.set_result(replace(self, found=made)._commits())
                return query
        except BaseException as error:
            commits.set_exception(error)
            query.stop()
            raise
        log.info("%s: it is not as it was to be made, so the query starts anew", self.address)
        commits.cancel()
        query.stop()
        return self.again().start()

    def _start_query(self, commits: Future[TableCommits]) -> StreamingQuery:
        """Start it; no task runs before the table can be committed to."""
        tasks = (self.bounded and self.bounded.tasks) or self.spark.sparkContext.defaultParallelism
        files, bounded = replace(self.files, tasks=tasks), self.bounded
        register_source(self.spark, FilesDataSource)
        settings = reporting_to(reports_address(self.spark), self.settings)
        places = dead_letter_place(self.spark, self.settings)
        route = Route(".*", str(self.address), files.uri)
        routing = Routing(settings, files, (route,), rows=self.found.rows, dead_letter_places=places, has_rules=True)
        options = routing_options(routing)
        if bounded:
            options[TRANSACTION.name] = f"/{bounded.transaction_id}"
        rows = stream_of(self.spark, SOURCE, options, self.run.checkpoint)
        dead_letters = self._dead_letters(routing)

        def commit(batch: DataFrame, batch_id: int) -> None:
            table = commits.result()
            query_id = bounded.transaction_id if bounded else query_id_of(batch)
            if table.is_committed(query_id, batch_id):
                log.info("%s: batch %d is in the table already", self.address, batch_id)
                return
            table.prepare()
            files = data_files(batch.collect())
            if dead_letters:
                files = dead_letters.commit_first(table, self.files.uri, query_id, batch_id, files)
            table.commit(query_id, batch_id, files)
            if self.run.goes_on:
                table.prepare()

        rows = bounded.limited(rows) if bounded else rows
        return self.run.started_interpreted(self.spark, observed(rows).writeStream.foreachBatch(commit))

    def _commits(self) -> TableCommits:
        from tiered_stream.delta.commit import LandingTable, TableCommits, on_gap

        table, committer = self.found.table, self.found.committer
        assert table is not None
        assert committer is not None
        fail = parse_options(source_options(self.settings), streaming=True).fail_on_data_loss
        grow = growth_of(self.spark, self.address, self.files, committer, evolution_of(self.settings))
        planned = LandingTable(
            self.files,
            self.schema,
            table.table_id,
            committer.why_not_direct,
            fail,
            table_rules(table),
            grow,
            compaction_of(self.spark, self.address, self.files, committer),
        )
        gap = on_gap(self.spark, self.run.checkpoint, str(self.address), fail=fail)
        return TableCommits(committer.open(self.spark, self.address, self.files), planned, gap)

    def _dead_letters(self, routing: Routing) -> DeadLetterCommits | None:
        target = routing.dead_letters(TableTarget(str(self.address), self.files, self.schema, self.settings))
        if target is None:
            return None
        tables = TopicTables(self.spark, self.run.checkpoint, fail_on_data_loss=False, checked=False)
        return DeadLetterCommits(tables.open_dead_letters(target), row_settings(self.settings).max_dead_letters)


@dataclass(frozen=True)
class TopicsLanding:
    """A query for many tables that is ready to start."""

    spark: SparkSession
    routing: Routing
    run: QueryRun
    lane = Lane.DIRECT

    @property
    def reason(self) -> str:
        """What is known before any table is opened."""
        tables = ", ".join(dict.fromkeys(route.table for route in self.routing.routes))
        return f"one query for all of {tables}; each table is opened when its first rows come"

    def start(self) -> StreamingQuery:
        """Start it."""
        log.info("the %s lane: %s", self.lane.value, self.reason)
        register_source(self.spark, FilesDataSource)
        files = replace(self.routing.files, tasks=self.spark.sparkContext.defaultParallelism)
        settings = reporting_to(reports_address(self.spark), self.routing.settings)
        routing = replace(self.routing, files=files, settings=settings)
        query = tables_query(self.spark, routing, self.run.checkpoint)
        most_dead = row_settings(routing.settings).max_dead_letters

        def commit(batch: DataFrame, batch_id: int) -> None:
            rows = batch.collect()
            files = data_files(rows)
            check_files(most_dead, files, list(routing.dead_letter_places))
            query.tables.commit(query_id_of(batch), batch_id, files, held_rows(rows))

        rows = stream_of(self.spark, SOURCE, query.options, self.run.checkpoint)
        return self.run.started_interpreted(self.spark, observed(rows).writeStream.foreachBatch(commit))


def check_settings(options: Mapping[str, str], lane: str) -> Options:
    """What can be said without Spark and the table; the source's own options.

    Raises:
        ConfigurationError: a setting is missing, unknown or malformed.
    """
    if lane not in LANES:
        raise ConfigurationError(f"the lane is {lane!r}; it may be {', '.join(LANES)}")
    check_names(options)
    parsed = parse_options(source_options(options), streaming=True)
    check_all_columns(parsed)
    table_files(options)
    row_settings(options)
    GivenOptions(options).read(COMMIT)
    return parsed


def check_all_columns(options: Options) -> None:
    """Raises ConfigurationError: only some of the columns are asked for, but whole records are copied."""
    if options.columns is not None:
        raise ConfigurationError("option columns is for queries of your own: take it away, all columns are written")


def plan_landing(
    spark: SparkSession,
    *,
    options: Mapping[str, str],
    table: str,
    checkpoint: str,
    trigger: str = AVAILABLE_NOW,
    lane: str = "auto",
    name: str | None = None,
    bounded: BoundedRun | None = None,
) -> Landing:
    """Choose the lane, and make the table when it is missing; arguments and errors as `land`."""
    run = QueryRun(checkpoint, trigger, name)
    return _plan_landing(spark, options, table, run, lane, bounded, makes_later=False)


def _plan_landing(
    spark: SparkSession,
    options: Mapping[str, str],
    table: str,
    run: QueryRun,
    lane: str,
    bounded: BoundedRun | None,
    *,
    makes_later: bool,
) -> Landing:
    """`makes_later`: a table that Spark has to make for the direct lane is made when the query starts."""
    again = partial(_plan_landing, spark, options, table, run, lane, bounded, makes_later=False)
    parsed = check_settings(options, lane)
    replaces = bounded is not None and bounded.replace_where is not None
    if replaces and lane == "direct":
        raise ConfigurationError(
            "the direct lane only appends: rows are replaced in the Spark lane. Use lane auto or spark."
        )
    check_file_system(spark, "the checkpoint", run.checkpoint)
    address = find_address(spark, table)
    files = table_files(options)
    if infers(options):
        # Here, since it brings all that reads records, which takes the driver of most jobs 0.4 s to import.
        from tiered_stream.delta.inferred_schema import with_inferred

        storage, _ = reach(spark, address.uri or "", options)
        known = _description(spark, address, replace(files, uri=address.uri, storage=storage)) if address.uri else None
        options = with_inferred(options, known, include_headers=parsed.include_headers)
    rows: Mapping[str, RowFormat] = plan_topics(options, parsed.include_headers, time_zone(spark))
    schema = shared_columns(rows.values(), files.day_column)
    make = partial(
        make_by_spark, spark, schema=schema, day_column=files.day_column, given=table_properties(options),
        cluster_by=files.cluster_by,
    )  # fmt: skip
    if address.uri is None:
        make(address)
        address = find_address(spark, table)
    storage, unreachable = reach(spark, address.uri or "", options)
    files = replace(files, uri=address.uri or "", storage=storage)
    if lane == "spark" or unreachable:
        found = Suitability(None, _ASKED if lane == "spark" else unreachable)
    elif replaces:
        found = Suitability(None, "the direct lane only appends, and rows are to be replaced")
    else:
        found = look_at(spark, address, options, files, schema, make, rows)
        if found.make and (found.why_not or not makes_later):
            found = found.make()
    if lane == "direct" and found.why_not:
        raise ConfigurationError(f"the direct lane cannot write to {address}: {found.why_not}. Use lane auto or spark.")
    if found.why_not:
        check_table(spark, address.path)
    if found.table is None:
        make(address)
        found = replace(found, table=_description(spark, address, files))
    rows = found.rows or _rows_for_spark(spark, rows, found.table, address, files)
    schema = shared_columns(rows.values(), files.day_column)
    return Landing(spark, options, address, files, schema, run, bounded, found, rows, again)


def _rows_for_spark(
    spark: SparkSession,
    rows: Mapping[str, RowFormat],
    table: TableDescription | None,
    address: TableAddress,
    files: TableFiles,
) -> Mapping[str, RowFormat]:
    """The rows as the table has them, for the lane that does not look at the table otherwise.

    Raises:
        ConfigurationError: Spark's sink would change values.
    """
    if table is None:
        return rows
    rows, day = fitted(rows, table), files.day_column
    typed = not all(how.is_plain for how in rows.values())
    get = partial(spark.conf.get, default=None)
    check_spark_sink(get, str(address), table, shared_columns(rows.values(), day), day, typed=typed)
    return rows


def _description(spark: SparkSession, address: TableAddress, files: TableFiles) -> TableDescription | None:
    """What a table's log says, as far as anybody here can read it: Spark's Delta, else deltalake."""
    with suppress(TableError):
        if not is_connect(spark) and has_delta_spark(spark):
            found = DeltaSparkTable(spark, address).find()
            return found.state.description if found else None
        if find_spec("deltalake") is not None:
            from tiered_stream.delta.deltalake_commit import describe, open_table

            table = open_table(files)
            return describe(table) if table else None
    return None

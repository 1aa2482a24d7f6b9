"""Streaming queries that land topics in Delta tables (`land`), in the direct lane or in the Spark lane."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tiered_stream.delta.catalog.address import TableAddress, create_by_spark, find_address
from tiered_stream.delta.catalog.session_checks import check_file_system, check_table
from tiered_stream.delta.catalog.session_platform import log_platform
from tiered_stream.delta.checkpoint.query_run import AVAILABLE_NOW, BoundedRun, QueryRun, limited, query_id_of
from tiered_stream.delta.commit.committer import find_table
from tiered_stream.delta.commit.dead_letters import DeadLetterTable, check_files
from tiered_stream.delta.landing import landing_by_topic as by_topic
from tiered_stream.delta.landing.data_files_source import SOURCE, FilesDataSource
from tiered_stream.delta.landing.spark_lane import SparkLane
from tiered_stream.delta.landing.spark_lane_session import check_spark_sink
from tiered_stream.delta.landing.suitability import (
    Suitability,
    assess_table,
    check_merges,
    fitted_rows,
    open_commits,
    replace_unused,
    resolve_storage,
)
from tiered_stream.delta.requirements.lane import Lane, TableDescription, columns_left_null
from tiered_stream.delta.requirements.session_requirements import with_session_codec
from tiered_stream.delta.schema.routing import Route, Routing, TableTarget, routing_options
from tiered_stream.delta.schema.row_plan import plan_topics
from tiered_stream.delta.schema.row_schema import shared_columns, time_zone
from tiered_stream.delta.schema.spark_query import check_by_spark
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.query_settings import check_settings
from tiered_stream.delta.settings.row_settings import infers, row_settings
from tiered_stream.delta.settings.upsert_settings import MODE, UPSERT, is_upsert
from tiered_stream.delta.write.data_files import data_files, held_rows, landed_rows, observed, record_count
from tiered_stream.errors import ConfigurationError, TableError, TieredStreamError
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.observe.landed_rows import LandedRows, note_landed
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.remote_options import SETTINGS_FILE
from tiered_stream.options.settings_files import naming_lines
from tiered_stream.spark.executor_python import register_source
from tiered_stream.spark.report_addresses import reporting_options, with_reporting
from tiered_stream.spark.session import is_connect

if TYPE_CHECKING:
    from tiered_stream.delta.commit.batch_commit import TableCommits

log = logging.getLogger(__name__)

_LANE_SET = "it was asked for"


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
    """Start a query that lands topics in a Delta table, each record exactly once; a missing table is created.

    Args:
        options: options of `format("tiered_stream")`, and `ingest.*` settings for the table.
        table: a path (with a slash in it), or a name in the catalog; with `{topic}` in it, each topic has its table.
        checkpoint: the query's checkpoint location; each lane can continue where the other one stopped.
        trigger: `availableNow`, or an interval such as `10 seconds`.
        lane: `direct`, `spark`, or `auto` (direct if the table allows it; the log has the lane and the reason).
        name: the query's name in Spark; None: the query has no name.

    Raises:
        ConfigurationError: an option is wrong, the table does not fit, or the table does not allow the lane.
        TableError: the table cannot be reached or created, or the checkpoint cannot be reached.
        SchemaRegistryError: the schema registry does not return a schema.
        CorruptDataError, UnsupportedDataError: a file in the checkpoint cannot be read.
        DataLossError: records no longer exist that an earlier run could not write to a table (a parked table).
    """
    with naming_lines(options.get(SETTINGS_FILE.name)):
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
    """Return the query that `land` would start, planned but not started.

    The arguments and errors are the same as in `land`. If the query has one table and the table is missing, the table
    is created. If the query has many tables, no table is opened or created yet.
    """
    if not by_topic.is_by_topic(options, table):
        return plan_landing(
            spark, options=options, table=table, checkpoint=checkpoint, trigger=trigger, lane=lane, name=name
        )
    check_settings(options, lane)
    if by_topic.merges(options):
        check_merges(spark)
    check_file_system(spark, "the checkpoint", checkpoint)
    routing = by_topic.plan_routing(spark, with_session_codec(spark, options), table, lane)
    return TopicsLanding(spark, routing, QueryRun(checkpoint, trigger, name))


@dataclass(frozen=True)
class Landing:
    """Planned query for one table, ready to start.

    `target` is the table, and `suitability` says if and why the table is written in the direct lane. `rows` are the row
    formats by topic; '' stands for all other topics. `bounded` has the settings of a run that has an end, such as a
    replay; None: the query is not such a run. `reachable` is true if tasks can reach the table's storage.
    """

    spark: SparkSession
    address: TableAddress
    target: TableTarget
    run: QueryRun
    bounded: BoundedRun | None
    suitability: Suitability
    rows: Mapping[str, RowFormat]
    reachable: bool

    @property
    def lane(self) -> Lane:
        return Lane.SPARK if self.suitability.why_not else Lane.DIRECT

    @property
    def reason(self) -> str:
        """Text for the log: the reason for the lane, the committer and its reason, and the columns that get NULL."""
        table, why_not, committer = self.suitability.table, self.suitability.why_not, self.suitability.committer
        reasons = [why_not or "nothing in the table forbids it"]
        if committer and not why_not:
            reasons.append(f"{committer.by} commits ({committer.reason})")
        own = {name.lower() for name in self.target.files.own_columns}
        left = columns_left_null(table, self.target.schema) if table else ()
        if names := [name for name in left if name.lower() not in own]:
            reasons.append(f"NULL in {', '.join(names)}, which records do not have")
        return "; ".join(reasons)

    def start(self) -> StreamingQuery:
        """Log the platform, the lane and its reason, and start the query in this lane."""
        log_platform(self.spark)
        # A warning shows even without logging configuration. A user who did not choose the slower lane should see it.
        level = logging.WARNING if self.lane is Lane.SPARK and not self.reason.startswith(_LANE_SET) else logging.INFO
        log.log(level, "%s: the %s lane: %s", self.address, self.lane.value, self.reason)
        if self.lane is Lane.DIRECT:
            return self._start_direct()
        lane = SparkLane(self.spark, self.address, self.target, self.rows, self.run, self.bounded, self.reachable)
        return lane.start()

    def _start_direct(self) -> StreamingQuery:
        table = self._commits()
        tasks = (self.bounded and self.bounded.tasks) or self.spark.sparkContext.defaultParallelism
        files, bounded = replace(self.target.files, tasks=tasks), self.bounded
        register_source(self.spark, FilesDataSource)
        settings = with_reporting(reporting_options(self.spark), self.target.settings)
        folders = by_topic.dead_letter_folder(self.spark, self.target.settings)
        route = Route(".*", str(self.address), files.uri)
        routing = Routing(
            settings, files, (route,), rows=self.suitability.rows, dead_letter_folders=folders, has_rules=True
        )
        options = routing_options(routing)
        if bounded:
            options[ingest.TRANSACTION.name] = f"/{bounded.transaction_id}"
        rows = limited(self.run.read(self.spark, SOURCE, options), bounded.tasks if bounded else None)
        dead_letters = self._dead_letters(routing)
        most_dead = row_settings(settings).max_dead_letters

        def commit(batch: DataFrame, batch_id: int) -> None:
            query_id = bounded.transaction_id if bounded else query_id_of(batch)
            micro_batch, name = (query_id_of(batch), batch_id), str(self.address)
            if table.is_committed(query_id, batch_id):
                log.info("%s: batch %d is in the table already", self.address, batch_id)
                note_landed(micro_batch, [LandedRows(name, 0)])
                return
            table.prepare()
            rows = batch.collect()
            files = data_files(rows)
            check_files(most_dead, files, list(folders), record_count(rows))
            landed = landed_rows(name, dead_letters.target.name if dead_letters else "", files)
            if dead_letters:
                files = dead_letters.commit_first(table, self.target.key, query_id, batch_id, files)
            version = table.commit(query_id, batch_id, files)
            note_landed(micro_batch, [table.with_keys(landed, query_id, batch_id, version)])
            if self.run.goes_on:
                table.prepare()

        return self.run.started_interpreted(self.spark, observed(rows).writeStream.foreachBatch(commit))

    def _commits(self) -> TableCommits:
        from tiered_stream.delta.commit.batch_commit import on_gap

        fail = parse_options(ingest.source_options(self.target.settings), streaming=True).fail_on_data_loss
        gap = on_gap(self.spark, self.run.checkpoint, str(self.address), fail=fail)
        return open_commits(self.spark, self.address, self.target, self.suitability, gap, fail_on_data_loss=fail)

    def _dead_letters(self, routing: Routing) -> DeadLetterTable | None:
        target = routing.dead_letters(self.target)
        tables = by_topic.TopicTables(self.spark, self.run.checkpoint, fail_on_data_loss=False)
        return None if target is None else tables.open_dead_letters(target)


@dataclass(frozen=True)
class TopicsLanding:
    """Planned query for many tables, ready to start in the direct lane."""

    spark: SparkSession
    routing: Routing
    run: QueryRun
    lane = Lane.DIRECT

    @property
    def reason(self) -> str:
        """Text for the log with the names of the query's tables, as the user wrote them."""
        tables = ", ".join(dict.fromkeys(route.table for route in self.routing.routes))
        return f"one query for all of {tables}; each table is opened when its first rows come"

    def start(self) -> StreamingQuery:
        """Commit the rows that an earlier run could not write to their tables (parked tables), and start the query."""
        log_platform(self.spark)
        log.info("the %s lane: %s", self.lane.value, self.reason)
        register_source(self.spark, FilesDataSource)
        files = replace(self.routing.files, tasks=self.spark.sparkContext.defaultParallelism)
        settings = with_reporting(reporting_options(self.spark), self.routing.settings)
        routing = replace(self.routing, files=files, settings=settings)
        options, tables = by_topic.open_query(self.spark, routing, self.run.checkpoint)
        most_dead = row_settings(routing.settings).max_dead_letters

        def commit(batch: DataFrame, batch_id: int) -> None:
            rows = batch.collect()
            files = data_files(rows)
            check_files(most_dead, files, list(routing.dead_letter_folders), record_count(rows))
            query_id = query_id_of(batch)
            try:
                landed = tables.commit(query_id, batch_id, files, held_rows(rows))
            except TieredStreamError:
                note_landed((query_id, batch_id), tables.take_landed())
                raise
            note_landed((query_id, batch_id), landed)

        rows = self.run.read(self.spark, SOURCE, options)
        return self.run.started_interpreted(self.spark, observed(rows).writeStream.foreachBatch(commit))


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
    """Return a planned query for one table; choose the lane, and create the table if it is missing.

    The arguments and errors are the same as in `land`. `bounded` has the settings of a run that has an end, such as a
    replay; None: the query is not such a run.
    """
    options = with_session_codec(spark, options)
    parsed = check_settings(options, lane)
    replaces = bounded is not None and bounded.replace_where is not None
    if replaces and lane == "direct":
        raise ConfigurationError(
            "the direct lane only appends: rows are replaced in the Spark lane. Use lane auto or spark."
        )
    check_file_system(spark, "the checkpoint", checkpoint)
    if is_upsert(options):
        check_merges(spark)
    address = find_address(spark, table)
    if infers(options):
        options = _with_inferred(spark, options, address, include_headers=parsed.include_headers)
    files = ingest.table_files(options)
    rows: Mapping[str, RowFormat] = plan_topics(options, parsed.include_headers, time_zone(spark))
    for row_format in rows.values():
        check_by_spark(spark, row_format)
    target = TableTarget(str(address), files, shared_columns(rows.values(), files.day_column), options)
    create = partial(create_by_spark, spark, target=target)
    if address.uri is None:
        create(address)
        address = find_address(spark, table)
    storage, unreachable = resolve_storage(spark, address.uri or "", options)
    target = replace(target, files=replace(files, uri=address.uri or "", storage=storage))
    why_spark = _LANE_SET if lane == "spark" else unreachable
    if replaces and not why_spark:
        why_spark = "the direct lane only appends, and rows are to be replaced"
    suitability = Suitability(None, why_spark) if why_spark else assess_table(spark, address, target, create, rows)
    if suitability.why_not:
        _check_spark_lane(files, lane, address, suitability.why_not)
        check_table(spark, address.path)
    if suitability.table is None:
        known = None if unreachable or is_connect(spark) else _description(spark, address, target.files)
        if known is None or not replace_unused(spark, address, target, known):
            create(address)
        suitability = replace(suitability, table=_description(spark, address, target.files))
    rows = suitability.rows or _rows_for_spark(spark, rows, suitability.table, target)
    target = replace(target, schema=shared_columns(rows.values(), files.day_column))
    run = QueryRun(checkpoint, trigger, name)
    return Landing(spark, address, target, run, bounded, suitability, rows, unreachable is None)


def _check_spark_lane(files: ingest.TableFiles, lane: str, address: TableAddress, why_not: str) -> None:
    """Raise ConfigurationError if the table needs the Spark lane, for the reason `why_not`, and must not take it."""
    if files.keys:
        raise ConfigurationError(f"{MODE.name}={UPSERT} cannot stage rows for {address}: {why_not}")
    if lane == "direct":
        raise ConfigurationError(f"the direct lane cannot write to {address}: {why_not}. Use lane auto or spark.")


def _with_inferred(
    spark: SparkSession, settings: Mapping[str, str], address: TableAddress, *, include_headers: bool
) -> Mapping[str, str]:
    """Return the settings with an inferred schema in place of each schema setting `infer`.

    The schema comes from the table at `address` if the table exists, as in `inferred_schema.with_inferred`.
    """
    # Imported here, because the import loads the record readers (0.4 s), which most jobs' drivers do not need.
    from tiered_stream.delta.landing.inferred_schema import with_inferred

    storage, _ = resolve_storage(spark, address.uri or "", settings)
    files = replace(ingest.table_files(settings), uri=address.uri or "", storage=storage)
    known = _description(spark, address, files) if address.uri else None
    return with_inferred(settings, known, include_headers=include_headers)


def _rows_for_spark(
    spark: SparkSession, rows: Mapping[str, RowFormat], table: TableDescription | None, target: TableTarget
) -> Mapping[str, RowFormat]:
    """Return the row formats `rows`, by topic, fitted to the table's types and with its rules, for the Spark lane.

    The formats are returned unchanged if `table` is None.

    Raises:
        ConfigurationError: Spark's Delta sink would change values silently.
    """
    if table is None:
        return rows
    rows, day = fitted_rows(rows, table, target.files), target.files.day_column
    typed = not all(row_format.is_plain for row_format in rows.values())
    get = partial(spark.conf.get, default=None)
    check_spark_sink(get, target.name, table, shared_columns(rows.values(), day), day, typed=typed)
    return rows


def _description(spark: SparkSession, address: TableAddress, files: ingest.TableFiles) -> TableDescription | None:
    """Return the table's description, read by delta-spark if it reaches the table, and otherwise by deltalake.

    None: there is no table, or the library cannot read the table, or deltalake is needed and not installed.
    """
    with suppress(TableError, ImportError):
        if is_connect(spark):
            from tiered_stream.delta.commit.deltalake_commit import describe, open_table

            table = open_table(files)
            return describe(table) if table else None
        transaction = find_table(spark, address, files)
        return transaction.state.description if transaction else None
    return None

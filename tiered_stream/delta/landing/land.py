"""Streaming queries that land topics in Delta tables (`land`), in the direct lane or in the Spark lane.

In the direct lane, tasks write the table's files themselves. In the Spark lane, Spark's Delta sink writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tiered_stream.delta.catalog.address import TableAddress, create_by_spark, find_address
from tiered_stream.delta.catalog.session_checks import check_file_system, check_table, log_platform
from tiered_stream.delta.checkpoint.query_run import AVAILABLE_NOW, QueryRun, by_micro_batch, query_id_of
from tiered_stream.delta.commit.commit_library import find_table, with_access
from tiered_stream.delta.commit.dead_letters import check_limit
from tiered_stream.delta.commit.open_table import OpenTable, open_or_create, replace_unused
from tiered_stream.delta.landing import landing_by_topic as by_topic
from tiered_stream.delta.landing.data_files_source import SOURCE, FilesDataSource
from tiered_stream.delta.landing.spark_lane import SparkLane, check_spark_sink
from tiered_stream.delta.requirements.lane import Lane, TableDescription, columns_left_null
from tiered_stream.delta.requirements.merge_requirements import fitted_rows
from tiered_stream.delta.requirements.session_requirements import with_session_codec
from tiered_stream.delta.schema.routing import Route, Routing, TaskSettings, comparable_name, shared_table_error
from tiered_stream.delta.schema.row_plan import plan_topics
from tiered_stream.delta.schema.row_schema import check_by_spark, shared_columns, time_zone
from tiered_stream.delta.settings.ingest_settings import COMPACT_EVERY, FAIL, TableSpec
from tiered_stream.delta.settings.query_settings import QuerySettings, check_settings
from tiered_stream.delta.settings.row_settings import MODE, UPSERT
from tiered_stream.delta.write.data_files import data_files, held_rows, observed, record_count
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.observe.landed_rows import note_landed
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.options.remote_options import SETTINGS_FILE
from tiered_stream.options.settings_files import naming_lines
from tiered_stream.spark.executor_python import register_source
from tiered_stream.spark.report_addresses import reporting_options, with_reporting
from tiered_stream.spark.session import is_connect, refuse_connect

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
        lane: `direct` (tasks write the table's files), `spark` (Spark's Delta sink writes them), or `auto` (`direct` if
            the table allows it; the log has the choice and the reason).
        name: the query's name in Spark; None: the query has no name.

    Raises:
        ConfigurationError: an option is wrong, the table does not fit, or the table does not allow the lane.
        TableError: the table cannot be reached or created, or the checkpoint cannot be reached.
        SchemaRegistryError: the schema registry does not return a schema.
        CorruptDataError, UnsupportedDataError: a file in the checkpoint cannot be read.
        DataLossError: records no longer exist that an earlier run could not write to a table (a parked table).
    """
    with naming_lines(options.get(SETTINGS_FILE.name)):
        run = QueryRun(checkpoint, trigger, name)
        return plan_query(spark, options=options, table=table, run=run, lane=lane).start()


def plan_query(
    spark: SparkSession, *, options: Mapping[str, str], table: str, run: QueryRun, lane: str = "auto"
) -> Landing:
    """Return the query that `land` would start, planned but not started.

    The arguments and errors are the same as in `land`; `run` has the checkpoint, the trigger and the name. A run with a
    `transaction_id`, such as a replay, has one table. If the query has one table and the table is missing, the table is
    created. If the query has many tables, no table is opened or created yet.
    """
    query, source = check_settings(options, lane)
    if run.transaction_id is not None or not by_topic.is_by_topic(query, table):
        return _plan_table(spark, query, source, table, run, lane)
    if any(spec.is_upsert for spec in (query.spec, *query.topics.values())):
        refuse_connect(spark, f"{MODE.name}={UPSERT}")
    check_file_system(spark, "the checkpoint", run.checkpoint)
    routing = by_topic.plan_routing(spark, with_session_codec(spark, query), table, lane)
    tables = ", ".join(dict.fromkeys(route.table for route in routing.routes))
    reason = f"one query for all of {tables}; each table is opened when its first rows come"
    return Landing(spark, run, query.options, reason, routing=routing)


@dataclass(frozen=True)
class Landing:
    """Planned query for one table or for many, ready to start.

    `reason` is a text for the log. It says why the query takes its lane, which library commits to its only table and
    why, and which columns get NULL. `by_spark` is the query in the Spark lane, in which Spark's Delta sink writes the
    table. If it is None, the query takes the direct lane, in which tasks write the table's files.
    """

    spark: SparkSession
    run: QueryRun
    options: Mapping[str, str] = field(repr=False)  # it may have secrets
    """Options of the source that reads the records."""
    reason: str
    by_spark: SparkLane | None = None
    routing: Routing | None = None
    """Routing from topics to tables; None: the query takes the Spark lane."""
    opened: OpenTable | None = None
    """The query's only table, opened for commits; None: the query has many tables, or takes the Spark lane."""
    table: str = ""
    """Name of the query's only table; empty: the query has many tables."""

    @property
    def lane(self) -> Lane:
        return Lane.SPARK if self.by_spark else Lane.DIRECT

    def start(self) -> StreamingQuery:
        """Log the platform, the lane and the reason for the lane, and start the query.

        A query for many tables first commits the rows that an earlier run could not write to their tables (parked
        tables).

        Raises:
            TieredStreamError: a table or the checkpoint cannot be reached, or another run begins with the checkpoint.
        """
        log_platform(self.spark)
        # A warning shows even without logging configuration. A user who did not choose the slower lane should see it.
        level = logging.WARNING if self.by_spark and not self.reason.startswith(_LANE_SET) else logging.INFO
        log.log(level, "%sthe %s lane: %s", self.table and f"{self.table}: ", self.lane.value, self.reason)
        return self.by_spark.start() if self.by_spark else self._start_direct()

    def _start_direct(self) -> StreamingQuery:
        assert self.routing is not None
        register_source(self.spark, FilesDataSource)
        run = self.run
        tasks = run.tasks or self.spark.sparkContext.defaultParallelism
        routing = replace(self.routing, spec=replace(self.routing.spec, tasks=tasks))
        settings = TaskSettings(routing, transaction=(run.transaction_id or "", None))
        options = with_reporting(reporting_options(self.spark), self.options)
        fail_on_data_loss = parse_options(options, streaming=True).fail_on_data_loss
        opener = by_topic.TopicTables(self.spark, run.checkpoint, fail_on_data_loss, run.keeps_table)
        options, tables = opener.commits_of(options, settings, self.opened)
        dead_letter_tables = ", ".join(sorted(routing.dead_letter_folders))

        def commit(batch: DataFrame, batch_id: int) -> None:
            micro_batch, query_id = (query_id_of(batch), batch_id), run.transaction(batch)
            if tables.has_batch(query_id, batch_id):
                note_landed(micro_batch, tables.take_landed())
                return
            tables.prepare()
            rows = batch.collect()
            files = data_files(rows)
            dead = sum(file.records for file in files if file.dead_letters_for is not None)
            check_limit(routing.spec.rows.max_dead_letters, dead, record_count(rows), dead_letter_tables)
            try:
                tables.commit(query_id, batch_id, files, held_rows(rows))
            finally:
                note_landed(micro_batch, tables.take_landed())
            if run.goes_on:
                tables.prepare()

        rows = run.read(self.spark, SOURCE, options)
        return run.started_interpreted(self.spark, by_micro_batch(observed(rows), commit))


def _plan_table(
    spark: SparkSession, query: QuerySettings, source: Options, table: str, run: QueryRun, lane: str
) -> Landing:
    replaces = run.replace_where is not None
    if replaces and lane == "direct":
        raise ConfigurationError(
            "the direct lane only appends: rows are replaced (--replace) in the Spark lane. Use lane auto or spark."
        )
    check_file_system(spark, "the checkpoint", run.checkpoint)
    # A replay has the settings of its job, but no table without which it could go on.
    spec = replace(with_session_codec(spark, query).spec, on_table_error=FAIL)
    if spec.is_upsert:
        refuse_connect(spark, f"{MODE.name}={UPSERT}")
    address, dead_letter_table = find_address(spark, table), spec.rows.dead_letter_table
    if dead_letter_table is not None and comparable_name(dead_letter_table) == comparable_name(table):
        raise shared_table_error(table)
    if spec.rows.infers:
        spec = _with_inferred(spark, spec, query.options, address, include_headers=source.include_headers)
    rows = plan_topics(spec, source.subscription.topics, source.include_headers, time_zone(spark))
    for row_format in rows.values():
        check_by_spark(spark, row_format)
    spec = replace(spec, name=str(address), columns=shared_columns(rows.values(), spec.day_column))
    create = partial(create_by_spark, spark, spec=spec)
    if address.uri is None:
        create(address)
        address = find_address(spark, table)
    spec, unreachable = with_access(spark, replace(spec, uri=address.uri or ""))
    why_spark = _LANE_SET if lane == "spark" else unreachable
    if replaces and not why_spark:
        why_spark = "the direct lane only appends, and rows are to be replaced"
    opened = why_spark or open_or_create(spark, address, spec, create, rows, keeps_table=run.keeps_table)
    if isinstance(opened, OpenTable):
        route = Route(".*", str(address), opened.spec.uri)
        folders = by_topic.dead_letter_folder(spark, dead_letter_table)
        routing = Routing(opened.spec, (route,), rows=opened.rows, dead_letter_folders=folders, has_rules=True)
        reason = f"nothing in the table forbids it; {opened.by} commits ({opened.reason})"
        reason += _null_columns(opened.description, opened.spec)
        return Landing(spark, run, query.options, reason, routing=routing, opened=opened, table=str(address))
    _check_spark_lane(spec, lane, address, opened)
    reads_log = not (unreachable or is_connect(spark) or run.keeps_table)
    spec, fitted, known = _prepare_spark_lane(spark, address, spec, rows, reads_log=reads_log)
    by_spark = SparkLane(spark, address, spec, fitted, query.options, run, reachable=unreachable is None)
    reason = opened + (_null_columns(known, spec) if known else "")
    if spec.compact_every is not None:
        reason += f"; {COMPACT_EVERY.name} has no effect in this lane"
    return Landing(spark, run, query.options, reason, by_spark, table=str(address))


def _null_columns(description: TableDescription, spec: TableSpec) -> str:
    """Return a text for the log with the table's columns that get NULL in every row, or "" if there are none."""
    own = {name.lower() for name in spec.own_columns}
    names = [name for name in columns_left_null(description, spec.schema) if name.lower() not in own]
    return f"; NULL in {', '.join(names)}, which records do not have" if names else ""


def _prepare_spark_lane(
    spark: SparkSession, address: TableAddress, spec: TableSpec, rows: Mapping[str, RowFormat], *, reads_log: bool
) -> tuple[TableSpec, Mapping[str, RowFormat], TableDescription | None]:
    """Create the table if it is missing; return `spec` and the row formats `rows` with the table's types and rules.

    The third value describes the table. If this process cannot read the table's log, the third value is None, and the
    row formats are returned unchanged. If `reads_log` is false, the log is not read before the table is created.

    Raises:
        ConfigurationError: the rows do not fit into the table, or Spark's Delta sink would change their values.
        TableError: Spark cannot create the table.
    """
    check_table(spark, address.path)
    known = _description(spark, address, spec) if reads_log else None
    if known is None or not replace_unused(spark, address, spec, known):
        create_by_spark(spark, address, spec)
    known = _description(spark, address, spec)
    if known is not None:
        rows = fitted_rows(rows, known, spec)
    spec = replace(spec, columns=shared_columns(rows.values(), spec.day_column))
    if known is not None:
        typed = not all(row_format.is_plain for row_format in rows.values())
        check_spark_sink(partial(spark.conf.get, default=None), spec, known, typed=typed)
    return spec, rows, known


def _check_spark_lane(spec: TableSpec, lane: str, address: TableAddress, why_not: str) -> None:
    """Raise ConfigurationError if the table's settings, or the user's choice `lane`, do not allow the Spark lane.

    `why_not` says in the error why the direct lane, in which tasks write the table's files, cannot be used.
    """
    if spec.keys:
        raise ConfigurationError(f"{MODE.name}={UPSERT} cannot stage rows for {address}: {why_not}")
    if lane == "direct":
        raise ConfigurationError(f"the direct lane cannot write to {address}: {why_not}. Use lane auto or spark.")


def _with_inferred(
    spark: SparkSession, spec: TableSpec, options: Mapping[str, str], address: TableAddress, *, include_headers: bool
) -> TableSpec:
    """Return the settings with a schema in place of `infer` in `ingest.key.schema` and `ingest.value.schema`.

    The arguments and errors are the same as in `inferred_schema.with_inferred`, but the table is given by its address.
    """
    # Imported here, because the import loads the record readers (0.4 s), which most jobs' drivers do not need.
    from tiered_stream.delta.landing.inferred_schema import with_inferred

    placed, _ = with_access(spark, replace(spec, uri=address.uri or ""))
    known = _description(spark, address, placed) if address.uri else None
    return with_inferred(spec, options, known, include_headers=include_headers)


def _description(spark: SparkSession, address: TableAddress, spec: TableSpec) -> TableDescription | None:
    """Return the table's metadata and protocol, read by delta-spark if it reaches the table, otherwise by deltalake.

    None: there is no table, or the library cannot read the table, or deltalake is needed and not installed.
    """
    with suppress(TableError, ImportError):
        transaction = find_table(spark, address, spec)
        return transaction.state.description if transaction else None
    return None

"""Run of an ingest job: it starts the job's queries, prints their progress, and waits for their ends."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tiered_stream.broker.broker_check import check_brokers
from tiered_stream.delta.catalog.java_errors import first_line, own_error
from tiered_stream.delta.catalog.session_checks import note_session
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.delta.schema.routing import comparable_name
from tiered_stream.delta.settings.ingest_settings import (
    METRICS_LINES,
    METRICS_OTLP,
    METRICS_PROMETHEUS,
    STOP_TIMEOUT,
    job_settings,
)
from tiered_stream.delta.settings.query_settings import check_settings
from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.ingest.ingest_plan import Ingest, plan_ingests
from tiered_stream.ingest.stop_request import stop_requests
from tiered_stream.observe.landed_rows import LandedRows, describe_rows, landed_after, summed
from tiered_stream.observe.progress import MicroBatch, describe_batch, finished_batch
from tiered_stream.observe.prometheus_metrics import QuerySums
from tiered_stream.observe.read_metrics import ReadMetrics, describe
from tiered_stream.observe.standard_output import open_console
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.options.remote_options import REPORT_ADDRESSES
from tiered_stream.options.settings_files import with_origins
from tiered_stream.spark.executor_python import forgo_source_lookup, start_pythons
from tiered_stream.spark.report_addresses import addresses_option, open_receiver
from tiered_stream.spark.reporting import report_queries

console = open_console()
MAX_STARTING = max(2, min(8, len(os.sched_getaffinity(0))))
"""Maximum number of queries that start at the same time.

Each query starts a Python process on the driver, and Spark gives up a process that waits too long for a core.
"""
_MAX_TABLES = 100
_RUN_TWICE = "CONCURRENT_STREAM_LOG_UPDATE"
"""Spark's error condition for a micro-batch that another run has already written to the same checkpoint."""
_SECONDS_BETWEEN_STARTS, _SECONDS_BETWEEN_LOOKS, _SECONDS_BETWEEN_REPORTS = 0.1, 1.0, 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """Totals of an ended query: metrics of reading (`cost`), and rows and dead letters committed to each table.

    `tables` is None if the numbers of committed rows are unknown.
    """

    cost: ReadMetrics
    tables: tuple[LandedRows, ...] | None

    def __str__(self) -> str:
        read = f"{self.cost.records:,} rows read"  # a failed micro-batch may have landed none of them
        rows = read if self.tables is None else describe_rows(self.cost.records, self.tables)
        return f"{rows}, {describe(self.cost)}"

    def by_table(self) -> list[str]:
        """Return a line with the rows of each of the first 100 tables, and a line with the number of further tables.

        The list is empty if there are fewer than two tables.
        """
        tables = self.tables or ()
        if len({table.table for table in tables}) < 2:
            return []
        lines = [f"{table.table}: {describe_rows(None, [table])}" for table in tables[:_MAX_TABLES]]
        return [*lines, f"and {len(tables) - _MAX_TABLES:,} more"] if len(tables) > _MAX_TABLES else lines


class IngestQuery:
    """Running ingest query. Each call of `has_ended` prints the query's progress.

    The progress is a line for each finished micro-batch with rows, and during a long micro-batch a line with the rows
    read so far.
    """

    def __init__(self, spark: SparkSession, ingest: Ingest, *, keeps_table: bool = False) -> None:
        """Start the query, and print its lane (`direct` or `spark`) and its id. A missing table is created.

        `keeps_table` is true if another query that runs writes to the same table (`QueryRun.keeps_table`).

        Raises:
            ConfigurationError: a setting is wrong, or Spark lacks something that the table needs.
            TableError: the table cannot be created or written.
        """
        self.name, self.table = ingest.name, ingest.table
        self._receiver = open_receiver(spark)
        self._reported = ReadMetrics()
        self._began = self._printed_at = time.monotonic()
        self._printed_records = 0
        self._last_batch = -1
        self._sums: QuerySums | None = None
        self._not_stopped: TieredStreamError | None = None
        try:
            self._query = self._start(spark, ingest, keeps_table)
        except BaseException:
            self._receiver.close()
            raise
        self._id = str(self._query.id)
        console.print(f"{self.name}: started, query id {self._id}", markup=False)

    def _start(self, spark: SparkSession, ingest: Ingest, keeps_table: bool) -> StreamingQuery:
        landing = plan_query(
            spark,
            options={REPORT_ADDRESSES.name: addresses_option(self._receiver.report_to), **ingest.options},
            table=ingest.table,
            run=QueryRun(ingest.checkpoint, ingest.trigger, self.name, keeps_table=keeps_table),
            lane=ingest.lane,
        )
        console.print(f"{self.name}: {landing.lane.value} lane, {landing.reason}", markup=False)
        return landing.start()

    def is_starting(self) -> bool:
        """Return true if the query is active, but its planner (a Python process) has not planned anything yet."""
        status = self._query.status
        under_way = status["isDataAvailable"] or status["message"].startswith("Waiting")
        return self._query.isActive and not under_way and self._query.lastProgress is None

    def stop(self, seconds: float) -> None:
        """Stop the query after its running micro-batch, or after `seconds` if the micro-batch takes longer.

        A printed line says whether the micro-batch has ended. If Spark cannot stop the query, `has_ended` returns true,
        and `close` returns the error, so that the job ends nevertheless.
        """
        deadline, last = time.monotonic() + seconds, self._last_finished()
        while self._query.isActive and self._query.status["isTriggerActive"] and self._last_finished() == last:
            if time.monotonic() >= deadline:
                text = "stopped before the end of its micro-batch, which the next run does again"
                break
            self.has_ended()
            time.sleep(_SECONDS_BETWEEN_STARTS)
        else:
            text = "stopped after its micro-batch; the next run goes on"
        try:
            self._query.stop()
        except (Py4JJavaError, PySparkException) as error:  # spark.sql.streaming.stopTimeout has passed
            self._not_stopped = TieredStreamError(f"Spark has not stopped the query: {first_line(error)}")
            return
        self.has_ended()
        console.print(f"{self.name}: {text}", markup=False)

    def _last_finished(self) -> int:
        last = self._query.lastProgress
        return -1 if last is None else last.batchId

    def has_ended(self) -> bool:
        """Print the query's progress since the last call; return true if the query has ended or cannot be stopped."""
        ended = self._not_stopped is not None or not self._query.isActive
        last = self._query.lastProgress
        if last is not None and last.batchId > self._last_batch:
            for progress in self._query.recentProgress:
                if progress.batchId > self._last_batch and progress.numInputRows:
                    self._report(progress)
                    self._last_batch = progress.batchId
        self._report_so_far()
        return ended

    def close(self) -> tuple[Ended, Exception | None]:
        """Stop receiving metrics from tasks, and print the query's totals; `has_ended` must have returned true.

        Returns:
            The query's totals, and the exception that ended the query or its stop (None: the query succeeded).
        """
        self._receiver.close()
        ended = self._sum()
        console.print(f"{self.name}: in all {ended}", markup=False)
        for line in ended.by_table():
            console.print(f"  {line}", markup=False)
        return ended, self._not_stopped or self._query.exception()

    def _sum(self) -> Ended:
        """Return the query's totals: all printed micro-batches, plus what the query read and committed after them."""
        cost = self._receiver.total().since(self._reported)  # a micro-batch that has failed
        later = landed_after((self._id, self._last_batch), self._began)  # some of its tables may have it
        if self._sums is None:
            return Ended(cost, None if cost.records and not later else later)
        cost.add(self._sums.cost)
        return Ended(cost, None if self._sums.tables is None else summed((*self._sums.tables, *later)))

    def _report(self, progress: StreamingQueryProgress) -> None:
        # Tasks of the next micro-batch may report before this progress is handled, so metrics are taken by batch id.
        micro_batch = str(progress.id), progress.batchId
        counted = self._receiver.take_micro_batch(micro_batch)
        batch = finished_batch(progress, counted)
        console.print(f"{self.name}: {describe_batch(batch)}", markup=False)
        self._sums = (self._sums or QuerySums(batch)).after(self._with_forgotten(batch))
        self._reported.add(counted)
        self._printed_at, self._printed_records = time.monotonic(), 0

    def _with_forgotten(self, batch: MicroBatch) -> MicroBatch:
        """Return `batch` plus the cost and rows of earlier micro-batches that were not printed.

        A micro-batch is not printed if Spark no longer has its progress, because Spark keeps only the last ones.
        """
        cost = self._receiver.take_before((batch.query_id, batch.batch_id))
        self._reported.add(cost)
        cost.add(batch.cost)
        landed = landed_after((self._id, self._last_batch), self._began, batch.batch_id)
        return replace(batch, cost=cost, tables=summed((*landed, *(batch.tables or ()))) if landed else batch.tables)

    def _report_so_far(self) -> None:
        spent = self._receiver.total().since(self._reported)
        if spent.records > self._printed_records and time.monotonic() - self._printed_at > _SECONDS_BETWEEN_REPORTS:
            console.print(f"{self.name}: so far {spent.records:,} rows, {describe(spent)}", markup=False)
            self._printed_at, self._printed_records = time.monotonic(), spent.records


@dataclass
class Outcome:
    """Result of an ingest job, by query name: totals of ended queries (`ended`), and reasons of failures (`failed`).

    A query that could not be started is only in `failed`. `stopped_by` is the number of the signal that stopped the
    job; 0: no signal did. After a signal, queries that were still to be started are in neither mapping.
    """

    ended: dict[str, Ended] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    stopped_by: int = 0

    def total(self) -> ReadMetrics:
        total = ReadMetrics()
        for ended in self.ended.values():
            total.add(ended.cost)
        return total

    def tables(self) -> tuple[LandedRows, ...] | None:
        """Return the numbers of rows and dead letters that the queries committed, one item for each table.

        None: they are unknown, because Spark's own sink commits for a query that has succeeded. A failed query whose
        numbers are unknown is left out.
        """
        every = [
            ended.tables for name, ended in self.ended.items() if ended.tables is not None or name not in self.failed
        ]
        known = [tables for tables in every if tables is not None]
        return summed(table for tables in known for table in tables) if len(known) == len(every) else None


def run(settings: Mapping[str, str], builder: SparkSession.Builder = SparkSession.builder) -> Outcome:
    """Run every ingest query that the settings describe until its end; if a query fails, the others continue.

    `settings` are the job's settings as texts, by name. `builder` makes the Spark session, or returns the session that
    the process has already. The result names the failed queries.

    Raises:
        ConfigurationError: a setting is wrong, or Spark lacks something that the tables need; no query was started.
        BrokerError: no broker responds, or the job has one query and its topics do not exist; Spark was not started.
    """
    ingests = plan_ingests(settings)
    check_settings(ingests[0].options, ingests[0].lane)  # `plan_query` checks each query's own settings again
    start_pythons()
    check_brokers(ingests[0].options, topics=len(ingests) == 1)  # before Spark, which takes many seconds to start
    spark = builder.getOrCreate()
    note_session(spark)
    forgo_source_lookup(spark)
    own = job_settings(settings)
    stop_timeout_s = GivenOptions(own).read(STOP_TIMEOUT) / 1000
    if not {METRICS_LINES, METRICS_PROMETHEUS, METRICS_OTLP} & own.keys():
        return run_all(spark, ingests, stop_timeout_s)
    lines, prometheus, otlp = own.get(METRICS_LINES, "none"), own.get(METRICS_PROMETHEUS), own.get(METRICS_OTLP)
    with report_queries(spark, lines=lines, prometheus=prometheus, otlp=otlp):
        return run_all(spark, ingests, stop_timeout_s)


def run_all(spark: SparkSession, ingests: Sequence[Ingest], stop_timeout_s: float = 20.0) -> Outcome:
    """Run the ingest queries until their ends; at most `MAX_STARTING` of them start at the same time.

    If a query fails, or if its settings are refused, the reason is printed and is in the result. SIGTERM and Ctrl-C let
    the running micro-batches finish, within `ingest.stop.timeout`, and end all queries. A second signal ends the job at
    once.

    Raises:
        ConfigurationError: the settings of all queries were refused, so no query was started.
    """
    waiting, count = deque(ingests), len(ingests)
    running: list[IngestQuery] = []
    outcome = Outcome()
    refused: list[ConfigurationError] = []
    with stop_requests(spark, stop_timeout_s) as stop:
        while waiting or running:
            if stop.signal:
                waiting.clear()
                _stop(running, stop_timeout_s)
            while waiting and sum(query.is_starting() for query in running) < MAX_STARTING:
                refused += _started(spark, waiting.popleft(), running, outcome, alone=count == 1)
            _wait_for_an_end(spark, _SECONDS_BETWEEN_STARTS if waiting else _SECONDS_BETWEEN_LOOKS)
            for query in [ingest_query for ingest_query in running if ingest_query.has_ended()]:
                running.remove(query)
                outcome.ended[query.name], exception = query.close()
                if exception is not None:
                    _failed(outcome, query.name, exception)
        outcome.stopped_by = stop.signal
    if len(refused) == count:
        raise ConfigurationError(f"none of the {count} queries was started: {refused[0]}")
    _summarize(outcome, count)
    return outcome


def _started(
    spark: SparkSession, ingest: Ingest, running: list[IngestQuery], outcome: Outcome, *, alone: bool
) -> list[ConfigurationError]:
    """Start a query and add it to `running`. If it cannot start, print the reason and add it to `outcome`.

    If a query in `running` has the same table, this query does not replace the table's columns.

    Return a list with the error if the query's settings are refused, else an empty list. If the query is the job's only
    one (`alone`), the error is raised instead.
    """
    try:
        keeps_table = comparable_name(ingest.table) in (comparable_name(query.table) for query in running)
        running.append(IngestQuery(spark, ingest, keeps_table=keeps_table))
    except ConfigurationError as error:
        if alone:
            raise
        _failed(outcome, ingest.name, error)
        return [error]
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one table, the others are to be landed
        _failed(outcome, ingest.name, error)
    return []


def _stop(running: Sequence[IngestQuery], seconds: float) -> None:
    """Stop the queries, each after its running micro-batch if that ends in time; all queries share `seconds`."""
    deadline = time.monotonic() + seconds
    for query in running:
        query.stop(max(0.0, deadline - time.monotonic()))


def _wait_for_an_end(spark: SparkSession, seconds: float) -> None:
    """Wait until any query of the session has ended, with or without success, but at most `seconds`."""
    try:
        spark.streams.awaitAnyTermination(seconds)  # type: ignore[arg-type]  # Spark takes fractions of a second, too
    except StreamingQueryException:
        pass  # `close` reads each query's own exception
    spark.streams.resetTerminated()


def _failed(outcome: Outcome, name: str, error: Exception) -> None:
    text = own_error(str(error))[1] or type(error).__name__
    if _RUN_TWICE in text:
        text = (
            "another run has used its checkpoint meanwhile, and a checkpoint is for one query. That run lands "
            f"the records ({text})"
        )
    outcome.failed[name] = with_origins(text)
    console.print(f"{name}: failed: {outcome.failed[name]}", style="red", markup=False)


def _summarize(outcome: Outcome, count: int) -> None:
    if count > 1:  # a single query has printed its own sum
        console.print(f"in all {Ended(outcome.total(), outcome.tables())}", markup=False)
    if outcome.failed:
        if count > 1:  # the reason of a single query has just been printed
            console.print(f"{len(outcome.failed)} of {count} queries failed:", style="red")
            for name, reason in outcome.failed.items():
                console.print(f"  {name}: {reason}", style="red", markup=False)
        console.print("Start the job again when this is corrected: tables and checkpoints stay, each query continues")

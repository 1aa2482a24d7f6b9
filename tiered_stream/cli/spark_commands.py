"""Functions that run the commands `replay` and `verify` in a Spark session, and return the exit code."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

import tiered_stream.cli.command_line as cli
from tiered_stream.broker.broker_check import check_brokers
from tiered_stream.delta.catalog.session_checks import note_session, session_builder
from tiered_stream.delta.landing.landing_by_topic import lands_in
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.query_settings import query_settings
from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.observe.read_metrics import describe
from tiered_stream.observe.standard_output import open_console
from tiered_stream.options.settings_files import with_origins, without
from tiered_stream.plan.read_cost import render_cost
from tiered_stream.process.resources import usable_cores
from tiered_stream.replays.dry_run import Estimate, estimate_without_spark, why_spark
from tiered_stream.replays.progress_display import follower
from tiered_stream.replays.run_replay import Replay, plan_replay
from tiered_stream.replays.table_and_folder_targets import DeltaTarget, target_of, with_byte_rate
from tiered_stream.replays.target import Target, kind_and_place
from tiered_stream.replays.times import parse_range, show_range
from tiered_stream.verification.verify_report import render_verified
from tiered_stream.verification.verify_table import verify

log = logging.getLogger(__name__)

_SPARK_ERRORS = (PySparkException, Py4JError)


@contextmanager
def spark_session(name: str, arguments: cli.SparkArguments) -> Iterator[SparkSession]:
    """Yield a Spark session with the application name `name`, and stop the session at the end of the block.

    If spark-submit has started this process, its session is used. Otherwise a local session with Delta is created.

    Raises:
        ConfigurationError: Spark's settings cannot be read, do not fit spark-submit, or Delta for Spark is not
            installed.
    """
    spark = session_builder(name, arguments.properties_file, arguments.spark_conf).getOrCreate()
    note_session(spark)
    try:
        yield spark
    finally:
        try:
            spark.stop()
        except (Py4JError, OSError) as error:
            log.info("Spark could not be stopped, it is gone: %s", error)


def run_replay(
    command: cli.ReplayCommand,
    settings: cli.SettingsArguments,
    prices: cli.PriceArguments,
    spark_arguments: cli.SparkArguments,
) -> int:
    """Run the command `replay`, print its progress and errors, and return the exit code.

    The exit code is 0, FAILED (1), REFUSED (2) for wrong arguments or settings, DIFFERS (3) if `--verify` has found a
    difference, or STOPPED (130).
    """
    console, replay = open_console(stderr=command.json), None
    try:
        job, now_ms = settings.all_settings(), time.time_ns() // 1_000_000
        ingest.check_names(job, ingest.JOB_SETTINGS)
        parse_range(command.from_time, command.to_time, now_ms)  # refuse wrong times before Spark starts
        if command.dry_run and _dry_run_without_spark(command, job, prices, spark_arguments, console, now_ms):
            return 0
        check_brokers(without(job, ingest.JOB_SETTINGS), topics=True)
        with spark_session("replay", spark_arguments) as spark:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            replay = _planned(spark, command, job, now_ms)
            if command.dry_run:
                estimate = replay.estimate(command.tasks, command.max_bytes_per_second, prices.prices())
                _show_estimate(estimate, command, console)
                return 0
            return _run(replay, console, then_verify=command.verify)
    except KeyboardInterrupt:
        name = f" (its name is {replay.plan.name})" if replay else ""
        console.print(f"stopped; what was committed stays. To go on, give the same command again{name}", markup=False)
        return cli.STOPPED
    except (TieredStreamError, *_SPARK_ERRORS) as error:
        console.print(with_origins(str(error)), style="red", markup=False)
        if isinstance(error, ConfigurationError if replay else cli.WRONG_INPUT):
            return cli.REFUSED
        if replay:
            console.print("To go on, give the same command again", markup=False)
        return cli.FAILED


def run_verify(
    settings: cli.SettingsArguments, table: str | None, spark_arguments: cli.SparkArguments, *, json: bool, repair: bool
) -> int:
    """Run the command `verify`, print its report, and return 0 if table and topics are equal, or else DIFFERS (3).

    If `table` is None, the table is `ingest.table` in the settings. If `repair` is true, wrong statistics in the
    table's log are computed again.

    Raises:
        typer.Exit: an error has ended the command; it was printed, and the exit code is as in `exit_codes`.
    """
    console = open_console(stderr=json)
    with cli.exit_codes(*cli.WRONG_INPUT, failed=_SPARK_ERRORS, console=console):
        try:
            job = settings.all_settings()
            ingest.check_names(job, ingest.JOB_SETTINGS)
            options, table = without(job, ingest.JOB_SETTINGS), table or _job_table(job, "--table")
            check_brokers(options, topics=True)
            console.print("verify: starting Spark", markup=False)
            with spark_session("verify", spark_arguments) as spark:
                console.print(f"verify: reading {table} and its topics, each once", markup=False)
                report = verify(spark, options=options, table=table, repair=repair)
        except KeyboardInterrupt:
            console.print("stopped; nothing is known of the table yet")
            raise
    cli.show(report.to_json() if json else render_verified(report))
    return 0 if report.equal else cli.DIFFERS


def _planned(spark: SparkSession, command: cli.ReplayCommand, settings: Mapping[str, str], now_ms: int) -> Replay:
    into, lane = _into(command, settings), _lane(command, settings)
    options = with_byte_rate(spark, without(settings, ingest.JOB_SETTINGS), command.max_bytes_per_second, command.tasks)
    target = target_of(spark, into, options, lane=lane, tasks=command.tasks)
    replay = plan_replay(
        target, from_time=command.from_time, to_time=command.to_time, name=command.name, checkpoint=command.checkpoint,
        exact=command.exact, replace=command.replace, now_ms=now_ms,
        query_checkpoint=_query_checkpoint(spark, settings, target),
    )  # fmt: skip
    if command.verify and not replay.verifiable:
        raise _cannot_verify(replay.target.described)
    return replay


def _query_checkpoint(spark: SparkSession, settings: Mapping[str, str], target: Target) -> str | None:
    """Return the ingest job's checkpoint if the job lands in the table `target`, else None.

    The result is also None if the settings have no checkpoint or no table, or if `target` is not a table.
    """
    job = ingest.job_settings(settings)
    checkpoint, table = job.get(ingest.CHECKPOINT), job.get(ingest.TABLE)
    if not checkpoint or not table or not isinstance(target, DeltaTarget):
        return None
    return checkpoint if lands_in(spark, query_settings(settings), table, target.place) else None


def _dry_run_without_spark(
    command: cli.ReplayCommand, settings: Mapping[str, str], prices: cli.PriceArguments,
    spark_arguments: cli.SparkArguments, console: Console, now_ms: int,
) -> bool:  # fmt: skip
    """Print the estimate of a dry run, and return True; if the estimate needs Spark, return False.

    In the second case, standard error gets a line that says why Spark is needed.
    """
    into = _into(command, settings)
    reason = why_spark(settings, into, command.checkpoint, replace=command.replace)
    if reason is not None:
        open_console(stderr=True).print(f"The dry run starts Spark: {reason}", markup=False)
        return False
    if command.verify and kind_and_place(into)[0] != DeltaTarget.KIND:
        raise _cannot_verify(into)
    estimate = estimate_without_spark(
        settings, into, from_time=command.from_time, to_time=command.to_time, name=command.name,
        checkpoint=command.checkpoint, exact=command.exact, lane=_lane(command, settings),
        tasks=command.tasks or usable_cores(), max_bytes_per_second=command.max_bytes_per_second,
        prices=prices.prices(), now_ms=now_ms, hadoop=spark_arguments.hadoop_settings(),
    )  # fmt: skip
    _show_estimate(estimate, command, console, f". A run first checks that {into} takes the records")
    return True


def _show_estimate(estimate: Estimate, command: cli.ReplayCommand, console: Console, note: str = "") -> None:
    title = f"replay {estimate.plan.name}: {show_range(estimate.plan.times)}"
    cli.show(estimate.to_json() if command.json else render_cost(estimate, title))
    if not command.json:
        console.print(f"Nothing was read or written: this was a dry run{note}", markup=False)


def _cannot_verify(target: str) -> ConfigurationError:
    return ConfigurationError(f"--verify is for a Delta table, and the target is {target}")


def _into(command: cli.ReplayCommand, settings: Mapping[str, str]) -> str:
    return command.into or _job_table(settings, "--into (a Delta table, kafka:TOPIC or parquet:FOLDER)")


def _job_table(settings: Mapping[str, str], argument: str) -> str:
    """Return the ingest job's table (`ingest.table`), for a command line that does not name a table.

    `argument` is the command line argument that names a table, for the error's message.

    Raises:
        ConfigurationError: the settings name no table, or name a table for each topic.
    """
    table = _job_setting(settings, ingest.TABLE)
    if table is None:
        raise ConfigurationError(
            f"no table is named: give {argument}, or set {ingest.TABLE} to a table's path or its name in the catalog"
        )
    return table


def _lane(command: cli.ReplayCommand, settings: Mapping[str, str]) -> str:
    # The lane in the settings is only for the ingest job's own table, and is not used for a target given by --into.
    return command.lane or (None if command.into else _job_setting(settings, ingest.LANE)) or "auto"


def _run(replay: Replay, console: Console, *, then_verify: bool) -> int:
    plan = replay.plan

    def report_line(line: str) -> None:
        console.print(f"replay {plan.name} ({show_range(plan.times)}): {line}", markup=False)

    report_line(f"{plan.offsets:,} offsets of {len(plan.ranges)} partitions into {replay.target.described}")
    finished = replay.run(follower(console), report_line)
    if finished.finished_before:
        report_line("has finished before, and nothing was done. To run it once more, give it another --name")
    else:
        report_line(f"finished: {finished.records:,} records, {describe(finished.metrics)}")
    if not then_verify:
        return 0
    verified = replay.verify()
    console.print(render_verified(verified))
    return 0 if verified.equal else cli.DIFFERS


def _job_setting(settings: Mapping[str, str], name: str) -> str | None:
    """Return the ingest job's setting `name`, or None if it is not set, or has a value for each topic (`{topic}`)."""
    value = ingest.job_settings(settings).get(name)
    return None if not value or ingest.TOPIC in value else value

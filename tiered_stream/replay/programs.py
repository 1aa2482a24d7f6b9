"""Commands `replay` and `verify` of `tiered-stream` and of the job: run a parsed command line, return an exit code."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from tiered_stream import errors
from tiered_stream.delta.catalog.session_builder import session_builder
from tiered_stream.delta.landing.landing_by_topic import lands_in
from tiered_stream.delta.schema.routing import TOPIC
from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, JOB_SETTINGS, LANE, TABLE, job_settings
from tiered_stream.errors import ConfigurationError
from tiered_stream.observe.metrics import describe
from tiered_stream.observe.standard_output import open_console, write_bytes
from tiered_stream.options.command_settings import command_settings, without
from tiered_stream.plan.read_cost import priced
from tiered_stream.replay.estimate import render
from tiered_stream.replay.follow import follower
from tiered_stream.replay.run_replay import Replay, plan_replay
from tiered_stream.replay.target import Target
from tiered_stream.replay.targets import DeltaTarget, paced, target_of
from tiered_stream.replay.times import parse_range, show_range
from tiered_stream.verification.verify_report import render as render_verified
from tiered_stream.verification.verify_table import verify

log = logging.getLogger(__name__)

DONE, FAILED, REFUSED, DIFFERS, STOPPED = 0, 1, 2, 3, 130
ERRORS = (errors.TieredStreamError, PySparkException, Py4JError)
WRONG_INPUT = (
    ConfigurationError, errors.UnknownTopicError, errors.BrokerAuthorizationError, errors.DataLossError,
)  # fmt: skip
"""Errors that mean, before anything runs, that the command cannot be run as it was given."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Command line arguments that `replay` and `verify` share.

    `settings`: a settings file, which may be the ingest job's. `option`: `name=value` texts. `reads`: the topics or
    partitions to read, as options of the source.
    """

    settings: Path | None
    option: Sequence[str] | None
    reads: Mapping[str, str]
    properties_file: Path | None
    spark_conf: Sequence[str] | None
    json: bool

    @cached_property
    def console(self) -> Console:
        return open_console(stderr=self.json)

    def given(self) -> dict[str, str]:
        """Return the settings of the file, overridden by the settings of the command line.

        Raises:
            ConfigurationError: the file cannot be read, or a text has no `=`.
        """
        return command_settings(self.settings, self.option, self.reads)

    @contextmanager
    def session(self, name: str) -> Iterator[SparkSession]:
        """Open a Spark session and stop it in the end: spark-submit's session, or else a local one with Delta.

        Raises:
            ConfigurationError: as `session_builder`.
        """
        spark = session_builder(name, self.properties_file, self.spark_conf).getOrCreate()
        try:
            yield spark
        finally:
            try:
                spark.stop()
            except (Py4JError, OSError) as error:
                log.info("Spark could not be stopped, it is gone: %s", error)


@dataclass(frozen=True, kw_only=True)
class ReplayCommand(Command):
    """Command line of `replay`; `get_price` is the price of 1,000 GETs, `gib_price` of a GiB, in US dollars."""

    from_time: str
    to_time: str | None
    into: str | None
    name: str | None
    checkpoint: str | None
    exact: bool
    replace: bool
    lane: str | None
    tasks: int | None
    max_bytes_per_second: int | None
    verify: bool
    dry_run: bool
    get_price: float | None
    gib_price: float | None


@dataclass(frozen=True, kw_only=True)
class VerifyCommand(Command):
    """Command line of `verify`; without a `table`, the table of the ingest job's settings is verified."""

    table: str | None


def run_replay(command: ReplayCommand) -> int:
    """Run the command `replay`, print its errors, and return the exit code."""
    console, replay = command.console, None
    try:
        settings, now_ms = command.given(), time.time_ns() // 1_000_000
        parse_range(command.from_time, command.to_time, now_ms)  # refuse wrong times before Spark starts
        with command.session("replay") as spark:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            replay = _planned(spark, command, settings, now_ms)
            return _dry_run(replay, command) if command.dry_run else _run(replay, command)
    except KeyboardInterrupt:
        name = f" (its name is {replay.plan.name})" if replay else ""
        console.print(f"stopped; what was committed stays. To go on, give the same command again{name}", markup=False)
        return STOPPED
    except ERRORS as error:
        code = _failed(console, error, (ConfigurationError,) if replay else WRONG_INPUT)
        if replay and code == FAILED:
            console.print("To go on, give the same command again", markup=False)
        return code


def run_verify(command: VerifyCommand) -> int:
    """Run the command `verify`, print its report or errors, and return the exit code."""
    console = command.console
    try:
        settings = command.given()
        table = command.table or of_the_job(settings, TABLE)
        if table is None:
            raise ConfigurationError("say by --table what to verify: a path, or a name in the catalog")
        with command.session("verify") as spark:
            report = verify(spark, options=of_the_source(settings), table=table)
    except KeyboardInterrupt:
        console.print("stopped; nothing is known of the table yet")
        return STOPPED
    except ERRORS as error:
        return _failed(console, error, WRONG_INPUT)
    if command.json:
        write_bytes(report.to_json().encode() + b"\n")
    else:
        console.print(render_verified(report))
    return DONE if report.equal else DIFFERS


def _failed(console: Console, error: Exception, refused: tuple[type[Exception], ...]) -> int:
    console.print(str(error), style="red", markup=False)
    return REFUSED if isinstance(error, refused) else FAILED


def _planned(spark: SparkSession, command: ReplayCommand, settings: Mapping[str, str], now_ms: int) -> Replay:
    into = command.into or of_the_job(settings, TABLE)
    if into is None:
        raise ConfigurationError(
            "say by --into where the records are to go: a Delta table by its path or its name in the catalog, "
            "kafka:TOPIC, or parquet:FOLDER"
        )
    # The lane in the file is meant for the job's own table only.
    lane = command.lane or (None if command.into else of_the_job(settings, LANE)) or "auto"
    given = paced(spark, of_the_source(settings), command.max_bytes_per_second, command.tasks)
    target = target_of(spark, into, given, lane=lane, tasks=command.tasks)
    replay = plan_replay(
        spark, options=given, target=target, from_time=command.from_time, to_time=command.to_time, name=command.name,
        checkpoint=command.checkpoint, exact=command.exact, replace=command.replace, now_ms=now_ms,
        query_checkpoint=_query_checkpoint(spark, settings, target),
    )  # fmt: skip
    if command.verify and not replay.verifiable:
        raise ConfigurationError(f"--verify is for a Delta table, and the target is {replay.target.described}")
    return replay


def _query_checkpoint(spark: SparkSession, settings: Mapping[str, str], target: Target) -> str | None:
    """Return the checkpoint of the ingest job if the target is one of its tables, else None.

    Raises:
        ConfigurationError: a setting is wrong.
        TableError: Spark cannot reach the catalog.
    """
    job = job_settings(settings)
    checkpoint, table = job.get(CHECKPOINT), job.get(TABLE)
    if not checkpoint or not table or not isinstance(target, DeltaTarget):
        return None
    return checkpoint if lands_in(spark, settings, table, target.place) else None


def _dry_run(replay: Replay, command: ReplayCommand) -> int:
    prices = priced(command.get_price, command.gib_price)
    estimate = replay.estimate(command.tasks, command.max_bytes_per_second, prices)
    if command.json:
        write_bytes(estimate.to_json().encode() + b"\n")
    else:
        command.console.print(render(estimate))
        command.console.print("Nothing was read or written: this was a dry run", markup=False)
    return DONE


def _run(replay: Replay, command: ReplayCommand) -> int:
    plan, console = replay.plan, command.console

    def say(line: str) -> None:
        console.print(f"replay {plan.name} ({show_range(plan.times)}): {line}", markup=False)

    say(f"{plan.offsets:,} offsets of {len(plan.ranges)} partitions into {replay.target.described}")
    report = replay.run(follower(console), say)
    if report.finished_before:
        say("has finished before, and nothing was done. To run it once more, give it another --name")
    else:
        say(f"finished: {report.records:,} records, {describe(report.metrics)}")
    if not command.verify:
        return DONE
    verified = replay.verify()
    console.print(render_verified(verified))
    return DONE if verified.equal else DIFFERS


def of_the_source(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings without those that only the ingest job uses."""
    return without(settings, JOB_SETTINGS)


def of_the_job(settings: Mapping[str, str], name: str) -> str | None:
    """Return the ingest job's setting `name` (`ingest.table` or `ingest.lane`), or None if it is not set.

    A value with `{topic}`, which means a table for each topic, also gives None.
    """
    value = job_settings(settings).get(name)
    return None if not value or TOPIC in value else value

"""The command `replay`, as `tiered-stream` and the job run it: settings and arguments in, an exit code out."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from tiered_stream.errors import (
    BrokerAuthorizationError,
    ConfigurationError,
    DataLossError,
    TieredStreamError,
    UnknownTopicError,
)
from tiered_stream.metrics import describe
from tiered_stream.replay.delta_target import DeltaTarget
from tiered_stream.replay.estimate import Prices
from tiered_stream.replay.estimate_report import render
from tiered_stream.replay.follow import Follower
from tiered_stream.replay.run import READS, Replay, plan_replay
from tiered_stream.replay.times import parse_range, show_range
from tiered_stream.settings import read_settings

DONE, FAILED, REFUSED, STOPPED = 0, 1, 2, 130

_OF_THE_INGEST_JOB = ("ingest.table", "ingest.lane", "ingest.checkpointlocation", "ingest.trigger")
"""Settings of `jobs/ingest_to_delta.py`: its file serves a replay into the same table."""
_WRONG_INPUT = (ConfigurationError, UnknownTopicError, BrokerAuthorizationError, DataLossError)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReplayCommand:
    """What the command line says."""

    from_time: str
    to_time: str | None = None
    settings: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    name: str | None = None
    checkpoint: str | None = None
    exact: bool = False
    replace: bool = False
    lane: str | None = None
    tasks: int | None = None
    dry_run: bool = False
    json: bool = False
    prices: Prices = field(default_factory=Prices)
    spark: Mapping[str, str] = field(default_factory=dict)

    def given(self) -> dict[str, str]:
        """The settings of the file, those of the command line on top.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        from_file = read_settings(self.settings) if self.settings else {}
        reads = {option.name.lower() for option in READS}
        own = {name.lower() for name in self.options}
        # Who says on the command line what to read, does not mean what the file says of it.
        left_out = own | (reads if reads & own else set())
        return {name: value for name, value in from_file.items() if name.lower() not in left_out} | dict(self.options)


def run_command(command: ReplayCommand, console: Console) -> int:
    """Run it; the exit code."""
    try:
        settings = command.given()
        now_ms = time.time_ns() // 1_000_000
        parse_range(command.from_time, command.to_time, now_ms)  # what is wrong with it is known before Spark starts
        spark = _session(command)
    except ConfigurationError as error:
        return _said(console, error, REFUSED)
    replay: Replay | None = None
    try:
        signal.signal(signal.SIGTERM, _interrupted)
        replay = _planned(spark, command, settings, now_ms)
        return _dry_run(replay, command, console) if command.dry_run else _run(replay, console)
    except KeyboardInterrupt:
        name = f" (its name is {replay.plan.name})" if replay else ""
        console.print(f"stopped; what was committed stays. To go on, give the same command again{name}", markup=False)
        return STOPPED
    except (TieredStreamError, PySparkException, Py4JError) as error:
        refused = ConfigurationError if replay else _WRONG_INPUT
        if isinstance(error, refused):
            return _said(console, error, REFUSED)
        code = _said(console, error, FAILED)
        if replay is not None:
            console.print("To go on, give the same command again", markup=False)
        return code
    finally:
        _end(spark)


def _planned(spark: SparkSession, command: ReplayCommand, settings: Mapping[str, str], now_ms: int) -> Replay:
    of_job = {name.lower(): value for name, value in settings.items() if name.lower() in _OF_THE_INGEST_JOB}
    options = {name: value for name, value in settings.items() if name.lower() not in _OF_THE_INGEST_JOB}
    table = command.table or of_job.get("ingest.table")
    if not table or "{topic}" in table:
        raise ConfigurationError("say by --table where the records are to go: a path, or a name in the catalog")
    lane = command.lane or of_job.get("ingest.lane", "auto")
    return plan_replay(
        spark,
        options=options,
        target=DeltaTarget(spark, table, options, lane, command.tasks),
        from_time=command.from_time,
        to_time=command.to_time,
        name=command.name,
        checkpoint=command.checkpoint,
        exact=command.exact,
        replace=command.replace,
        now_ms=now_ms,
    )


def _dry_run(replay: Replay, command: ReplayCommand, console: Console) -> int:
    estimate = replay.estimate(tasks=command.tasks, prices=command.prices)
    if command.json:
        sys.stdout.write(f"{estimate.to_json()}\n")
    else:
        console.print(render(estimate))
        console.print("Nothing was read or written: this was a dry run", markup=False)
    return DONE


def _run(replay: Replay, console: Console) -> int:
    def say(line: str) -> None:
        console.print(f"replay {replay.plan.name} ({show_range(replay.plan.times)}): {line}", markup=False)

    say(f"{replay.plan.offsets:,} offsets of {len(replay.plan.ranges)} partitions into {replay.target.described}")
    report = replay.run(Follower(console), say)
    if report.finished_before:
        say("has finished before, and nothing was done. To run it once more, give it another --name")
    else:
        say(f"finished: {report.records:,} records, {describe(report.metrics)}")
    return DONE


def _session(command: ReplayCommand) -> SparkSession:
    """The session that spark-submit has set up, else a local one with Delta."""
    builder = SparkSession.builder.appName("replay")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master("local[*]")
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.log.level", "ERROR")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        if not {"spark.jars", "spark.jars.packages"} & command.spark.keys():
            builder = _with_delta(builder)
    for name, value in command.spark.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _with_delta(builder: SparkSession.Builder) -> SparkSession.Builder:
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as error:
        raise ConfigurationError(
            "Delta for Spark is not installed: pip install 'tiered-stream[delta]', or run the job by spark-submit"
        ) from error
    configured: SparkSession.Builder = configure_spark_with_delta_pip(builder)
    return configured


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _said(console: Console, error: Exception, code: int) -> int:
    console.print(str(error), style="red", markup=False)
    return code


def _end(spark: SparkSession) -> None:
    try:
        spark.stop()
    except (Py4JError, OSError) as error:
        log.info("Spark could not be stopped, it is gone: %s", error)

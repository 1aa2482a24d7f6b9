"""The command `replay`, as `tiered-stream` and the job run it: settings and arguments in, an exit code out."""

from __future__ import annotations

import logging
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

from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.observe.metrics import describe
from tiered_stream.replay.choose_target import paced, target_of
from tiered_stream.replay.estimate import Prices
from tiered_stream.replay.estimate_report import render
from tiered_stream.replay.exit_codes import DIFFERS, DONE, FAILED, REFUSED, STOPPED, WRONG_INPUT, said
from tiered_stream.replay.follow import Follower
from tiered_stream.replay.job_settings import LANE, given_settings, of_the_job, of_the_source, table_of_the_job
from tiered_stream.replay.run_replay import Replay, plan_replay
from tiered_stream.replay.session import command_session, end_session
from tiered_stream.replay.times import parse_range, show_range
from tiered_stream.replay.verify_report import render as render_verified

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReplayCommand:
    """What the command line says."""

    from_time: str
    to_time: str | None = None
    settings: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    into: str | None = None
    name: str | None = None
    checkpoint: str | None = None
    exact: bool = False
    replace: bool = False
    lane: str | None = None
    tasks: int | None = None
    max_bytes_per_second: int | None = None
    verify: bool = False
    dry_run: bool = False
    json: bool = False
    prices: Prices = field(default_factory=Prices)
    spark: Mapping[str, str] = field(default_factory=dict)


def run_command(command: ReplayCommand, console: Console) -> int:
    """Run it; the exit code."""
    try:
        settings = given_settings(command.settings, command.options)
        now_ms = time.time_ns() // 1_000_000
        parse_range(command.from_time, command.to_time, now_ms)  # what is wrong with it is known before Spark starts
        spark = command_session("replay", command.spark)
    except ConfigurationError as error:
        return said(console, error, REFUSED)
    replay: Replay | None = None
    try:
        signal.signal(signal.SIGTERM, _interrupted)
        replay = _planned(spark, command, settings, now_ms)
        return _dry_run(replay, command, console) if command.dry_run else _run(replay, command, console)
    except KeyboardInterrupt:
        name = f" (its name is {replay.plan.name})" if replay else ""
        console.print(f"stopped; what was committed stays. To go on, give the same command again{name}", markup=False)
        return STOPPED
    except (TieredStreamError, PySparkException, Py4JError) as error:
        refused = ConfigurationError if replay else WRONG_INPUT
        if isinstance(error, refused):
            return said(console, error, REFUSED)
        code = said(console, error, FAILED)
        if replay is not None:
            console.print("To go on, give the same command again", markup=False)
        return code
    finally:
        end_session(spark)


def _planned(spark: SparkSession, command: ReplayCommand, settings: Mapping[str, str], now_ms: int) -> Replay:
    into = command.into or table_of_the_job(settings)
    if into is None:
        raise ConfigurationError(
            "say by --into where the records are to go: a Delta table by its path or its name in the catalog, "
            "kafka:TOPIC, or parquet:FOLDER"
        )
    # The file's lane is that of the job's table.
    lane = command.lane or (None if command.into else of_the_job(settings, LANE)) or "auto"
    given = paced(spark, of_the_source(settings), command.max_bytes_per_second, command.tasks)
    target = target_of(spark, into, given, lane=lane, tasks=command.tasks)
    replay = plan_replay(
        spark,
        options=given,
        target=target,
        from_time=command.from_time,
        to_time=command.to_time,
        name=command.name,
        checkpoint=command.checkpoint,
        exact=command.exact,
        replace=command.replace,
        now_ms=now_ms,
    )
    if command.verify and not replay.verifiable:
        raise ConfigurationError(f"--verify is for a Delta table, and the target is {target.described}")
    return replay


def _dry_run(replay: Replay, command: ReplayCommand, console: Console) -> int:
    estimate = replay.estimate(
        tasks=command.tasks, max_bytes_per_second=command.max_bytes_per_second, prices=command.prices
    )
    if command.json:
        sys.stdout.write(f"{estimate.to_json()}\n")
    else:
        console.print(render(estimate))
        console.print("Nothing was read or written: this was a dry run", markup=False)
    return DONE


def _run(replay: Replay, command: ReplayCommand, console: Console) -> int:
    def say(line: str) -> None:
        console.print(f"replay {replay.plan.name} ({show_range(replay.plan.times)}): {line}", markup=False)

    say(f"{replay.plan.offsets:,} offsets of {len(replay.plan.ranges)} partitions into {replay.target.described}")
    report = replay.run(Follower(console), say)
    if report.finished_before:
        say("has finished before, and nothing was done. To run it once more, give it another --name")
    else:
        say(f"finished: {report.records:,} records, {describe(report.metrics)}")
    if not command.verify:
        return DONE
    verified = replay.verify()
    console.print(render_verified(verified))
    return DONE if verified.equal else DIFFERS


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt

"""The command `replay`, as `tiered-stream` and the job run it: settings and arguments in, an exit code out."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType

from pyspark.sql import SparkSession
from rich.console import Console

from tiered_stream.errors import ConfigurationError
from tiered_stream.observe.metrics import describe
from tiered_stream.replay.choose_target import paced, target_of
from tiered_stream.replay.command import (
    DIFFERS,
    DONE,
    ERRORS,
    FAILED,
    REFUSED,
    STOPPED,
    WRONG_INPUT,
    Command,
    of_the_job,
    of_the_source,
    said,
)
from tiered_stream.replay.estimate import priced, render
from tiered_stream.replay.follow import Follower
from tiered_stream.replay.run_replay import Replay, plan_replay
from tiered_stream.replay.times import parse_range, show_range
from tiered_stream.replay.verify_report import render as render_verified


@dataclass(frozen=True, kw_only=True)
class ReplayCommand(Command):
    """The command line; `get_price` is of 1,000 GETs, `gib_price` of a GiB, in US dollars."""

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


def run_command(command: ReplayCommand) -> int:
    """Run it; the exit code."""
    console = Console(highlight=False, soft_wrap=True, stderr=command.json)
    replay: Replay | None = None
    try:
        settings, now_ms = command.given(), time.time_ns() // 1_000_000
        parse_range(command.from_time, command.to_time, now_ms)  # what is wrong with it is known before Spark starts
        with command.session("replay") as spark:
            signal.signal(signal.SIGTERM, _interrupted)
            replay = _planned(spark, command, settings, now_ms)
            return _dry_run(replay, command, console) if command.dry_run else _run(replay, command, console)
    except KeyboardInterrupt:
        name = f" (its name is {replay.plan.name})" if replay else ""
        console.print(f"stopped; what was committed stays. To go on, give the same command again{name}", markup=False)
        return STOPPED
    except ERRORS as error:
        if isinstance(error, ConfigurationError if replay else WRONG_INPUT):
            return said(console, error, REFUSED)
        code = said(console, error, FAILED)
        if replay is not None:
            console.print("To go on, give the same command again", markup=False)
        return code


def _planned(spark: SparkSession, command: ReplayCommand, settings: Mapping[str, str], now_ms: int) -> Replay:
    into = command.into or of_the_job(settings, "table")
    if into is None:
        raise ConfigurationError(
            "say by --into where the records are to go: a Delta table by its path or its name in the catalog, "
            "kafka:TOPIC, or parquet:FOLDER"
        )
    # The file's lane is that of the job's table.
    lane = command.lane or (None if command.into else of_the_job(settings, "lane")) or "auto"
    given = paced(spark, of_the_source(settings), command.max_bytes_per_second, command.tasks)
    replay = plan_replay(
        spark,
        options=given,
        target=target_of(spark, into, given, lane=lane, tasks=command.tasks),
        from_time=command.from_time,
        to_time=command.to_time,
        name=command.name,
        checkpoint=command.checkpoint,
        exact=command.exact,
        replace=command.replace,
        now_ms=now_ms,
    )
    if command.verify and not replay.verifiable:
        raise ConfigurationError(f"--verify is for a Delta table, and the target is {replay.target.described}")
    return replay


def _dry_run(replay: Replay, command: ReplayCommand, console: Console) -> int:
    estimate = replay.estimate(
        tasks=command.tasks,
        max_bytes_per_second=command.max_bytes_per_second,
        prices=priced(command.get_price, command.gib_price),
    )
    if command.json:
        sys.stdout.write(f"{estimate.to_json()}\n")
    else:
        console.print(render(estimate))
        console.print("Nothing was read or written: this was a dry run", markup=False)
    return DONE


def _run(replay: Replay, command: ReplayCommand, console: Console) -> int:
    plan = replay.plan

    def say(line: str) -> None:
        console.print(f"replay {plan.name} ({show_range(plan.times)}): {line}", markup=False)

    say(f"{plan.offsets:,} offsets of {len(plan.ranges)} partitions into {replay.target.described}")
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

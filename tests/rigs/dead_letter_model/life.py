"""Run one life of the driver: in this process, killed by an exception, or in a process of its own, killed by SIGKILL.

`python -m tests.rigs.dead_letter_model.life FOLDER` runs the task of that folder.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from tests.delta.driver import die, kill_group
from tests.rigs.dead_letter_model.driver import Begun, Outcome, run, start_session
from tests.rigs.dead_letter_model.events import DriverKilledError, Killed, Life, Lives
from tests.rigs.dead_letter_model.history import Change, Die, Redrive, RedriveMeanwhile, Run
from tests.rigs.dead_letter_model.world import World
from tests.rigs.stack.build import ROOT
from tests.rigs.stack.processes import LONG

_TASK, _ENDED, _LOG = "task", "ended", "log"


@dataclass(frozen=True)
class Task:
    """Task of one life. `begun` is the replay to begin or to resume."""

    step: Run
    begun: Begun | None
    parks: bool


@dataclass(frozen=True)
class Ended:
    """End of a life: the outcome, all events in order, the writes by method, and the interruptions."""

    outcome: Outcome
    reached: Sequence[str] = ()
    wrote: Sequence[str] = ()
    struck: Sequence[str] = ()
    redrive_failed: bool = False
    """Whether a redrive of another driver within this life failed."""


def live(lives: Lives, world: World, task: Task, *, dies: bool = False) -> Ended:
    """Run one life in this process. `dies`: a kill ends the process."""

    def act(event: Change | Die | RedriveMeanwhile) -> None:
        match event:
            case Die():
                if dies:
                    die()
            case RedriveMeanwhile():
                redriven = run(world, Redrive(event.schema), parks=task.parks)
                failed.extend([] if redriven.is_well else [str(redriven)])
            case _:
                world.change(event)

    failed: list[str] = []
    life = Life(task.step.interruptions, act)
    with lives.living(life):
        try:
            outcome = run(world, task.step, task.begun, parks=task.parks)
        except (Killed, DriverKilledError):
            assert life.was_killed
        if life.was_killed:
            outcome = Outcome(was_killed=True)
    reached = [*life.reached, *(f"the redrive in the midst: {error}" for error in failed)]
    return Ended(outcome, reached, [*life.wrote], [*life.struck], redrive_failed=bool(failed))


def run_apart(world: World, task: Task) -> Ended:
    """Run one life in a process of its own."""
    folder = world.folder / "life"
    folder.mkdir(exist_ok=True)
    (folder / _TASK).write_bytes(pickle.dumps((replace(world, spark=cast(Any, None)), task)))
    (folder / _ENDED).unlink(missing_ok=True)
    with (folder / _LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.dead_letter_model.life", str(folder)], cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(LONG)
        finally:
            kill_group(process.pid)
    if status == -signal.SIGKILL:
        return Ended(Outcome(was_killed=True), ["SIGKILL"], (), ["SIGKILL"])
    assert status == 0, (folder / _LOG).read_text()[-4000:]
    ended: Ended = pickle.loads((folder / _ENDED).read_bytes())
    return ended


def main() -> None:
    folder = Path(sys.argv[1])
    world, task = pickle.loads((folder / _TASK).read_bytes())
    world.spark = spark = start_session()
    _run(spark, world, task, folder)
    spark.stop()


def _run(spark: SparkSession, world: World, task: Task, folder: Path) -> None:
    lives = Lives()
    with lives.watched():
        ended = live(lives, world, task, dies=True)
    (folder / _ENDED).write_bytes(pickle.dumps(ended))


if __name__ == "__main__":
    # By its own name: what is pickled here is read there.
    from tests.rigs.dead_letter_model import life

    life.main()

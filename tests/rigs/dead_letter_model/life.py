"""Run one life of the driver: killed by an exception in this process, or by SIGKILL in a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, cast

from tests.delta.driver import die
from tests.rigs.dead_letter_model.driver import Begun, Outcome, run, start_session
from tests.rigs.dead_letter_model.events import DriverKilledError, Killed, Life, Lives
from tests.rigs.dead_letter_model.history import Change, Die, Redrive, RedriveMeanwhile, Run
from tests.rigs.dead_letter_model.world import World
from tests.rigs.stack.children import Child


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
    child = Child(world.folder / "life.log", _live_apart, replace(world, spark=cast(Any, None)), task)
    try:
        ended: Ended = child.receive()
    except EOFError:
        child.process.join()
        assert child.process.exitcode == -signal.SIGKILL, child.log_file.read_text()[-4000:]
        return Ended(Outcome(was_killed=True), ["SIGKILL"], (), ["SIGKILL"])
    finally:
        child.kill()
    return ended


def _live_apart(connection: Connection, world: World, task: Task) -> None:
    world.spark = start_session()
    lives = Lives()
    with lives.watched():
        connection.send(live(lives, world, task, dies=True))

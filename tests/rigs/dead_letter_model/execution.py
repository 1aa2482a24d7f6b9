"""Run a history, finish its open work, and look where each offset is."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from tests.rigs.dead_letter_model.driver import Begun, Outcome
from tests.rigs.dead_letter_model.events import Lives
from tests.rigs.dead_letter_model.history import (
    Change,
    Die,
    History,
    Land,
    Produce,
    Redrive,
    Replay,
    ReplayOn,
    Run,
)
from tests.rigs.dead_letter_model.life import Ended, Task, live, run_apart
from tests.rigs.dead_letter_model.without_spark import Session
from tests.rigs.dead_letter_model.world import World

_TRIES = 4
"""Most attempts to end well after all tables were repaired."""


@dataclass
class Told:
    """Result of a history."""

    history: History
    faults: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    """Steps as they were done, in order."""
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [str(self.history), " what happened:", *(f"  {line}" for line in self.log)]
        return "\n".join([*lines, " faults:", *(f"  {fault}" for fault in self.faults)])


def execute(
    spark: SparkSession | Session, lives: Lives, history: History, folder: Path, *, processes: bool = False
) -> Told:
    """Run it in the folder, which is new.

    `processes`: each step in which the driver dies is a process of its own, which is killed by SIGKILL.
    """
    told = Told(history)
    _Execution(World(spark, folder, history.setup), lives, told, processes).execute()
    return told


@dataclass
class _Execution:
    _world: World
    _lives: Lives
    _told: Told
    _processes: bool
    _parks: bool = False
    _landed: bool = True
    """Whether the query has landed every record, or has parked the table that lacks it."""
    _redriven: bool = True
    _replay: Begun | None = None
    _replays: int = 0

    def execute(self) -> None:
        self._world.make_tables()
        for step in self._told.history.steps:
            self._step(step)
            self._look()
            if self._told.faults:
                return
        self._settle()

    def _step(self, step: Produce | Change | Run) -> None:
        match step:
            case Produce():
                self._world.produce(step)
                self._landed = False
                self._say(step, "done")
            case Land():
                self._parks = step.parks
                self._landed = False
                self._landed = self._run(step).is_well
            case Redrive():
                self._redriven = False
                self._redriven = self._run(step).is_well
            case Replay():
                self._begin_replay(step)
            case ReplayOn():
                if self._replay is not None:
                    self._go_on(step)
            case _:
                why_not = self._world.change(step)
                self._say(step, why_not or "done")

    def _begin_replay(self, step: Replay) -> None:
        if self._replay is not None:
            self._go_on(ReplayOn(self._told.history.final_schema))
        if self._replay is None and not self._told.faults:
            table = step.table % len(self._told.history.setup.tables)
            last = self._world.end - 1
            first = min(step.first, last)
            self._replays += 1
            self._replay = Begun(
                self._replays, table, first, step.end if first < step.end <= last else None, step.exact
            )
            self._go_on(step)

    def _go_on(self, step: Replay | ReplayOn) -> None:
        if self._run(step, self._replay).is_well:
            self._replay = None

    def _settle(self) -> None:
        """Repair all tables, let the query, the replay and the redrive end well, and check each offset."""
        self._land_all()
        schema, redrives_at_end = self._told.history.final_schema, self._told.history.redrives_at_end
        if not self._redriven:  # a replay waits for it
            self._end(Redrive(schema))
        if self._replay is not None:
            self._end(ReplayOn(schema))
        if redrives_at_end or not self._redriven:
            self._end(Redrive(schema))
        if self._replay is not None or not self._redriven:
            self._told.faults.append("it does not end well, though all tables are repaired")
        if not self._told.faults:
            self._told.faults += self._world.faults(final_schema=schema if redrives_at_end else None)

    def _end(self, step: ReplayOn | Redrive) -> None:
        if not self._told.faults:
            self._step(step)

    def _land_all(self) -> None:
        """Repair all tables, and land the remaining records."""
        self._world.repair_all()
        self._say("repair all tables", "done")
        for _ in range(_TRIES):
            self._step(Land(self._told.history.final_schema, "auto", "auto", 1000, self._parks))
            if self._landed:
                self._look()
                return
        self._told.faults.append("it does not end well, though all tables are repaired")

    def _look(self) -> None:
        """Check for duplicate rows at any time, and for each offset if no work is open."""
        quiet = self._landed and self._redriven and self._replay is None
        if quiet and not self._world.has_parked():
            self._told.faults += self._world.faults()
            self._told.counts["looked at in between"] += 1
        else:
            self._told.faults += self._world.doubled()

    # One run

    def _run(self, step: Run, begun: Begun | None = None) -> Outcome:
        begin = time.monotonic()
        task = Task(step, begun, self._parks)
        dies = any(isinstance(each.event, Die) for each in step.interruptions)
        ended = run_apart(self._world, task) if self._processes and dies else live(self._lives, self._world, task)
        seconds = time.monotonic() - begin
        self._say(step, f"{ended.outcome} ({seconds:.1f} s) [{', '.join(ended.reached)}]")
        self._count(step, ended)
        self._redriven = self._redriven and not ended.redrive_failed
        outcome = ended.outcome
        if outcome.foreign:
            self._told.faults.append(f"an error of nobody's: {outcome}")
        return outcome

    def _count(self, step: Run, ended: Ended) -> None:
        kind, counts = kind_of(step), self._told.counts
        counts[f"{kind}: {ended.outcome.kind}"] += 1
        counts += Counter(f"wrote: {how}" for how in ended.wrote)
        counts += Counter(f"{kind}: {each}" for each in ended.struck)

    def _say(self, step: object, outcome: str) -> None:
        self._told.log.append(f"{step}\n      -> {outcome}")


def kind_of(step: Run) -> str:
    """Name of the step's kind in the counts."""
    match step:
        case Land():
            return "land, park" if step.parks else f"land, {step.lane}"
        case Redrive():
            return "redrive"
    return "replay --replace"

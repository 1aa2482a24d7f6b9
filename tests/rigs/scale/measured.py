"""Seconds of CPU, and memory, that a step takes: other load on the machine hardly changes them."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from tests.rigs.soak.held import MIB, kib

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """Measured step.

    `seconds` are of CPU, in all threads. `held` are the MiB that the process has more after the step than before the
    first one, and `peak` are the most that it had more meanwhile. `units` is the number of `unit`s (such as segments)
    that the step is about. `may_take` is the goal in microseconds for each unit, and `may_hold` in bytes; None: there
    is no goal.
    """

    part: str
    name: str
    seconds: float
    held: float
    peak: float
    units: int = 0
    unit: str = ""
    may_take: float | None = None
    may_hold: float | None = None

    @property
    def microseconds(self) -> float | None:
        return self.seconds * 1e6 / self.units if self.units else None

    @property
    def bytes(self) -> float | None:
        return self.held * MIB / self.units if self.units else None

    @property
    def missed(self) -> bool:
        taken, held = self.microseconds, self.bytes
        return bool(
            (self.may_take is not None and taken is not None and taken > self.may_take)
            or (self.may_hold is not None and held is not None and held > self.may_hold)
        )


@dataclass
class Meter:
    """Steps of one process. The CPU that `outside` blocks take is not the step's: they stand in for a server."""

    part: str
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._outside = 0.0
        self._lock = threading.Lock()
        self.restart()

    def restart(self) -> None:
        """Let memory that is held now not count for later steps."""
        gc.collect()
        self._first = memory("Pss_Anon:")

    @contextmanager
    def outside(self) -> Iterator[None]:
        began = time.thread_time()
        try:
            yield
        finally:
            with self._lock:
                self._outside += time.thread_time() - began

    def step(
        self,
        name: str,
        action: Callable[[], T],
        units: tuple[int, str] = (0, ""),
        goals: tuple[float | None, float | None] = (None, None),
    ) -> T:
        """Measure `action`, and return its result, which still counts as held.

        `units` are their number and name, and `goals` are microseconds and bytes for each of them.
        """
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
        before, held_before = status("VmRSS:"), memory("Pss_Anon:") - self._first
        began, outside = time.process_time(), self._outside
        result = action()
        seconds = time.process_time() - began - (self._outside - outside)
        peak = status("VmHWM:")
        gc.collect()
        held = memory("Pss_Anon:") - self._first
        peak = max(held, held_before + peak - before)
        self.steps.append(Step(self.part, name, seconds, held, peak, *units, *goals))
        return result


def memory(name: str) -> float:
    """Return a figure of this process's memory in MiB: `Pss_Anon:` is what the process itself has made."""
    return kib(Path("/proc/self/smaps_rollup"), name) / 1024


def status(name: str) -> float:
    return kib(Path("/proc/self/status"), name) / 1024


def steps_of(module: str, scale: float, folder: Path, arguments: Sequence[float]) -> list[Step]:
    """Return the steps that `measure` of the part's module takes. A new process finds no function of `__main__`."""
    meter: Meter = import_module(f"tests.rigs.scale.{module}").measure(scale, folder, *arguments)
    return meter.steps

"""One process of the job: runs cases until its time is up, and sends what became of them.

What a case may cost is measured by the CPU time of its thread (a process with a running timer counts only in ticks),
and by the most memory that the process had. A case that takes far longer than that ends the process; so may a bug in
compiled code. The job knows which case it was.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import logging
import os
import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.rigs.fuzz.target import Target

MOST_SECONDS = 1.0
"""Of CPU, for one case."""
GIVEN_UP_SECONDS = 20.0
SLICE_SECONDS = 0.4
_QUICK_SECONDS = 0.0002
"""In that time a case cannot have touched more than a few MiB: its memory is not looked at."""
_CASES_A_LOOK = 16
_WARM_UP_CASES = 30


@dataclass(frozen=True, slots=True)
class Found:
    """What must not be: `kind` is foreign, slow, memory, dead or hung."""

    kind: str
    target: str
    what: str
    data: bytes


@dataclass(slots=True)
class Tally:
    """Cases of one target; seconds are of CPU, `memory` is the growth of the process in bytes at most."""

    cases: int = 0
    refused: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    memory: int = 0


class Memory:
    """How much this process has grown, at the most, since `settle`: proc(5)'s `VmHWM` (`ru_maxrss` has a parent's)."""

    def __init__(self) -> None:
        self._trim = ctypes.CDLL(None).malloc_trim
        self._before = 0

    def settle(self) -> None:
        """Give back what is free, and forget the most of before (proc(5): `clear_refs`)."""
        gc.collect()
        pa.default_memory_pool().release_unused()
        self._trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._most()

    def growth(self) -> int:
        return self._most() - self._before

    @staticmethod
    def _most() -> int:
        return int(Path("/proc/self/status").read_bytes().partition(b"VmHWM:")[2].split(None, 1)[0]) * 1024


class Bench:
    """Runs the cases of one target, and keeps count."""

    def __init__(self, target: Target, memory: Memory) -> None:
        self.target = target
        self.tally = Tally()
        self._memory = memory

    def begin(self) -> None:
        self.tally = Tally()
        self._memory.settle()

    def run(self, data: bytes) -> Found | None:
        """Run one case; what was wrong with it, None: nothing."""
        tally, target, found = self.tally, self.target, None
        began = time.thread_time()
        try:
            target.run(data)
        except target.refusals:
            tally.refused += 1
        except BaseException as error:  # noqa: BLE001 - any that comes out is what is looked for
            found = Found("foreign", target.name, _shown(error), data)
        else:
            tally.accepted += 1
        seconds = time.thread_time() - began
        growth = self._memory.growth() if seconds > _QUICK_SECONDS else 0
        tally.cases += 1
        tally.seconds += seconds
        tally.slowest = max(tally.slowest, seconds)
        tally.memory = max(tally.memory, growth)
        if growth > target.memory:
            self._memory.settle()
            return found or Found("memory", target.name, f"{growth >> 20} MiB", data)
        if seconds > MOST_SECONDS:
            return found or Found("slow", target.name, f"{seconds:.1f} s", data)
        return found


def _shown(error: BaseException) -> str:
    """Type, and where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if "/tests/rigs/fuzz/" not in each.filename] or list(frames)
    where = " < ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(ours[-3:]))
    return f"{type(error).__name__} at {where}: {str(error)[:200]}"


def load_targets(module: str) -> tuple[Target, ...]:
    targets: tuple[Target, ...] = importlib.import_module(module).TARGETS
    return targets


def run_cases(
    module: str, only: Sequence[str], environment: Mapping[str, str], seed: str, seconds: float, place: Any,
    reports: Connection,
) -> None:  # fmt: skip
    """Run the targets in turn, each for a slice of time, until the time is up; each at least once.

    `place` gets the target and the number of the case that runs. `reports` gets what was found, and tallies.
    """
    os.environ.update(environment)
    logging.disable()  # what the product warns of here, it warns of millions of times
    targets = [(at, each) for at, each in enumerate(load_targets(module)) if not only or each.name in only]
    memory, until = Memory(), time.monotonic() + seconds
    for index, target in targets:
        _warm_up(index, target, seed, place)
    benches = [(index, Bench(target, memory), itertools.count()) for index, target in targets]
    for turn in itertools.count():
        for index, bench, numbers in benches:
            if turn and time.monotonic() > until:
                return
            bench.begin()
            slice_end = time.thread_time() + SLICE_SECONDS
            while time.thread_time() < slice_end:
                for _, number in zip(range(_CASES_A_LOOK), numbers, strict=False):
                    place[:] = index, number
                    data = bench.target.case(seed, number)
                    signal.setitimer(signal.ITIMER_PROF, GIVEN_UP_SECONDS)
                    if found := bench.run(data):
                        reports.send(found)
            signal.setitimer(signal.ITIMER_PROF, 0)
            reports.send((bench.target.name, bench.tally))


def _warm_up(index: int, target: Target, seed: str, place: Any) -> None:
    """What is imported and compiled late is no case's cost. What comes out here comes again, and is counted then."""
    signal.setitimer(signal.ITIMER_PROF, 10 * GIVEN_UP_SECONDS)
    for number in range(_WARM_UP_CASES):
        place[:] = index, number
        try:
            target.run(target.case(seed, number))
        except Exception:  # noqa: BLE001
            continue

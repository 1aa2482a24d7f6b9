"""The whole job: two processes, one with compiled kernels as users have them, one whose kernels check each index."""

from __future__ import annotations

import hashlib
import multiprocessing
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from tests.rigs.fuzz.worker import GIVEN_UP_SECONDS, Found, Tally, load_targets, run_cases
from tests.rigs.tables import table

_KEPT_OF_A_KIND = 5
_Reports = queue.SimpleQueue[Found | tuple[str, Tally] | Exception | None]
"""What the processes send; None: one of them has ended for good."""
_PROCESSES = multiprocessing.get_context("spawn")


@dataclass(slots=True)
class Result:
    """What all processes saw together, by target."""

    seed: str
    tallies: dict[str, Tally] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)

    def add(self, target: str, tally: Tally) -> None:
        total = self.tallies.setdefault(target, Tally())
        for name in ("cases", "refused", "accepted", "seconds"):
            setattr(total, name, getattr(total, name) + getattr(tally, name))
        for name in ("slowest", "memory"):
            setattr(total, name, max(getattr(total, name), getattr(tally, name)))

    def count(self, target: str, *kinds: str) -> int:
        return sum(each.target == target and each.kind in kinds for each in self.found)

    def table(self) -> Table:
        """A line a target, and one for all."""
        rows = [self._row(name, tally, (name,)) for name, tally in sorted(self.tallies.items())]
        total = Result(self.seed)
        for tally in self.tallies.values():
            total.add("all", tally)
        rows.append(self._row("all", total.tallies.get("all", Tally()), tuple(self.tallies)))
        return table(None, _HEAD, rows, texts=("target",))

    def _row(self, name: str, tally: Tally, targets: Sequence[str]) -> tuple[str, ...]:
        foreign, slow, memory = (
            sum(self.count(each, *kinds) for each in targets)
            for kinds in (("foreign", "dead"), ("slow", "hung"), ("memory",))
        )
        a_second = tally.cases / tally.seconds if tally.seconds else 0.0
        return (
            name, f"{tally.cases:,}", f"{a_second:,.0f}", f"{tally.refused:,}", f"{tally.accepted:,}", f"{foreign:,}",
            f"{slow:,}", f"{memory:,}", f"{tally.slowest:.3f} s", f"{tally.memory >> 20:,} MiB",
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        kinds = Counter((each.kind, each.target, each.what.rpartition(":")[0]) for each in self.found)
        return {
            "seed": self.seed,
            "cases": sum(tally.cases for tally in self.tallies.values()),
            "targets": {name: asdict(tally) for name, tally in sorted(self.tallies.items())},
            "found": [{"kind": kind, "target": target, "what": what, "times": times}
                      for (kind, target, what), times in kinds.most_common()],
        }  # fmt: skip


_HEAD = (
    "target",
    "cases",
    "cases/s of CPU",
    "refused",
    "accepted",
    "foreign",
    "above 1 s",
    "above memory",
    "slowest",
    "memory",
)


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done; `module` has the TARGETS, `only` names some of them."""

    seed: str
    seconds: float
    folder: Path
    module: str = "tests.rigs.fuzz.targets"
    only: tuple[str, ...] = ()
    tell: Callable[[str], None] = lambda line: None

    def run(self) -> Result:
        """Run both processes side by side, started anew when they die, until the time is up."""
        self.folder.mkdir(parents=True, exist_ok=True)
        reports: _Reports = queue.SimpleQueue()
        until = time.monotonic() + self.seconds
        kept = (self.folder / "bounds-checked-kernels").absolute()
        environments = {"compiled": {}, "bounds": {"NUMBA_BOUNDSCHECK": "1", "XDG_CACHE_HOME": str(kept)}}
        for name, environment in environments.items():
            threading.Thread(target=self._process, args=(name, environment, until, reports)).start()
        result, left = Result(self.seed), len(environments)
        while left:
            match reports.get():
                case Exception() as error:
                    raise error
                case None:
                    left -= 1
                case Found() as found:
                    self._keep(result, found)
                case (target, tally):
                    result.add(target, tally)
        return result

    def _process(self, name: str, environment: Mapping[str, str], until: float, reports: _Reports) -> None:
        start, failed = 0, None
        try:
            while (seconds := until - time.monotonic()) > 0 or not start:
                dead = self._once(f"{self.seed}/{name}/{start}", environment, seconds, reports)
                if dead is not None:
                    reports.put(dead)
                start += 1
        except Exception as error:  # noqa: BLE001 - `run` raises it
            failed = error
        reports.put(failed)

    def _once(self, seed: str, environment: Mapping[str, str], seconds: float, reports: _Reports) -> Found | None:
        """One process to its end; the case that killed it, None: it ended well."""
        place = _PROCESSES.Array("q", [-1, -1], lock=False)
        receiver, sender = _PROCESSES.Pipe(duplex=False)
        given = (self.module, self.only, environment, seed, seconds, place, sender)
        process = _PROCESSES.Process(target=run_cases, args=given)
        process.start()
        sender.close()
        with suppress(EOFError):
            while True:
                reports.put(receiver.recv())
        process.join()
        if not process.exitcode:
            return None
        target, number = place
        if target < 0:
            raise RuntimeError(f"a process of the job ended with {process.exitcode} before its first case")
        found = load_targets(self.module)[target]
        hung = process.exitcode == -signal.SIGPROF
        what = f"more than {GIVEN_UP_SECONDS} s" if hung else f"the process ended with {process.exitcode}"
        return Found("hung" if hung else "dead", found.name, what, found.case(seed, number))

    def _keep(self, result: Result, found: Found) -> None:
        """Count it, and put the first few of its kind where they can be looked at."""
        same = (found.kind, found.target, found.what.rpartition(":")[0])
        known = sum((each.kind, each.target, each.what.rpartition(":")[0]) == same for each in result.found)
        result.found.append(found)
        if known >= _KEPT_OF_A_KIND:
            return
        name = f"{found.kind}-{hashlib.sha256(found.data).hexdigest()[:12]}"
        path = self.folder / found.target / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(found.data)
        self.tell(f"found {path}: {found.what}")

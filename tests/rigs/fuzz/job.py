"""The whole job: two processes, one with compiled kernels as users have them, one whose kernels check each index."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from rich.table import Table

from tests.rigs.fuzz.worker import GIVEN_UP_SECONDS, Found, Place, Tally, load_targets
from tests.rigs.tables import table

_KEPT_OF_A_KIND = 5
_Lines = queue.SimpleQueue[dict[str, Any] | Exception | None]
"""What the processes print; None: one of them has ended for good."""


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
        lines: _Lines = queue.SimpleQueue()
        until = time.monotonic() + self.seconds
        threads = [
            threading.Thread(target=self._process, args=(name, environment, until, lines))
            for name, environment in self._environments().items()
        ]
        for thread in threads:
            thread.start()
        result, left = Result(self.seed), len(threads)
        while left:
            line = lines.get()
            if isinstance(line, Exception):
                raise line
            if line is None:
                left -= 1
            elif "found" in line:
                self._keep(result, Found(**{**line["found"], "data": bytes.fromhex(line["found"]["data"])}))
            else:
                result.add(line["target"], Tally(**line["tally"]))
        return result

    def _environments(self) -> dict[str, Mapping[str, str]]:
        kept = (self.folder / "bounds-checked-kernels").absolute()
        return {"compiled": {}, "bounds": {"NUMBA_BOUNDSCHECK": "1", "XDG_CACHE_HOME": str(kept)}}

    def _process(self, name: str, environment: Mapping[str, str], until: float, lines: _Lines) -> None:
        start, failed = 0, None
        try:
            while (seconds := until - time.monotonic()) > 0 or not start:
                seed = f"{self.seed}/{name}/{start}"
                dead = self._once(seed, environment, seconds, lines)
                if dead is not None:
                    lines.put({"found": {**asdict(dead), "data": dead.data.hex()}})
                start += 1
        except Exception as error:  # noqa: BLE001 - `run` raises it
            failed = error
        lines.put(failed)

    def _once(self, seed: str, environment: Mapping[str, str], seconds: float, lines: _Lines) -> Found | None:
        """One process to its end; the case that killed it, None: it ended well."""
        place = self.folder / f"place-{seed.split('/')[1]}"
        place.write_bytes(Place.empty())
        command = [
            sys.executable, "-m", "tests.rigs.fuzz.worker", "--seed", seed, "--seconds", str(seconds),
            "--place", str(place),
            "--module", self.module, *(f"--target={each}" for each in self.only),
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as process:
            assert process.stdout is not None
            _pass_on(process.stdout, lines)
        if not process.returncode:
            return None
        target, number = Place.read(place.read_bytes())
        if target < 0:
            raise RuntimeError(f"a process of the job ended with {process.returncode} before its first case")
        found = load_targets(self.module)[target]
        hung = process.returncode == -27  # SIGPROF
        what = f"more than {GIVEN_UP_SECONDS} s" if hung else f"the process ended with {process.returncode}"
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


def _pass_on(stream: IO[str], lines: _Lines) -> None:
    for line in stream:
        lines.put(json.loads(line))

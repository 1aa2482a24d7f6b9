"""Forged reports next to a running query: `python -m tests.rigs.flood [--rate 100000] [--turns 3]`.

A query lands the same topic again and again, in turns without and with forged reports to all UDP ports of its
processes. The traffic stays on the loopback interface. Each table must have each row once, no line may be forged, and
memory must not grow. Prints what a micro-batch takes in either kind of turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.rigs.soak.held import family
from tests.rigs.sockets import listening
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.spark import ROOT, spark_environment

_MEMORY_MIB = 64
"""Most by which the resident memory of the driver and its planners may grow more in a turn with forged reports."""


def drive(folder: Path) -> None:
    """The query's driver: lands the topic at each line of its standard input, and prints what each batch took."""
    from tests.delta.archive import LONG, everything, landed, options
    from tests.rigs.stack.spark import spark_session
    from tiered_stream import land, report_queries

    spark = spark_session("flood", groups=("delta",))
    rows = everything(LONG)
    with report_queries(spark, lines="text"):
        for number, _ in enumerate(sys.stdin):
            table = folder / f"table-{number}"
            given = options(LONG, {"maxOffsetsPerTrigger": "1000"})
            query = land(spark, options=given, table=str(table), checkpoint=f"{table}-checkpoint")
            print("started", flush=True)
            query.awaitTermination()
            seconds = [each.batchDuration / 1000 for each in query.recentProgress[1:] if each.numInputRows]
            print(json.dumps({"seconds": seconds, "equal": landed(table).equals(rows)}), flush=True)
    spark.stop()


class Driver:
    """The driver's process, whose log goes into a file."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        command = [sys.executable, "-m", "tests.rigs.flood", "--drive", str(folder)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **spark_environment()}, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def turn(self, rate: int) -> dict[str, Any]:
        """Let it land the topic once, with so many forged reports a second; what it prints, and what was sent."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        while self._process.stdout.readline() != "started\n":
            assert self._process.poll() is None, self.log.read_text()
        before = self._mib()
        wait_until(lambda: len(self._ports()) > 1, "the planner's port")
        with flood(rate, self._ports()) as sent:
            result: dict[str, Any] = json.loads(self._process.stdout.readline())
            result["grown_mib"] = self._mib() - before
        return {**result, **sent}

    def _ports(self) -> list[int]:
        """UDP ports of the driver, and of the planner, which opens its port when the query plans."""
        return sorted({each.port for each in listening(self._process.pid) if each.protocol == "udp"})

    def _mib(self) -> float:
        """Resident memory of the Python processes."""
        total = 0
        for pid in (self._process.pid, *family(self._process.pid)):
            fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            total += 0 if "java" in fields["Name"] else int(fields.get("VmRSS", "0 kB").split()[0])
        return total / 1024

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def flood(rate: int, ports: list[int]) -> Iterator[dict[str, Any]]:
    """Send forged reports during the block, and put what was sent into the dictionary at its end."""
    sent: dict[str, Any] = {"sent": 0, "ports": len(ports)}
    if not rate:
        yield sent
        return
    command = [sys.executable, "-m", "tests.rigs.flood.sender", str(rate), *map(str, ports)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender:
        try:
            yield sent
        finally:
            sent.update(json.loads(sender.communicate("\n")[0]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.flood", description=__doc__)
    parser.add_argument("--rate", type=int, default=100_000, help="forged reports a second")
    parser.add_argument("--turns", type=int, default=3, help="turns of each kind, after one to warm up")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        drive(given.drive)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Path(folder))
        driver.turn(0)
        turns = [(rate, driver.turn(rate)) for _ in range(given.turns) for rate in (0, given.rate)]
        driver.close()
        log = driver.log.read_text()
    quiet, flooded = ([turn for rate, turn in turns if bool(rate) is kind] for kind in (False, True))
    medians = [statistics.median(each for turn in kind for each in turn["seconds"]) for kind in (quiet, flooded)]
    rate = sum(turn["sent"] for turn in flooded) / sum(turn["seconds_sent"] for turn in flooded)
    grown = max(turn["grown_mib"] for turn in flooded) - max(0.0, max(turn["grown_mib"] for turn in quiet))
    equal = all(turn["equal"] for _, turn in turns)
    print(f"{rate:,.0f} forged reports a second to {flooded[0]['ports']} ports")
    print(
        f"a micro-batch takes {medians[0]:.3f} s without, {medians[1]:.3f} s with ({medians[1] / medians[0] - 1:+.1%})"
    )
    print(f"all rows once: {equal}; forged lines: {log.count('forged')}; memory more than without: {grown:.0f} MiB")
    return 0 if equal and "forged" not in log and grown < _MEMORY_MIB else 1


if __name__ == "__main__":
    sys.exit(main())

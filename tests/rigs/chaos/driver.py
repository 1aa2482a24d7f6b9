"""A driver process that lands topics on order: `python -m tests.rigs.chaos.driver SETTINGS`, one line an order."""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tests.delta.driver import die_at, kill_group
from tests.rigs.stack.build import ROOT
from tests.rigs.stack.processes import LONG, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLED = "the driver was killed"
_READY = "ready"


class Driver:
    """The process, seen from the one that starts it; it runs one query at a time.

    Args:
        settings: of its Spark session.
    """

    def __init__(self, log_file: Path, settings: Mapping[str, str]) -> None:
        self.log_file = log_file
        words = [sys.executable, "-m", "tests.rigs.chaos.driver", json.dumps(settings)]
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout
        assert self.answer() == _READY, log_file.read_text()[-4000:]

    @property
    def pid(self) -> int:
        """Also of its session and its process group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def answered(self) -> bool:
        """Whether the query has ended, or the process has."""
        return bool(select.select([self._answers], [], [], 0)[0])

    def land(self, **arguments: Any) -> None:
        """Start a query with the arguments of `tiered_stream.land`; `answer` tells how it ended."""
        self._order({"land": arguments})

    def die_at(self, point: str) -> None:
        """Die at that point of the next micro-batch (`tests.delta.driver.POINTS`)."""
        self._order({"die_at": point})

    def answer(self) -> str:
        """How the query ended, when it has: an error, nothing where it ended well, `KILLED` by SIGKILL."""
        wait_until(lambda: self.answered, "the query to end", LONG, pause=0.02)
        line = self._answers.readline()
        if not line:
            status = self._process.wait()
            self.kill()
            return KILLED if status == -signal.SIGKILL else f"the driver ended with status {status}"
        return str(json.loads(line))

    def kill(self) -> None:
        """SIGKILL to its Python, its JVM, and with them the workers."""
        kill_group(self.pid)
        self._process.wait()

    def _order(self, order: Mapping[str, Any]) -> None:
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
        except BrokenPipeError:
            pass  # it is dead, which `answer` tells


def _land(spark: SparkSession, arguments: Mapping[str, Any], answers: IO[str]) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from tiered_stream import land
    from tiered_stream.errors import TieredStreamError

    error = ""
    try:
        land(spark, **arguments).awaitTermination()
    except (TieredStreamError, PySparkException, Py4JError) as failure:
        error = "\ncaused by: ".join([f"{type(failure).__name__}: {failure}", *_causes(failure)])
    print(json.dumps(error), file=answers, flush=True)


def _causes(failure: Exception) -> Iterator[str]:
    """Those in the JVM: an error of a sink does not say why a task has failed."""
    java = getattr(failure, "_origin", None)
    while java is not None:
        yield java.toString()
        java = java.getCause()


def main() -> None:
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes to the log
    from tests.rigs.stack.spark import SHORT_LIVED, spark_session

    spark = spark_session("chaos", ("delta",), {**SHORT_LIVED, **json.loads(sys.argv[1])})
    print(json.dumps(_READY), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "die_at" in order:
            die_at(order["die_at"])
        else:
            threading.Thread(target=_land, args=(spark, order["land"], answers), daemon=True).start()


if __name__ == "__main__":
    main()

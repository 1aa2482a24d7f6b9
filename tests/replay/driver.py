"""A driver process that replays: `python -m tests.replay.driver JSON`; a `Run` says what the JSON holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.delta.driver import kill_group, kill_workers
from tests.rigs.stack.processes import LONG
from tests.rigs.stack.spark import ROOT

LOCAL_TASKS = {"spark.master": "local[2,4]"}
"""A task may fail three times before its stage does."""


@dataclass(frozen=True)
class Run:
    """One replay in a process group of its own, which may lose its Python workers all the while."""

    options: Mapping[str, str]
    arguments: Mapping[str, Any]
    workers_die: bool = False

    def start(self, log_file: Path) -> Driver:
        words = [sys.executable, "-m", "tests.replay.driver", json.dumps(asdict(self))]
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        return Driver(process)


class Driver:
    """A `Run` under way."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL to the driver's Python, its JVM, and with them the workers."""
        kill_group(self._process.pid)
        self._process.wait()

    def wait(self) -> int:
        """The exit status."""
        try:
            return self._process.wait(timeout=LONG)
        finally:
            kill_group(self._process.pid)


def main() -> None:
    run = Run(**json.loads(sys.argv[1]))
    import tiered_stream
    from tests.rigs.stack.spark import spark_session

    spark = spark_session("replay", groups=("delta",), config=LOCAL_TASKS)
    if run.workers_die:
        threading.Thread(target=kill_workers, daemon=True).start()
    tiered_stream.replay(spark, options=run.options, **run.arguments)
    spark.stop()


if __name__ == "__main__":
    main()

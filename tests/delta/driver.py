"""A driver process that lands topics of the golden archive, and dies where it is told to.

`python -m tests.delta.driver JSON`; a `Run` says what the JSON holds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.rigs.stack.processes import LONG
from tests.rigs.stack.spark import ROOT, spark_environment

BEFORE_TASKS, BEFORE_COMMIT = "before tasks", "between tasks and commit"
AFTER_GROWTH = "between the table's new columns and the commit"
IN_COMMIT, AFTER_COMMIT = "during the commit", "after the commit and before Spark's"
POINTS = (BEFORE_TASKS, BEFORE_COMMIT, IN_COMMIT, AFTER_COMMIT)

LOCAL_TASKS = {"spark.master": "local[2,4]"}
"""A task may fail three times before its stage does."""
SPECULATION = {
    "spark.executor.memory": "600m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.task.duration.threshold": "2s",
}

_LONGEST_COMMIT = 0.03
_SECONDS_BETWEEN_WORKERS = 0.7


@dataclass(frozen=True)
class Run:
    """One driver process. It dies at `point` of its batch number `batch`, counted from 1; without a point, never."""

    table: str
    checkpoint: str
    topics: str
    limit: int
    point: str | None = None
    batch: int = 1
    speculation: tuple[str, str] | None = None
    """A cluster's master, and a folder for the marks of `SlowFetcher`: each task is started twice."""
    given: dict[str, str] | None = None
    """All options, of a topic that is not in the golden archive."""

    def execute(self, log_file: Path) -> int:
        """Run it in a process group of its own; the exit status, negative for the signal that ended it."""
        return wait_for(start_driver("tests.delta.driver", asdict(self), log_file))


def start_driver(module: str, run: Mapping[str, Any], log_file: Path) -> subprocess.Popen[bytes]:
    """Start `python -m MODULE JSON` in a process group of its own."""
    return start_program(log_file, module, json.dumps(run))


def start_program(log_file: Path, module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a module as a program with Spark, in a process group of its own."""
    with log_file.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments], cwd=ROOT, env=spark_environment(), stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def wait_for(driver: subprocess.Popen[bytes]) -> int:
    """The exit status, negative for the signal that ended it."""
    try:
        return driver.wait(timeout=LONG)
    finally:
        kill_group(driver.pid)


def found_by(module: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a module as a program with Spark, and return what it writes into FOLDER/found.json."""
    status = wait_for(start_program(folder / "log", module, str(folder), *arguments))
    assert status == 0, (folder / "log").read_text()[-8000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def kill_group(leader: int) -> None:
    """SIGKILL to the driver's Python and to its JVM, whose workers then end themselves."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


def die_at(point: str, batch: int = 1) -> None:
    """End this process, and all that it has started, at that point of its next batch but `batch` - 1."""
    from tiered_stream.delta.commit.commit_attempts import TableCommits
    from tiered_stream.delta.commit.query_commits import OneTable

    seen = 0

    def die_in(original: Callable[..., Any], when: Callable[[Callable[[], Any]], Any], of: type = TableCommits) -> None:
        def counted(*arguments: Any) -> Any:
            nonlocal seen
            seen += 1
            return when(lambda: original(*arguments)) if seen == batch else original(*arguments)

        setattr(of, original.__name__, counted)

    def after(go_on: Callable[[], Any]) -> None:
        go_on()
        die()

    def meanwhile(go_on: Callable[[], Any]) -> None:
        threading.Timer(random.uniform(0, _LONGEST_COMMIT), die).start()
        go_on()
        time.sleep(_LONGEST_COMMIT)
        die()

    match point:
        case "before tasks":
            die_in(OneTable.has_batch, lambda _: die(), OneTable)
        case "between tasks and commit":
            die_in(TableCommits.commit, lambda _: die())
        case "between the table's new columns and the commit":
            die_in(TableCommits._grow, after)
        case "during the commit":
            die_in(TableCommits.commit, meanwhile)
        case "after the commit and before Spark's":
            die_in(TableCommits.commit, after)


def die() -> None:
    kill_group(os.getpgrp())


def kill_workers() -> None:
    """Again and again, one of the Python processes that Spark has started for this driver."""
    while True:
        time.sleep(random.uniform(0, _SECONDS_BETWEEN_WORKERS))
        kill_worker(os.getsid(0), random.choice)


def kill_worker(session: int, choose: Callable[[list[int]], int]) -> None:
    """SIGKILL to one of the Python processes that Spark has started in the session, if there are any."""
    workers = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_worker(pid, session)]
    if workers:
        try:
            os.kill(choose(workers), signal.SIGKILL)
        except ProcessLookupError:
            pass


def _is_worker(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session and b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def slow(marks: str) -> dict[str, str]:
    """Options that read with `SlowFetcher`."""
    from tests.delta.golden_fetchers import MARKS, SlowFetcher

    return {MARKS: marks, "kafka.remote.storage.fetcher.class": f"{SlowFetcher.__module__}.{SlowFetcher.__name__}"}


def main() -> None:
    run = Run(**json.loads(sys.argv[1]))
    from tests.delta.archive import options
    from tests.rigs.stack.spark import spark_session
    from tiered_stream import land

    config = SPECULATION | {"spark.master": run.speculation[0]} if run.speculation else LOCAL_TASKS
    spark = spark_session("driver", groups=("delta",), config=config)
    if run.point:
        die_at(run.point, run.batch)
    limit = {"maxOffsetsPerTrigger": str(run.limit)}
    slowed = slow(run.speculation[1]) if run.speculation else {}
    query = land(
        spark,
        options=limit | run.given if run.given else options(run.topics, limit | slowed),
        table=run.table,
        checkpoint=run.checkpoint,
        lane="direct",
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()

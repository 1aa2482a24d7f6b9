"""A driver process that replays into a topic, to be killed: `python -m tests.replay.topic_driver JSON`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.delta.driver import LOCAL_TASKS
from tests.rigs.stack.spark import ROOT, spark_session

FROM_TIME = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class TopicRun:
    """What a driver is told."""

    options: Mapping[str, str]
    target: str
    checkpoint: str

    def start(self, log_file: Path) -> subprocess.Popen[bytes]:
        """Start it in a session of its own."""
        command = [sys.executable, "-m", "tests.replay.topic_driver", json.dumps(asdict(self))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with log_file.open("ab") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip


def kill_a_worker(session: int) -> None:
    """SIGKILL to the newest Python worker that Spark has started in the session."""
    workers = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_worker(pid, session)]
    try:
        os.kill(max(workers), signal.SIGKILL)
    except (ProcessLookupError, ValueError):
        pass


def _is_worker(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session and b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def main() -> None:
    from tiered_stream.replay.run_replay import plan_replay
    from tiered_stream.replay.topic_target import TopicTarget

    run = TopicRun(**json.loads(sys.argv[1]))
    spark = spark_session("topic driver", groups=(), config=LOCAL_TASKS)
    target = TopicTarget(spark, run.target, run.options)
    plan_replay(spark, options=run.options, target=target, from_time=FROM_TIME, checkpoint=run.checkpoint).run()
    spark.stop()


if __name__ == "__main__":
    main()

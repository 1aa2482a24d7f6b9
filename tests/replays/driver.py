"""A driver process that replays: `python -m tests.replays.driver JSON`; a `Run` says what the JSON holds."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.delta.driver import LOCAL_TASKS, kill_workers, start_driver


@dataclass(frozen=True)
class Run:
    """One replay in a process group of its own, which may lose its Python workers all the while."""

    options: Mapping[str, str]
    arguments: Mapping[str, Any]
    workers_die: bool = False

    def start(self, log_file: Path) -> subprocess.Popen[bytes]:
        return start_driver("tests.replays.driver", asdict(self), log_file)


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

"""The driver: it lands the topic from a gateway's locations, by the direct lane each second, by the Spark lane seldom.

`python -m tests.rigs.soak.driver JSON`; `Queries` says what the JSON holds. SIGTERM ends it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.rigs.soak.held import family
from tests.rigs.soak.produced import TOPIC
from tests.rigs.stack.processes import ServiceProcess, wait_until
from tests.rigs.stack.spark import ROOT, spark_session
from tiered_stream import land, register

TRIGGERS = {"direct": "1 second", "spark": "20 seconds"}
"""By lane. A second is too short for a segment to close: what is read from the tier, the Spark lane reads."""
HEAP = "1g"
RETAINED = "50"
"""What Spark keeps of jobs and queries that have ended is bounded, but by default full only after a long while."""
CHECKPOINTED = "30"
"""Micro-batches of which a checkpoint keeps the files."""


SECONDS_BETWEEN_FAULTS = 60.0


@dataclass(frozen=True)
class Queries:
    """Both queries, in one application. Tables and checkpoints bear the names of the lanes.

    With `fork_faults`, each minute strikes the fork server: in the first quarter of the run its folder is deleted, and
    the next query starts another server; later the server is killed. Then a batch query has to find a Python, too. Both
    quarters that are judged are later, so that they compare the same processes.
    """

    folder: str
    bootstrap_servers: str
    seconds_between_heaps: float
    seconds: float
    fork_faults: bool = False

    @property
    def temporary(self) -> Path:
        return Path(self.folder, "temporary")

    @property
    def heap_file(self) -> Path:
        """JSON: `heap` and `other`, the bytes that the JVM used after its last full collection."""
        return Path(self.folder, "heap.json")

    def table(self, lane: str) -> Path:
        return Path(self.folder, "tables", lane)

    def checkpoint(self, lane: str) -> Path:
        return Path(self.folder, "checkpoints", lane)

    def process(self) -> ServiceProcess:
        """A driver in a process of its own."""
        self.temporary.mkdir(parents=True)
        environment = [f"TMPDIR={self.temporary}", f"PYTHONPATH={ROOT}"]
        command = ["env", *environment, sys.executable, "-m", "tests.rigs.soak.driver", json.dumps(asdict(self))]
        return ServiceProcess("driver", command, Path(self.folder, "driver.log"))

    def run(self) -> None:
        """The driver itself, until SIGTERM.

        Raises:
            StreamingQueryException: a query has failed.
        """
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        spark = soak_session(self.temporary)
        options = {"kafka.bootstrap.servers": self.bootstrap_servers, "remote.log.locator": "broker"}
        queries = []
        for lane, trigger in TRIGGERS.items():
            query = land(
                spark,
                options={**options, "subscribe": TOPIC, "startingOffsets": "earliest"},
                table=str(self.table(lane)),
                checkpoint=str(self.checkpoint(lane)),
                trigger=trigger,
                lane=lane,
            )
            queries.append(query)
            # One after the other: Spark gives a planner's Python ten seconds to start, however busy the machine is.
            wait_until(partial(_has_begun, query), f"the query of the {lane} lane")
        begun, faults = time.monotonic(), 0
        while all(query.isActive for query in queries) and not ended.wait(self.seconds_between_heaps):
            self._write_heap(spark)
            passed = time.monotonic() - begun
            if self.fork_faults and passed > (faults + 1) * SECONDS_BETWEEN_FAULTS:
                faults += 1
                self._strike(kill=passed > self.seconds / 4)
                register(spark)
                # Retention removes the oldest records while they are read.
                first = {**options, "assign": json.dumps({TOPIC: [0]}), "failOnDataLoss": "false"}
                rows = spark.read.format("tiered_stream").options(**first).load().limit(100).count()
                sys.stdout.write(f"fault {faults}: a new planner gave {rows} rows\n")
                sys.stdout.flush()
        for query in queries:
            query.stop()
            if error := query.exception():
                raise error
        spark.stop()

    def _strike(self, *, kill: bool) -> None:
        """Delete the fork server's folder, or kill the server."""
        for pid, process in family(os.getpid()).items():
            words = process.arguments
            if any(word.endswith("fork_server") for word in words):
                if kill:
                    with suppress(ProcessLookupError):  # it has ended meanwhile
                        os.kill(pid, signal.SIGKILL)
                shutil.rmtree(words[words.index("-m") + 3], ignore_errors=True)

    def _write_heap(self, spark: SparkSession) -> None:
        new = self.heap_file.with_suffix(".new")
        new.write_text(json.dumps(used_by_jvm(spark)))
        os.replace(new, self.heap_file)


def soak_session(temporary: Path) -> SparkSession:
    """Start Spark with a heap that is whole from the start, and with little that fills late."""
    # All of the heap is there from the start: what else the JVM takes is seen then.
    java = f"-Xms{HEAP} -XX:+AlwaysPreTouch -Djava.io.tmpdir={temporary}"
    retained = ("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.sql.ui.retainedExecutions")
    config = {
        "spark.driver.memory": HEAP, "spark.driver.extraJavaOptions": java, "spark.local.dir": str(temporary),
        "spark.sql.streaming.minBatchesToRetain": CHECKPOINTED, **dict.fromkeys(retained, RETAINED),
    }  # fmt: skip
    return spark_session("soak", ("delta",), config)


def used_by_jvm(spark: SparkSession) -> dict[str, int]:
    """Return the bytes of heap and of other memory that the JVM uses after a full collection."""
    java = spark._jvm
    assert java is not None
    java.System.gc()
    memory = java.java.lang.management.ManagementFactory.getMemoryMXBean()
    return {"heap": memory.getHeapMemoryUsage().getUsed(), "other": memory.getNonHeapMemoryUsage().getUsed()}


def _has_begun(query: StreamingQuery) -> bool:
    return query.status["message"].startswith("Waiting") or not query.isActive


if __name__ == "__main__":
    Queries(**json.loads(sys.argv[1])).run()

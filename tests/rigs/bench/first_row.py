"""A cold start: how long after `spark-submit` a program has its first row, by ours and by Spark's own source.

Ours with its compiled decoder in the user's cache, and before it is there; and in a packed environment, unpacked on the
machine beforehand, or by executors of a cluster that have nothing yet (`--archives`).
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tests.dist.packed_environment import pack, unpack, with_python_by_path
from tests.jobs.submitted import jars
from tests.rigs.bench import first_row_job
from tests.rigs.bench.figures import Row
from tests.rigs.bench.rig import TUNED, WARM_UP, Rig
from tests.rigs.bench.turns import Claim, Contender, rows_of
from tests.rigs.stack.spark import LOCAL, SPARK_SUBMIT, spark_environment, write_conf
from tests.rigs.stack.spark_cluster import SparkCluster

KAFKA = "kafka, 16 MiB fetches"
WARM, COLD, UNPACKED, SENT = "warm caches", "cold caches", "packed, unpacked before", "packed, sent to executors"
CLAIMS = tuple(Claim("L first row", ours, KAFKA) for ours in (WARM, COLD, UNPACKED, SENT))


@dataclass(frozen=True)
class _Program:
    """One that a user submits: `environment` is asked for before each run."""

    folder: Path
    source: str
    options: Mapping[str, str]
    environment: Callable[[], Mapping[str, str]]
    spark: Mapping[str, str] = field(default_factory=dict)
    words: Sequence[str] = ()

    def first_row(self) -> float:
        """Seconds from the command on; the end of the program is not counted."""
        conf = self.folder / "first-row.conf"
        given = {**LOCAL, "spark.driver.memory": "1g", **self.spark}
        write_conf(conf, given)
        command = [str(SPARK_SUBMIT), "--properties-file", str(conf), *self.words, str(first_row_job.__file__)]
        command += [self.source, json.dumps(self.options)]
        environment = self.environment()
        began = time.perf_counter()
        with (
            (self.folder / "first-row.log").open("ab") as log,
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log) as program,
        ):
            assert program.stdout is not None
            seen = [time.perf_counter() - began for line in program.stdout if line == b"row\n"]
        assert program.returncode == 0 and len(seen) == 1, f"see {log.name}"
        return seen[0]


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """All in turns."""
    shape, folder = rig.topic(WARM_UP), rig.folder
    archive = pack(folder / "dist")
    unpacked = unpack(archive, folder / "environment")
    options, source = rig.options(shape), "tiered_stream"
    packed = {**with_python_by_path(), "PYSPARK_PYTHON": str(unpacked / "bin" / "python")}
    kafka = {**rig.kafka_options(shape), **TUNED}
    with SparkCluster(folder / "cluster", bare=True) as cluster:
        on_cluster = {"spark.master": cluster.master, "spark.executor.memory": "600m"}
        sent = ("--archives", f"{archive}#environment")
        programs = {
            WARM: _Program(folder, source, options, spark_environment),
            COLD: _Program(folder, source, options, lambda: _with_cold_caches(folder)),
            UNPACKED: _Program(folder, source, options, lambda: packed),
            SENT: _Program(folder, source, options, with_python_by_path, on_cluster, sent),
            KAFKA: _Program(folder, "kafka", kafka, spark_environment, jars("spark-kafka")),
        }
        contenders = {name: Contender(program.first_row, 1) for name, program in programs.items()}
        yield from rows_of(CLAIMS, contenders, runs)


def _with_cold_caches(folder: Path) -> dict[str, str]:
    return {**spark_environment(), "XDG_CACHE_HOME": str(folder / "caches" / str(uuid4()))}

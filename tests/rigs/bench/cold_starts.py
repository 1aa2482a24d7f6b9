"""Cold starts: how long after `spark-submit` a program has its first row, and how long a whole job takes.

A program is ours with its compiled decoder in the user's cache, and before it is there; and in a packed environment,
unpacked on the machine beforehand, or by executors of a cluster that have nothing yet (`--archives`). A job is a run
with `availableNow`, as people schedule it. Each has Spark's own source beside it.
python -m tests.rigs.bench.cold_starts TABLE CHECKPOINT OPTIONS is the latter's job: options of `kafka`, as JSON.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from tests.dist.packed_environment import pack, unpack, with_python_by_path
from tests.jobs.submitted import jars
from tests.rigs.bench import first_row_job
from tests.rigs.bench.figures import Row
from tests.rigs.bench.landing import check_landed, spark_lands
from tests.rigs.bench.rig import TUNED, WARM_UP, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of
from tests.rigs.stack.spark import DELTA, LOCAL, ROOT, SPARK_SUBMIT, spark_environment, write_conf
from tests.rigs.stack.spark_cluster import SparkCluster

KAFKA_ROW = "kafka, 16 MiB fetches"
WARM, COLD, UNPACKED, SENT = "warm caches", "cold caches", "packed, unpacked before", "packed, sent to executors"
ROW_CLAIMS = tuple(Claim("L first row", ours, KAFKA_ROW) for ours in (WARM, COLD, UNPACKED, SENT))


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


def measure_row(rig: Rig, runs: int) -> Iterator[Row]:
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
            KAFKA_ROW: _Program(folder, "kafka", kafka, spark_environment, jars("spark-kafka")),
        }
        contenders = {name: Contender(program.first_row, 1) for name, program in programs.items()}
        yield from rows_of(ROW_CLAIMS, contenders, runs)


def _with_cold_caches(folder: Path) -> dict[str, str]:
    return {**spark_environment(), "XDG_CACHE_HOME": str(folder / "caches" / str(uuid4()))}


OURS, KAFKA = "our job, cold", "a job with kafka, 16 MiB fetches, cold"
JOB_CLAIMS = {
    1_000_000: Claim("L 1 M records", OURS, KAFKA, 1.6, 2.2),
    100_000: Claim("L 100,000 records", OURS, KAFKA, 1.5, 2),
    0: Claim("L nothing new", OURS, KAFKA, 1.0, 1.3),
}
_SPARK = {**LOCAL, **DELTA, "spark.driver.memory": "1g"}

Run = Callable[[Rig, Shape, Path], None]


def measure_job(rig: Rig, runs: int) -> Iterator[Row]:
    """Into a new table each time; where nothing is new, into one that has it all."""
    for records, claim in JOB_CLAIMS.items():
        shape = rig.made(replace(rig.shapes[WARM_UP], name="L", records=records or 100_000))
        ways: dict[str, Run] = {OURS: _ours, KAFKA: _kafka}
        contenders = {
            name: _contender(partial(run, rig, shape), rig.folder / f"job-{records}-{number}", shape, new=records > 0)
            for number, (name, run) in enumerate(ways.items())
        }
        yield from rows_of([claim], contenders, runs)


def _contender(run: Callable[[Path], None], folder: Path, shape: Shape, *, new: bool) -> Contender:
    def timed() -> float:
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        begin = time.perf_counter()
        run(folder)
        seconds = time.perf_counter() - begin
        check_landed(str(folder / "table"), shape.rows)
        return seconds

    return Contender(timed, shape.rows)


def _ours(rig: Rig, shape: Shape, folder: Path) -> None:
    paths = {"ingest.table": str(folder / "table"), "ingest.checkpointLocation": str(folder / "checkpoint")}
    settings = folder / "job.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in {**rig.options(shape), **paths}.items()))
    _submit(folder, jars("delta"), str(ROOT / "jobs" / "ingest_to_delta.py"), "--settings", str(settings))


def _kafka(rig: Rig, shape: Shape, folder: Path) -> None:
    options = json.dumps({**rig.kafka_options(shape), **TUNED})
    _submit(folder, jars("delta", "spark-kafka"), __file__, str(folder / "table"), str(folder / "checkpoint"), options)


def _submit(folder: Path, with_jars: dict[str, str], *words: str) -> None:
    conf = folder / "spark.conf"
    write_conf(conf, {**_SPARK, **with_jars})
    with open(folder / "job.log", "ab") as log:
        command = [str(SPARK_SUBMIT), "--properties-file", str(conf), *words]
        subprocess.run(command, check=True, stdout=log, stderr=log, env=spark_environment())


def main() -> None:
    table, checkpoint, options = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    spark_lands(spark, json.loads(options))(table, Path(checkpoint)).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()

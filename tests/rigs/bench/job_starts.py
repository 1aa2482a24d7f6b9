"""A cold `spark-submit` of a job with `availableNow`, as people schedule it: ours, and the same by Spark's own source.

python -m tests.rigs.bench.job_starts TABLE CHECKPOINT OPTIONS is the latter: options of the `kafka` source, as JSON.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tests.jobs.submitted import jars
from tests.rigs.bench.figures import Row
from tests.rigs.bench.landing import check_landed, kafka_lands
from tests.rigs.bench.rig import TUNED, WARM_UP, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Claim, Contender, rows_of
from tests.rigs.stack.spark import DELTA, LOCAL, ROOT, SPARK_SUBMIT, spark_environment, write_conf

OURS, KAFKA = "our job, cold", "a job with kafka, 16 MiB fetches, cold"
CLAIMS = {
    1_000_000: Claim("L 1 M records", OURS, KAFKA, 1.6, 2.2),
    100_000: Claim("L 100,000 records", OURS, KAFKA, 1.5, 2),
    0: Claim("L nothing new", OURS, KAFKA, 1.0, 1.3),
}
_SPARK = {**LOCAL, **DELTA, "spark.driver.memory": "1g"}

Run = Callable[[Rig, Shape, Path], None]


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """Into a new table each time; where nothing is new, into one that has it all."""
    for records, claim in CLAIMS.items():
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
    kafka_lands(spark, json.loads(options))(table, Path(checkpoint)).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()

"""Runs of the jobs, as a user starts them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.demo.topic import TOPIC
from tests.stack.jars import jar_paths
from tests.stack.processes import run_logged
from tests.stack.spark import DELTA, LOCAL, ROOT, SHORT_LIVED, SPARK_SUBMIT, spark_environment
from tests.stack.tiered_stack import TieredStack
from tiered_stream.observe.metrics import ReadMetrics


@dataclass(frozen=True)
class Run:
    """One run of the job."""

    seconds: float
    metrics: ReadMetrics


def job_settings(source: Mapping[str, str], table: Path) -> dict[str, str]:
    """What the job reads, by `source`, and where it lands; the checkpoint is beside the table."""
    return {
        **source,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "ingest.table": str(table),
        "ingest.checkpointLocation": f"{table}-checkpoint",
    }


def write_settings(stack: TieredStack, folder: Path, table: Path) -> Path:
    """The job's settings file, as a user would write it."""
    file = folder / "ingest_to_delta.properties"
    settings = job_settings(stack.options(), table)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def submit(settings: Path, folder: Path) -> Run:
    """One run of the ingest job.

    Raises:
        StackError: it failed.
    """
    metrics_file = folder / "metrics.json"
    begin = time.perf_counter()
    spark_submit("ingest_to_delta.py", ["--settings", str(settings), "--metrics-file", str(metrics_file)], folder)
    return Run(time.perf_counter() - begin, ReadMetrics(**json.loads(metrics_file.read_text())))


def spark_submit(job: str, words: Sequence[str], folder: Path) -> None:
    """Run a job by spark-submit.

    Raises:
        StackError: it failed.
    """
    jars = ",".join(map(str, jar_paths("delta")))
    conf = {**LOCAL, **DELTA, **SHORT_LIVED, "spark.jars": jars}
    command = [str(SPARK_SUBMIT)]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command += [str(ROOT / "jobs" / job), *words]
    run_logged(f"the job {job}", command, folder / "spark.log", spark_environment())

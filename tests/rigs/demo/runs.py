"""Runs of the jobs, as a user starts them.

A reader by a gateway has no storage credential: it knows the host of the storage, which signed URLs may lead to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.gateway.running import RunningGateway
from tests.jobs.submitted import SubmittedJob
from tests.rigs.demo.topic import TOPIC
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream.delta.settings.ingest_settings import LANE
from tiered_stream.ingest import ingest_run
from tiered_stream.observe.read_metrics import ReadMetrics

WHOLE_TOPIC = {"subscribe": TOPIC, "startingOffsets": "earliest", "includeHeaders": "true"}


@dataclass(frozen=True)
class Run:
    """One run: seconds until its first micro-batch began, from there until the last one was committed, and the cost."""

    start_up: float
    seconds: float
    metrics: ReadMetrics


def timed(table: Path, begin: float, metrics: ReadMetrics) -> Run:
    """A run that was started at `begin`, in seconds since the epoch, and has ended.

    Its checkpoint tells when: Spark writes a file to `offsets` as a micro-batch begins, and to `commits` at its end.
    """
    checkpoint = checkpoint_of(table)
    began = min(time for time in _written(checkpoint / "offsets") if time >= begin)
    return Run(began - begin, max(_written(checkpoint / "commits")) - began, metrics)


def checkpoint_of(table: Path) -> Path:
    """Beside the table."""
    return table.with_name(f"{table.name}-checkpoint")


def _written(folder: Path) -> list[float]:
    """When the files of micro-batches were, whose names are numbers."""
    return [file.stat().st_mtime for file in folder.iterdir() if file.name.isdigit()]


def job_settings(source: Mapping[str, str], table: Path) -> dict[str, str]:
    """What the job reads, by `source`, and where it lands."""
    return {
        **source,
        **WHOLE_TOPIC,
        "ingest.table": str(table),
        "ingest.checkpointLocation": str(checkpoint_of(table)),
    }


def submit(settings: Mapping[str, str], folder: Path, table: Path) -> Run:
    """One run of the ingest job, as a user submits it with a settings file."""
    metrics_file = folder / "metrics.json"
    job = SubmittedJob("ingest_to_delta.py", folder / "job", settings, ["--metrics-file", str(metrics_file)])
    begin = time.time()
    with job:
        assert job.wait() == 0, job.output()
    return timed(table, begin, ReadMetrics(**json.loads(metrics_file.read_text())))


def run_here(settings: Mapping[str, str], table: Path) -> Run:
    """As `submit`, in this process's Spark."""
    begin = time.time()
    outcome = ingest_run.run(settings)
    return timed(table, begin, outcome.total())


def land_through_gateway(stack: TieredStack, folder: Path, table: Path) -> Run:
    """Start a gateway and run the job against it, with the Spark lane."""
    with RunningGateway(folder / "gateway", stack.options()) as gateway:
        return run_here(signed_only(gateway, table), table)


def signed_only(gateway: RunningGateway, table: Path) -> Mapping[str, str]:
    """The job's settings; of the storage they have the host alone."""
    broker = {
        "kafka.bootstrap.servers": gateway.bootstrap_servers,
        "remote.log.locator": "broker",
        "remote.signed.location.hosts": gateway.storage_endpoint,
    }
    return {**job_settings(broker, table), LANE: "spark"}

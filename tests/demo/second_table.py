"""The same topic by another way into another table: located by a gateway, read by signed URLs, written by Spark.

Such a reader has no storage credential, and does not even know where the storage is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from jobs import ingest_to_delta
from tests.demo.runs import Run, job_settings
from tests.gateway.running import RunningGateway
from tests.stack.tiered_stack import TieredStack


def land_through_gateway(stack: TieredStack, folder: Path, table: Path) -> Run:
    """Start a gateway and run the job against it, with the Spark lane."""
    with RunningGateway(folder / "gateway", stack.options()) as gateway:
        begin = time.perf_counter()
        outcome = ingest_to_delta.run(signed_only(gateway.bootstrap_servers, table))
        return Run(time.perf_counter() - begin, outcome.total())


def signed_only(bootstrap_servers: str, table: Path) -> Mapping[str, str]:
    """The job's settings; not a word of the storage is in them."""
    broker = {"kafka.bootstrap.servers": bootstrap_servers, "remote.log.locator": "broker"}
    return {**job_settings(broker, table), ingest_to_delta.LANE: "spark"}


def count_differences(spark: SparkSession, one: Path, other: Path) -> int:
    """Rows that one of the Delta tables has and the other has not, or less often."""
    tables = [spark.read.format("delta").load(str(path)) for path in (one, other)]
    return tables[0].exceptAll(tables[1]).count() + tables[1].exceptAll(tables[0]).count()

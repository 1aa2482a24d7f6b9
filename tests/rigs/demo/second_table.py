"""The same topic by another way into another table: located by a gateway, read by signed URLs, written by Spark.

Such a reader has no storage credential: it knows the host of the storage, which signed URLs may lead to.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.gateway.running import RunningGateway
from tests.rigs.demo.runs import Run, job_settings, run_here
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream.delta.settings.ingest_settings import LANE


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

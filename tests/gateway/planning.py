"""A cluster of many made-up segments, and a gateway before it that locates them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.gateway.made_up_cluster import BYTES, OFFSETS, TOPIC
from tests.gateway.running import RunningGateway
from tests.rigs.stack.processes import ServiceProcess, free_ports, listens
from tiered_stream.broker.client import BrokerClient
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel

SPLIT_BYTES = 128 << 20


@contextmanager
def made_up_cluster(
    partitions: int, segments: int, topics: int = 1, growing: int = 0, segment_bytes: int = BYTES
) -> Iterator[tuple[str, Path]]:
    """Its bootstrap servers, and a folder that lasts as long; see `tests.gateway.made_up_cluster`."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="made-up-") as name:
        words = map(str, (port, partitions, segments, topics, growing, segment_bytes))
        command = [sys.executable, "-m", "tests.gateway.made_up_cluster", *words]
        cluster = ServiceProcess("made-up cluster", command, Path(name) / "cluster.log")
        cluster.start(lambda: listens(port))
        try:
            yield f"127.0.0.1:{port}", Path(name)
        finally:
            cluster.stop()


@contextmanager
def made_up_gateway(
    partitions: int, segments: int, given: Mapping[str, str] | None = None, segment_bytes: int = BYTES
) -> Iterator[RunningGateway]:
    """A gateway before a cluster with so many partitions and, in each, so many segments; `given` are settings of it."""
    with made_up_cluster(partitions, segments, segment_bytes=segment_bytes) as (servers, folder):
        storage = {"remote.storage.uri": folder.as_uri(), "gateway.signed.location.lifetime.seconds": "0"}
        settings = {"kafka.bootstrap.servers": servers, **storage, **(given or {})}
        with RunningGateway(folder / "gateway", settings) as gateway:
            yield gateway


def locate_all(gateway: RunningGateway, partitions: int, segments: int, times: int = 3) -> list[int]:
    """How many segments each of several `locate`s of everything by one locator named."""
    with BrokerClient({"bootstrap.servers": gateway.bootstrap_servers}) as client:
        locator = BrokerLocator(client, IsolationLevel.READ_COMMITTED, part_bytes=SPLIT_BYTES)
        wanted = {TopicPartition(TOPIC, number): OffsetRange(0, segments * OFFSETS) for number in range(partitions)}
        return [sum(map(len, locator.locate(wanted).values())) for _ in range(times)]

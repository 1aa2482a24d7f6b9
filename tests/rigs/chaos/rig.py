"""What faults strike: broker, S3 endpoint and gateway, each behind a proxy, and drivers that land topics."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Self

from tests.archives import archive_options, consumed
from tests.gateway.running import RunningGateway
from tests.golden import golden
from tests.rigs.chaos.checking import Place, Truth, truth
from tests.rigs.chaos.driver import Driver
from tests.rigs.chaos.proxy import FaultProxy, HttpProxy
from tests.rigs.chaos.small_disk import SmallDisk
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.processes import LONG, wait_until
from tests.rigs.stack.spark_cluster import SparkCluster
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.transactions import TransactionalProducer

PROXIED = "PROXIED"
"""The broker's listener for readers."""
QUICK_FAILOVER = {"broker.session.timeout.ms": "5000", "broker.heartbeat.interval.ms": "1000"}
QUICK_GATEWAY = {"kafka.fetch.remote.read.timeout.ms": "1500", "remote.fetch.request.timeout.ms": "3000"}
"""It has given a storage up before its clients, who wait for 4 s, give it up."""
LOCAL = {"spark.master": "local[2,3]"}
"""A task may fail twice before its stage does."""
WITHOUT_RETRIES = {"spark.master": "local[2]"}
"""The first task that fails ends the query."""
READ_TIMEOUT_MS = 1500
"""The storage's, of a query that passing faults strike."""
REQUEST_TIMEOUT_MS = 10_000
"""The same, for a request in all."""
ARCHIVE_BUCKET, ARCHIVED_OFFSETS = "archive", 400
"""The bucket of archives, and what a micro-batch reads of one."""
ON_CLUSTER = {"spark.executor.memory": "600m", "spark.executor.cores": "1"}


@dataclass
class Query:
    """One query that lands a topic in a table of its own, however often it is started."""

    topic: str
    lane: str
    isolation: str
    locator: str
    fallback: str
    commit: str
    on_cluster: bool
    fail_on_data_loss: bool
    read_timeout_ms: int
    """The storage's."""
    table: Path
    checkpoint: Path
    on_small_disk: bool
    """The checkpoint."""
    expected: Truth = field(default_factory=dict, repr=False)
    gone: set[Place] = field(default_factory=set, repr=False)
    """Records that the topic has no more."""
    grows: bool = False
    """Whether the topic has more than the present run could see."""
    said: str = field(default="", repr=False)
    """What drivers have logged while they ran it."""
    archive: str = ""
    """The golden set that it reads, without brokers."""

    def shown(self) -> str:
        where = "cluster" if self.on_cluster else "local"
        loss = "fail on loss" if self.fail_on_data_loss else "go on after loss"
        said = (self.lane, self.isolation, self.locator, f"fallback {self.fallback}", f"commit {self.commit}")
        return ", ".join((*said, where, loss))

    def commits(self) -> int:
        """Micro-batches that are in the checkpoint."""
        return len(list((self.checkpoint / "commits").glob("[0-9]*")))


class Rig:
    """A context manager: everything runs inside it, drivers from when they are first asked for.

    Args:
        local: settings of the driver without a cluster.
    """

    def __init__(self, folder: Path, local: Mapping[str, str] = LOCAL) -> None:
        self.folder = folder
        self._local = local
        self.storage, self.brokers = HttpProxy(), FaultProxy()
        self.stack = TieredStack(
            folder / "stack", listeners={PROXIED: "PLAINTEXT"}, advertised={PROXIED: self.brokers.address},
            properties=QUICK_FAILOVER,
        )  # fmt: skip
        self.second_broker = KafkaBroker(
            folder / "second-broker", self.stack.tier_dir.parent, listeners={PROXIED: "PLAINTEXT"},
            joins=self.stack.broker, properties=QUICK_FAILOVER, jvm_options=("-Xmx300m",),
        )  # fmt: skip
        self.storage.upstream = self.stack.s3proxy.port
        self.brokers.upstream = int(self.stack.broker.address(PROXIED).rpartition(":")[2])
        self.gateway = RunningGateway(folder / "gateway", {**self.options(), **QUICK_GATEWAY})
        self.small_disk = SmallDisk(folder / "small-disk")
        self.chance = Random()
        self.driver: Driver
        self._log_begin = 0
        self._drivers: dict[bool, Driver] = {}
        self._cluster: SparkCluster | None = None
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as closing:
            closing.enter_context(self.small_disk)
            closing.callback(self.storage.close)
            closing.callback(self.brokers.close)
            closing.enter_context(self.stack)
            closing.enter_context(self.gateway)
            # Only now, when the first broker has all partitions of Kafka's own topics, whatever becomes of the second.
            TransactionalProducer(self.stack.broker, "first").close()
            closing.enter_context(self.second_broker)
            closing.callback(self._kill_drivers)
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def options(self) -> dict[str, str]:
        """Those of the stack, by way of the proxies."""
        return {
            **self.stack.options(),
            "kafka.bootstrap.servers": self.brokers.address,
            "remote.storage.s3.endpoint.url": self.storage.url,
        }

    def options_of(self, query: Query) -> dict[str, str]:
        """What the query is started with."""
        return {
            **(self._archive_options(query) if query.archive else self._live_options(query)),
            "kafka.isolation.level": query.isolation,
            "failOnDataLoss": str(query.fail_on_data_loss).lower(),
            "kafka.fetch.remote.read.timeout.ms": str(query.read_timeout_ms),
            "remote.fetch.request.timeout.ms": str(max(REQUEST_TIMEOUT_MS, query.read_timeout_ms)),
            "ingest.commit": query.commit,
        }

    def _live_options(self, query: Query) -> dict[str, str]:
        through_gateway = {
            "kafka.bootstrap.servers": self.gateway.bootstrap_servers,
            "remote.signed.location.hosts": self.storage.url,
        }
        return {
            **(through_gateway if query.locator == "broker" else self.options()),
            "subscribe": query.topic,
            "startingOffsets": "earliest",
            "remote.log.locator": query.locator,
            "remote.fallback": query.fallback,
            "maxOffsetsPerTrigger": "40",
            "kafka.request.timeout.ms": "4000",
        }

    def _archive_options(self, query: Query) -> dict[str, str]:
        bucket = self.stack.tier_dir.parent / ARCHIVE_BUCKET / query.archive
        if not bucket.exists():
            shutil.copytree(golden(query.archive).bucket, bucket)
        proxied = {**self.stack.s3proxy.options(), "remote.storage.s3.endpoint.url": self.storage.url}
        return archive_options(
            query.archive,
            {"subscribe": query.topic, "maxOffsetsPerTrigger": str(ARCHIVED_OFFSETS), "remote.split.bytes": "100k"},
            {**proxied, "remote.storage.uri": f"s3://{ARCHIVE_BUCKET}/{query.archive}"},
        )

    def start(self, query: Query) -> None:
        """Let the query's driver, which is made where there is none, start it."""
        driver = self._drivers.get(query.on_cluster)
        if driver is None or not driver.running:
            driver = self._drivers[query.on_cluster] = self._new_driver(query.on_cluster)
        self.driver, self._log_begin = driver, driver.log_file.stat().st_size
        driver.land(
            options=self.options_of(query), table=str(query.table), checkpoint=str(query.checkpoint), lane=query.lane
        )

    def wait(self, condition: Callable[[], bool], what: str) -> bool:
        """Wait until it holds, or the query has ended; whether it holds."""
        wait_until(lambda: condition() or self.driver.answered, what, LONG, pause=0.02)
        return condition()

    def answer(self, query: Query) -> str:
        """How the query ended, see `Driver.answer`; no effect waits in a proxy any more."""
        error = self.driver.answer()
        self.storage.disarm()
        self.brokers.disarm()
        with self.driver.log_file.open("rb") as log:
            log.seek(self._log_begin)
            query.said += log.read().decode(errors="replace")
        return error

    def truth(self, query: Query) -> Truth:
        """What a consumer has of the topic now, or had of it when it was archived."""
        if query.archive:
            archived = consumed(query.archive, query.isolation)
            return truth(row for partition, rows in archived.items() if partition.topic == query.topic for row in rows)
        return truth(read_topic(self.stack.broker, query.topic, query.isolation))

    def _kill_drivers(self) -> None:
        for driver in self._drivers.values():
            driver.kill()

    def _new_driver(self, on_cluster: bool) -> Driver:
        settings: Mapping[str, Any] = self._local
        if on_cluster:
            if self._cluster is None:
                self._cluster = self._closing.enter_context(SparkCluster(self.folder / "cluster"))
            settings = {**ON_CLUSTER, "spark.master": self._cluster.master}
        return Driver(self.folder / f"driver-{'cluster' if on_cluster else 'local'}.log", settings)

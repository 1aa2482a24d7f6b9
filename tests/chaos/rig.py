"""What faults strike: broker, S3 endpoint and gateway, each behind a proxy, and drivers that land topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from tests.chaos.checking import Place, Truth, truth
from tests.chaos.driver import Driver
from tests.chaos.proxy import FaultProxy, HttpProxy
from tests.chaos.small_disk import SmallDisk
from tests.gateway.running import RunningGateway
from tests.stack.broker import KafkaBroker
from tests.stack.consume import read_topic
from tests.stack.processes import LONG, wait_until
from tests.stack.spark_cluster import SparkCluster
from tests.stack.tiered_stack import TieredStack
from tests.stack.transactions import TransactionalProducer

PROXIED = "PROXIED"
"""The broker's listener for readers."""
QUICK_FAILOVER = {"broker.session.timeout.ms": "5000", "broker.heartbeat.interval.ms": "1000"}
LOCAL = {"spark.master": "local[2,3]"}
"""A task may fail twice before its stage does."""
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

    def shown(self) -> str:
        where = "cluster" if self.on_cluster else "local"
        loss = "fail on loss" if self.fail_on_data_loss else "go on after loss"
        said = (self.lane, self.isolation, self.locator, f"fallback {self.fallback}", f"commit {self.commit}")
        return ", ".join((*said, where, loss))

    def commits(self) -> int:
        """Micro-batches that are in the checkpoint."""
        return len(list((self.checkpoint / "commits").glob("[0-9]*")))


class Rig:
    """A context manager: everything runs inside it, drivers from when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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
        self.gateway = RunningGateway(folder / "gateway", self.options())
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
            closing.callback(self.second_broker.stop)
            self.second_broker.start()
            closing.callback(self._kill_drivers)
            self._closing = closing.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        direct = self.options()
        through_gateway = {
            "kafka.bootstrap.servers": self.gateway.bootstrap_servers,
            "remote.signed.location.hosts": self.storage.url,
        }
        return {
            **(through_gateway if query.locator == "broker" else direct),
            "subscribe": query.topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": query.isolation,
            "failOnDataLoss": str(query.fail_on_data_loss).lower(),
            "remote.log.locator": query.locator,
            "remote.fallback": query.fallback,
            "maxOffsetsPerTrigger": "40",
            "kafka.fetch.remote.read.timeout.ms": str(query.read_timeout_ms),
            "kafka.request.timeout.ms": "4000",
            "ingest.commit": query.commit,
        }

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
        """What a consumer has of the topic now."""
        return truth(read_topic(self.stack.broker, query.topic, query.isolation))

    @property
    def cluster_folder(self) -> Path:
        return self.folder / "cluster"

    def _kill_drivers(self) -> None:
        for driver in self._drivers.values():
            driver.kill()

    def _new_driver(self, on_cluster: bool) -> Driver:
        settings: Mapping[str, Any] = LOCAL
        if on_cluster:
            if self._cluster is None:
                self._cluster = self._closing.enter_context(SparkCluster(self.cluster_folder))
            settings = {**ON_CLUSTER, "spark.master": self._cluster.master}
        return Driver(self.folder / f"driver-{'cluster' if on_cluster else 'local'}.log", settings)

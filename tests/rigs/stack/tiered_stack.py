"""Brokers and S3 endpoint over one folder: what a user of tiered storage has, on one machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.rigs.stack.broker import JVM_OPTIONS, KafkaBroker
from tests.rigs.stack.jars import jar_paths
from tests.rigs.stack.java import SHORT_LIVED_JVM
from tests.rigs.stack.processes import Started
from tests.rigs.stack.s3proxy import S3Proxy

BUCKET = "kafka-tiered-storage"
"""The name that Kafka's `LocalTieredStorage` gives to its folder."""


REPLICATED_TOPICS = (
    "offsets.topic",
    "transaction.state.log",
    "share.coordinator.state.topic",
    "rlmm.config.remote.log.metadata.topic",
)
"""Kafka's own, which are on every broker, so that each may be stopped."""


class TieredStack(Started):
    """A context manager: all services run inside it.

    Args:
        folder: for their data and logs, which stay; without it all is gone in the end.
        brokers: how many there are, in one cluster; the first is also its controller.
        listeners, properties, jvm_options, jars: as for `KafkaBroker`.
        s3_jvm_options: as for `S3Proxy`.
        advertised: as for `KafkaBroker`, of the first.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        brokers: int = 1,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        jvm_options: tuple[str, ...] = JVM_OPTIONS,
        s3_jvm_options: Sequence[str] = SHORT_LIVED_JVM,
        jars: str = "kafka",
    ) -> None:
        self._keeps = folder is not None
        self._jars = jars
        self.folder = folder or Path(tempfile.mkdtemp(prefix="tiered-stack-"))
        storage = self.folder / "storage"
        self.bucket = BUCKET
        self.tier_dir = storage / BUCKET
        copies = {f"{topic}.replication.factor": str(brokers) for topic in REPLICATED_TOPICS}
        self.brokers: list[KafkaBroker] = []
        for number in range(1, brokers + 1):
            self.brokers.append(
                KafkaBroker(
                    self.folder / ("broker" if number == 1 else f"broker-{number}"),
                    storage,
                    listeners=listeners,
                    advertised=advertised if number == 1 else None,
                    properties={**copies, **(properties or {})},
                    jvm_options=jvm_options,
                    jars=jars,
                    joins=self.brokers[-1] if self.brokers else None,
                )
            )
        self.broker = self.brokers[0]
        self.s3proxy = S3Proxy(self.folder / "s3proxy", storage, jvm_options=s3_jvm_options)
        self.bootstrap_servers = ",".join(broker.bootstrap_servers for broker in self.brokers)
        self.logs_dir = self.broker.logs_dir
        self.s3_endpoint = self.s3proxy.endpoint
        self.access_key = self.s3proxy.access_key
        self.secret_key = self.s3proxy.secret_key

    def start(self) -> None:
        """Start the S3 endpoint and the brokers."""
        jar_paths(self._jars, "s3")  # all downloads in one go
        self.tier_dir.mkdir(parents=True, exist_ok=True)
        self.s3proxy.start()
        for broker in self.brokers:
            broker.start()

    def stop(self) -> None:
        """Stop them; the controller last, without which a broker does not shut down in order."""
        for broker in reversed(self.brokers):
            broker.stop()
        self.s3proxy.stop()
        if not self._keeps:
            shutil.rmtree(self.folder, ignore_errors=True)

    def options(self) -> dict[str, str]:
        """The options with which `tiered_stream` reads from this stack, but for the subscription."""
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "remote.storage.uri": f"s3://{self.bucket}",
            "remote.storage.layout": "local",
            **self.s3proxy.options(),
        }

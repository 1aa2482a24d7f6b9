"""Broker and S3 endpoint over one folder: what a user of tiered storage has, on one machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.stack.broker import JVM_OPTIONS, KafkaBroker
from tests.stack.jars import jar_paths
from tests.stack.s3_client import REGION
from tests.stack.s3proxy import S3Proxy

BUCKET = "kafka-tiered-storage"
"""The name that Kafka's `LocalTieredStorage` gives to its folder."""


class TieredStack:
    """A context manager: both services run inside it.

    Args:
        folder: for their data and logs, which stay; without it all is gone in the end.
        listeners, properties, jvm_options: as for `KafkaBroker`.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        jvm_options: tuple[str, ...] = JVM_OPTIONS,
    ) -> None:
        self._keeps = folder is not None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="tiered-stack-"))
        storage = self.folder / "storage"
        self.bucket = BUCKET
        self.tier_dir = storage / BUCKET
        self.broker = KafkaBroker(
            self.folder / "broker", storage, listeners=listeners, properties=properties, jvm_options=jvm_options
        )
        self.s3proxy = S3Proxy(self.folder / "s3proxy", storage)
        self.bootstrap_servers = self.broker.bootstrap_servers
        self.logs_dir = self.broker.logs_dir
        self.s3_endpoint = self.s3proxy.endpoint
        self.access_key = self.s3proxy.access_key
        self.secret_key = self.s3proxy.secret_key

    def start(self) -> None:
        """Start both; when one fails, neither is left running."""
        try:
            jar_paths("kafka", "s3")  # all downloads in one go
            self.tier_dir.mkdir(parents=True)
            self.s3proxy.start()
            self.broker.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop both."""
        self.broker.stop()
        self.s3proxy.stop()
        if not self._keeps:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def options(self) -> dict[str, str]:
        """The options with which `tiered_stream` reads from this stack, but for the subscription."""
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "remote.storage.uri": f"s3://{self.bucket}",
            "remote.storage.layout": "local",
            "remote.storage.s3.endpoint.url": self.s3_endpoint,
            "remote.storage.s3.region": REGION,
            "remote.storage.s3.path.style.access.enabled": "true",
            "remote.storage.aws.access.key.id": self.access_key,
            "remote.storage.aws.secret.access.key": self.secret_key,
        }

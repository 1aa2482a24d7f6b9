"""A Kafka broker in KRaft mode whose remote storage is a folder (Kafka's own `LocalTieredStorage`)."""

from __future__ import annotations

import base64
import socket
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from string import Template

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from tests.rigs.stack.errors import StackError
from tests.rigs.stack.jars import CONF, jar_paths
from tests.rigs.stack.java import SHORT_LIVED_JVM, java_command
from tests.rigs.stack.processes import Service, free_ports

_JVM_OPTIONS = (
    "-Xmx700m", "-Djava.awt.headless=true",
    # Else each of its threads keeps memory as large as the largest record that it has written: some of 100 MB end it.
    f"-Djdk.nio.maxCachedBufferSize={32 << 20}",
)  # fmt: skip
JVM_OPTIONS = (*_JVM_OPTIONS, *SHORT_LIVED_JVM)
"""A broker takes half the CPU to start, and while it is idle, with them."""
MEASURED_JVM_OPTIONS = (*_JVM_OPTIONS, "-XX:+UseG1GC")
"""As brokers run in production, for what measures them."""
CONTROLLER_NODE = 1


class KafkaBroker(Service):
    """A broker that keeps its data and its ports over `stop`, `kill` and `start`.

    Args:
        folder: holds its configuration, log and, under `logs`, the partitions.
        tier_dir: the folder that it tiers into.
        listeners: more listeners by name with their security protocol, such as `{"SASL": "SASL_PLAINTEXT"}`;
            `address(name)` returns its address. The plain one, `PLAINTEXT`, is always there.
        ports: ports by listener; the other listeners have free ports.
        advertised: by listener, the address that clients get in place of its own, such as a proxy's.
        properties: more broker properties; they override `conf/stack/broker.properties`.
        jars: the release, as the group of its jars in `jars.tsv`.
        joins: another broker, whose cluster this one is to be in; without it, it is the controller of a cluster of its
            own. Brokers of a cluster share the folder that they tier into.
    """

    grace = 30.0

    def __init__(
        self,
        folder: Path,
        tier_dir: Path,
        *,
        listeners: Mapping[str, str] | None = None,
        ports: Mapping[str, int] | None = None,
        advertised: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        jvm_options: tuple[str, ...] = JVM_OPTIONS,
        jars: str = "kafka",
        joins: KafkaBroker | None = None,
    ) -> None:
        self.folder = folder
        self.tier_dir = tier_dir
        self.logs_dir = folder / "logs"
        self._protocols = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self._advertised = dict(advertised or {})
        self._properties = dict(properties or {})
        self._jvm_options = jvm_options
        self._jars = jars
        controller, *free = free_ports(1 + len(self._protocols))
        self._ports = {**dict(zip(self._protocols, free, strict=True)), **(ports or {})}
        self.node_id: int = joins.node_id + 1 if joins else CONTROLLER_NODE
        self._controller_port: int = joins._controller_port if joins else controller
        self._cluster_id: str = joins._cluster_id if joins else _new_cluster_id()

    @property
    def bootstrap_servers(self) -> str:
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """`host:port` of a listener."""
        return f"127.0.0.1:{self._ports[listener]}"

    def admin(self) -> KafkaAdminClient:
        """A new admin client, to be closed by the caller."""
        return KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)

    def start(self) -> None:
        """Start it, format its storage the first time, and wait for its response to a Metadata request."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_properties()
        if not (self.logs_dir / "meta.properties").exists():
            self._format()
        command = self._command("kafka.Kafka", str(self._file), jvm_options=self._jvm_options)
        self._serve("Kafka broker", command, self.folder / "broker.log", self._answers)

    @property
    def _file(self) -> Path:
        return self.folder / "broker.properties"

    def _write_properties(self) -> None:
        template = Template((CONF / "broker.properties").read_text())
        own = {name: self.address(name) for name in self._protocols}
        controls = self.node_id == CONTROLLER_NODE
        controller = {"CONTROLLER": f"127.0.0.1:{self._controller_port}"} if controls else {}
        protocols = {"CONTROLLER": "PLAINTEXT", **self._protocols}
        text = template.substitute(
            roles="broker,controller" if controls else "broker",
            node_id=self.node_id,
            controller_port=self._controller_port,
            listeners=_listed({**own, **controller}),
            advertised_listeners=_listed({**own, **self._advertised}),
            protocol_map=",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            logs_dir=self.logs_dir,
            tier_dir=self.tier_dir,
        )
        more = "".join(f"{name}={value}\n" for name, value in self._properties.items())  # the last of two lines holds
        self._file.write_text(text + more)

    def _format(self) -> None:
        arguments = ("format", f"--cluster-id={self._cluster_id}", "-c", str(self._file))
        command = self._command("kafka.tools.StorageTool", *arguments, jvm_options=SHORT_LIVED_JVM)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackError(f"the broker's storage could not be formatted: {(done.stdout + done.stderr)[-2000:]}")

    def _command(self, main_class: str, *arguments: str, jvm_options: tuple[str, ...] = ()) -> list[str]:
        return java_command(main_class, [CONF, *jar_paths(self._jars)], arguments, jvm_options)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._ports["PLAINTEXT"])).close()
            with self.admin() as admin:
                return self.node_id in (each["broker_id"] for each in admin.describe_cluster()["brokers"])
        except (KafkaError, OSError):
            return False


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _listed(addresses: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())

"""HDFS: a name node and data nodes of Hadoop's own `MiniDFSCluster`, all in one JVM.

Hadoop's class is driven from here by Py4J, so that a test can stop and start single nodes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway

from tests.rigs.stack.jars import CONF, jar_paths
from tests.rigs.stack.java import SHORT_LIVED_JVM, java_command
from tests.rigs.stack.processes import Service, Started, free_ports, listens

BLOCK_BYTES = 1 << 20
"""Size of a block in bytes: small, so that files of tests have many."""
_SETTINGS = {
    "dfs.blocksize": str(BLOCK_BYTES),
    "dfs.namenode.fs-limits.min-block-size": "1024",
    "dfs.permissions.superusergroup": "supergroup",
    "dfs.replication": "1",
    # a file is complete when the name node has heard of its last block: Hadoop's client asks again soon
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
    "dfs.namenode.redundancy.interval.seconds": "1",
    # nothing of a test survives its machine, so that nothing waits for a disk
    "dfs.namenode.edits.noeditlogchannelflush": "true",
}

_CLUSTER = "tests.cluster"
"""System property of the JVM that holds the cluster, so that each process with a connection finds it."""


class HadoopJvm(Service):
    """One JVM with Hadoop's test clusters on its class path, whose objects are `jvm.org.apache.hadoop…`."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self.folder = folder
        self._options = options
        self._port = 0
        self._gateway: Any = None

    def __getstate__(self) -> dict[str, object]:
        """Describe it to another process, which makes a connection of its own."""
        return {**self.__dict__, "_gateway": None}

    @property
    def jvm(self) -> Any:
        """Java's packages, as Py4J shows them."""
        if self._gateway is None:
            self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=self._port, auto_convert=True))
        return self._gateway.jvm

    def start(self) -> None:
        """Start it and wait until Py4J is reached."""
        # Parts of Hadoop read the client's settings from the class path, as YARN's localizer does.
        conf_dir = self.folder / "conf"
        conf_dir.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)
        py4j = sorted(Path(pyspark.__file__).parent.glob("jars/py4j-*.jar"))
        options = ["-Xmx512m", f"-Djava.io.tmpdir={self.folder}", f"-Dtest.build.data={self.folder}/data"]
        options += self._options
        class_path = [CONF, conf_dir, *jar_paths("hadoop"), *py4j]
        command = java_command("py4j.GatewayServer", class_path, [str(self._port)], options)
        # `MiniYARNCluster` writes into the folder `target` of the folder that it runs in.
        in_folder = ["env", "-C", str(self.folder), *command]
        self._serve("Hadoop", in_folder, self.folder / "hadoop.log", lambda: listens(self._port))

    def stop(self) -> None:
        if self._gateway is not None:
            self._gateway.close()
        self.kill()  # its clusters are thrown away


class Hdfs(Started):
    """One file system, whose files, log and client settings (`conf`) are in `folder`.

    Args:
        settings: more properties of Hadoop's, for the nodes and for `conf`.
        jvm_options: options of the JVM.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        data_nodes: int = 1,
        jvm_options: Sequence[str] = SHORT_LIVED_JVM,
    ) -> None:
        self.folder = folder
        self.java = HadoopJvm(folder, options=jvm_options)
        self._settings = _SETTINGS | dict(settings or {})
        self._data_nodes = data_nodes
        self._data = folder / "data"
        self.uri = ""
        """Root of the file system, such as `hdfs://localhost:20042`."""

    @property
    def conf_dir(self) -> Path:
        """Folder for `HADOOP_CONF_DIR`, with `core-site.xml` and `hdfs-site.xml`."""
        return self.folder / "conf"

    @property
    def cluster(self) -> Any:
        """Hadoop's `MiniDFSCluster`, as Py4J shows it."""
        return self.java.jvm.System.getProperties().get(_CLUSTER)

    def start(self) -> None:
        """Start the nodes, wait until they serve, and write `conf_dir`."""
        self.java.start()
        if " " in str(self.folder):
            # A data node's folder becomes part of a format, in which the blank is `%20`.
            self._data = Path(tempfile.mkdtemp(prefix="hdfs-", dir="/tmp"))
        conf = self.java.jvm.org.apache.hadoop.hdfs.HdfsConfiguration()
        for name, value in self._settings.items():
            conf.set(name, value)
        self.java.jvm.org.apache.hadoop.security.UserGroupInformation.setConfiguration(conf)
        base = self.java.jvm.java.io.File(str(self._data))
        builder = self.java.jvm.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(conf, base)
        cluster = builder.numDataNodes(self._data_nodes).build()
        cluster.waitActive()
        self.java.jvm.System.getProperties().put(_CLUSTER, cluster)
        self.uri = str(cluster.getURI().toString())
        write_site(self.conf_dir / "core-site.xml", {"fs.defaultFS": self.uri, **self._named("hadoop.")})
        write_site(self.conf_dir / "hdfs-site.xml", self._named("dfs."))

    def _named(self, prefix: str) -> dict[str, str]:
        return {name: value for name, value in self._settings.items() if name.startswith(prefix)}

    def stop(self) -> None:
        self.java.stop()
        shutil.rmtree(self._data, ignore_errors=True)


def write_site(file: Path, settings: Mapping[str, str]) -> None:
    """Write one of Hadoop's files of settings."""
    file.parent.mkdir(parents=True, exist_ok=True)
    properties = "".join(
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    file.write_text(f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n')

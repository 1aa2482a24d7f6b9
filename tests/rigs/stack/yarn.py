"""YARN: a resource manager and a node manager of Hadoop's own `MiniYARNCluster`, all in one JVM.

Containers are processes of this machine. They share the JVM of `hdfs` if the cluster has one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rigs.stack.hdfs import HadoopJvm, Hdfs, write_site
from tests.rigs.stack.java import java_executable
from tests.rigs.stack.processes import Started, wait_until

_SETTINGS = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.scheduler.maximum-allocation-mb": "8192",
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "8192",
    "yarn.nodemanager.resource.cpu-vcores": "16",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.delete.debug-delay-sec": "3600",  # so that a test can look at the containers' logs
    "yarn.nodemanager.env-whitelist": "JAVA_HOME,PATH,KRB5_CONFIG",
}
_CLIENT_NAMES = (
    "yarn.resourcemanager.address", "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.resource-tracker.address", "yarn.resourcemanager.admin.address",
    "yarn.resourcemanager.webapp.address",
)  # fmt: skip
_CONTAINER_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.containermanager.ContainerManagerImpl"
_EXCEEDED_MEMORY = -104
"""Exit status of a container that its node manager kills for its memory (`ContainerExitStatus`)."""


class Yarn(Started):
    """One cluster, whose logs and client settings (`conf_dir`) are in `folder`.

    Args:
        hdfs: the file system for staged files; it must be running. Without it, they are in `folder`.
        settings: more properties of YARN's.
    """

    def __init__(self, folder: Path, hdfs: Hdfs | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._hdfs = hdfs
        self._own = None if hdfs else HadoopJvm(folder)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._cluster: Any = None

    @property
    def java(self) -> HadoopJvm:
        return self._hdfs.java if self._hdfs else self._own  # type: ignore[return-value]

    @property
    def conf_dir(self) -> Path:
        """Folder for `HADOOP_CONF_DIR`."""
        return self.folder / "conf"

    def start(self) -> None:
        """Start the resource manager and the node manager, wait until they serve, and write `conf_dir`."""
        if self._own:
            self._own.start()
        jvm = self.java.jvm
        base = self._hdfs.cluster.getConfiguration(0) if self._hdfs else jvm.org.apache.hadoop.conf.Configuration()
        conf = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration(base)
        for name, value in self._settings.items():
            conf.set(name, value)
        self._cluster = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("yarn", 1, 1, 1)
        self._cluster.init(conf)
        self._cluster.start()
        assert self._cluster.waitForNodeManagersToConnect(60_000)
        started = self._cluster.getConfig()
        own = {name: started.get(name) for name in _CLIENT_NAMES}
        write_site(self.conf_dir / "yarn-site.xml", {**self._settings, **own})
        if self._hdfs:
            shutil.copytree(self._hdfs.conf_dir, self.conf_dir, dirs_exist_ok=True)
        else:
            write_site(self.conf_dir / "core-site.xml", {"fs.defaultFS": "file:///"})

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
        if self._own:
            self._own.stop()

    def environment(self) -> dict[str, str]:
        """Variables of a `spark-submit` that submits to this cluster."""
        home = Path(os.path.realpath(java_executable())).parents[1]
        return {"HADOOP_CONF_DIR": str(self.conf_dir), "YARN_CONF_DIR": str(self.conf_dir), "JAVA_HOME": str(home)}

    def containers(self) -> list[Any]:
        """Return the containers that run now, as Py4J shows Hadoop's `Container`, oldest first."""
        found = [each for each in self._node_manager.getContainers().values() if each.isRunning()]
        return sorted(found, key=lambda each: str(each.getContainerId().toString()))

    @property
    def _node_manager(self) -> Any:
        """Context of the node manager."""
        return self._cluster.getNodeManager(0).getNMContext()

    def executors(self) -> list[Any]:
        """Return the containers that are no application master (whose container has the number 1)."""
        return [each for each in self.containers() if each.getContainerId().getContainerId() & 0xFFFFFFFFFF != 1]

    def kill(self, container: Any) -> None:
        """Let its node manager kill a container, as one that takes too much memory, and wait for its end."""
        jvm = self.java.jvm
        identifier = container.getContainerId()
        package = jvm.org.apache.hadoop.yarn.server.nodemanager.containermanager
        event = package.container.ContainerKillEvent(identifier, _EXCEEDED_MEMORY, "killed by the test")
        # The manager's own dispatcher has no getter, and the node manager's dispatcher does not know the event.
        field = jvm.java.lang.Class.forName(_CONTAINER_MANAGER).getDeclaredField("dispatcher")
        field.setAccessible(True)
        field.get(self._node_manager.getContainerManager()).getEventHandler().handle(event)
        wait_until(lambda: not container.isRunning(), f"{identifier.toString()} to end")

    def end_applications(self) -> None:
        """End every application, as `yarn application -kill` does, and wait until no container runs."""
        package = self.java.jvm.org.apache.hadoop.yarn.server.resourcemanager.rmapp
        context = self._cluster.getResourceManager(0).getRMContext()
        for identifier in context.getRMApps().keySet():
            event = package.RMAppEvent(identifier, package.RMAppEventType.KILL, "ended by the test")
            context.getDispatcher().getEventHandler().handle(event)
        wait_until(lambda: not self.containers(), "the containers to end")

    def logs(self) -> list[Path]:
        """Return the files into which containers have written standard output and standard error."""
        return sorted(path for name in ("stdout", "stderr") for path in self.java.folder.rglob(f"container_*/{name}"))

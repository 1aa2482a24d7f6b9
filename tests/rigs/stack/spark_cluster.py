"""A standalone Spark cluster of real processes: a master, and two workers that Spark takes for two hosts."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pyspark

from tests.rigs.stack.java import java_command
from tests.rigs.stack.processes import ServiceProcess, Started, free_ports
from tests.rigs.stack.spark import ROOT

HOSTS = ("127.0.0.2", "127.0.0.3")
_JARS = Path(pyspark.__file__).parent / "jars" / "*"
BARE_PATH = "/usr/bin:/bin"
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")


class SparkCluster(Started):
    """A context manager; each worker has one core and 1 GiB for executors.

    Args:
        bare: the workers' own Python, if any, does not have this package, and no variable names another Python.
    """

    def __init__(self, folder: Path, *, bare: bool = False) -> None:
        self._folder = folder
        self._environment = _bare_environment() if bare else _environment()
        port, self._ui_port, *ports = free_ports(2 + 2 * len(HOSTS))
        self.master = f"spark://127.0.0.1:{port}"
        own = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(self._ui_port)]
        self._processes = [self._service("Master", own)]
        for number, host in enumerate(HOSTS):
            at = ["--host", host, "--port", str(ports[2 * number]), "--webui-port", str(ports[2 * number + 1])]
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            self._processes.append(self._service("Worker", [*at, *size, self.master]))

    def _service(self, role: str, arguments: Sequence[str]) -> ServiceProcess:
        command = java_command(f"org.apache.spark.deploy.{role.lower()}.{role}", [_JARS], arguments, _JVM)
        return ServiceProcess(
            f"Spark {role.lower()}", ["env", *self._environment, *command], self._folder / f"{role}.log"
        )

    def start(self) -> None:
        """Start the master and the workers, and wait until the master knows them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for number, process in enumerate(self._processes):
            process.start(lambda: self._workers() >= number)  # noqa: B023 - it is asked before the next turn

    def stop(self) -> None:
        """End the workers, with their executors, and the master."""
        for process in reversed(self._processes):
            process.stop(grace=10)

    def _workers(self) -> int:
        """Return the number of workers that the master knows, or -1 if it does not respond yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ui_port}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, json.JSONDecodeError):  # as it starts, its page for people answers at this address too
            return -1


def _bare_environment() -> list[str]:
    return ["-i", f"PATH={BARE_PATH}", *(each for each in _environment() if each.startswith("SPARK_"))]


def _environment() -> list[str]:
    """Return the variables that executors inherit from their workers."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    values = {
        "SPARK_HOME": Path(pyspark.__file__).parent,
        "SPARK_SCALA_VERSION": "2.13",  # else Spark looks for a build of its own
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
    }
    return [f"{name}={value}" for name, value in values.items()]

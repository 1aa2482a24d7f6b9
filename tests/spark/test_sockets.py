"""The ports and sockets of a running query are those that SECURITY.md lists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.gateway.planning import made_up_gateway
from tests.rigs.sockets import Listening, listening
from tests.rigs.stack.jars import jar_paths
from tests.rigs.stack.spark import ROOT, SPARK_SUBMIT, spark_environment

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PROGRAM = """
import os, sys
from tests.delta.archive import LONG, options
from tests.rigs.stack.spark import spark_session
from tiered_stream import land, report_queries

spark = spark_session("sockets", groups=("delta",))
reports = report_queries(spark, lines="none", prometheus="127.0.0.1:0")
print("driver", os.getpid(), reports.port, flush=True)
for lane in ("direct", "spark"):
    table = f"{sys.argv[1]}/{lane}"
    land(spark, options=options(LONG), table=table, checkpoint=f"{table} checkpoint", lane=lane).awaitTermination()
spark.read.format("tiered_stream").options(**options(LONG)).load().count()
print("done", flush=True)
sys.stdin.read()
reports.close()
spark.stop()
"""


def listed() -> set[tuple[str, str]]:
    """Protocol and process of each row of the table in SECURITY.md."""
    rows = re.findall(r"^\| `(tcp|udp|unix)` [^|]*\| ([^|]*) \|", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    return {(protocol, name) for protocol, process in rows for name in _names(process)}


def _names(process: str) -> list[str]:
    return [name for name in ("driver", "planner", "JVM", "fork server", "worker daemon", "gateway") if name in process]


@dataclass
class Program:
    """A running program that lands, its sockets, and what it has printed: process id and metrics port of its driver."""

    process: subprocess.Popen[str]
    sockets: dict[Listening, str] = field(default_factory=dict)
    driver: int = 0
    monitor: int = 0

    def watch(self) -> None:
        """Collect the sockets of all processes until the program has landed. A process may be gone when it is asked."""
        reader = threading.Thread(target=self._read)
        reader.start()
        while reader.is_alive():
            self._look()
            reader.join(0.05)
        self._look()

    def _look(self) -> None:
        for each in listening(self.process.pid) - self.sockets.keys():
            with suppress(OSError):
                self.sockets[each] = process_of(each, self.driver)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("driver "):
                self.driver, self.monitor = map(int, line.split()[1:])
            if line == "done\n":
                return


@contextmanager
def running(folder: Path, command: Sequence[str | Path]) -> Iterator[Program]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen(
        [*command, program, folder],
        cwd=ROOT, env={**os.environ, **spark_environment()}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        yield Program(process)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def process_of(found: Listening, driver: int) -> str:
    """The process in the words of SECURITY.md."""
    command = Path(f"/proc/{found.pid}/cmdline").read_bytes().split(b"\0")
    if command[0].endswith(b"java"):
        return "JVM"
    if found.pid == driver or not driver:
        return "driver"
    if found.protocol == "unix":
        return "fork server"
    return "planner" if found.protocol == "udp" else "worker daemon"


SUBMIT = (SPARK_SUBMIT, "--jars", ",".join(map(str, jar_paths("delta"))))


@pytest.mark.starts_spark
@pytest.mark.parametrize("command", [[sys.executable], SUBMIT], ids=["python", "spark-submit"])
def test_each_socket_of_a_query_is_in_the_list_of_sockets_and_only_loopback_is_open(
    tmp_path: Path, command: Sequence[str | Path]
) -> None:
    with running(tmp_path, command) as program:
        program.watch()
    found = {(each.protocol, process) for each, process in program.sockets.items()}
    assert found <= listed()
    assert {each.host for each in program.sockets if each.protocol != "unix"} <= set(LOOPBACK)
    assert {("udp", "driver"), ("udp", "planner"), ("unix", "fork server"), ("tcp", "driver"), ("tcp", "JVM")} <= found
    assert program.monitor in {each.port for each in program.sockets if each.protocol == "tcp"}
    assert {Path(each.place).name for each in program.sockets if each.protocol == "unix"} == {"socket"}


@pytest.mark.stack
def test_a_gateway_listens_where_its_settings_say_and_nowhere_else() -> None:
    with made_up_gateway(partitions=1, segments=1) as gateway:
        found = listening(gateway.pid)
    bootstrap = int(gateway.bootstrap_servers.rpartition(":")[2])
    assert {each.protocol for each in found} == {"tcp"} and ("tcp", "gateway") in listed()
    assert {each.place for each in found} == {
        f"127.0.0.1:{port}" for port in (bootstrap, gateway.broker_port, gateway.monitor_port)
    }


def test_the_list_of_sockets_names_each_module_that_listens() -> None:
    """A new `bind`, `create_server` or `make_server` in the package needs a row."""
    opens = re.compile(r"\.bind\(|create_server\(|make_server\(|start_server\(|\.listen\(")
    modules = {
        path.relative_to(ROOT / "tiered_stream").as_posix()
        for path in (ROOT / "tiered_stream").rglob("*.py")
        if path.name != "bound.py" and opens.search(path.read_text())
    }
    assert modules == {
        "gateway/sockets/listener.py", "gateway/sockets/relay.py", "observe/health_and_metrics.py",
        "observe/metrics_receiver.py", "pythons/forked_python.py",
    }  # fmt: skip
    assert {process for _, process in listed()} == {
        "driver", "planner", "JVM", "fork server", "worker daemon", "gateway",
    }  # fmt: skip

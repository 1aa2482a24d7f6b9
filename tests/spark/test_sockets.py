"""The ports and sockets of a running query are those that SECURITY.md lists."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.gateway.planning import made_up_gateway
from tests.rigs.sockets import Listening, listening
from tests.rigs.stack.spark import ROOT, spark_environment

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PROGRAM = """
import sys, time
from tests.delta.archive import LONG, options
from tests.rigs.stack.spark import spark_session
from tiered_stream import land, report_queries

spark = spark_session("sockets", groups=("delta",))
reports = report_queries(spark, lines="none", prometheus="127.0.0.1:0")
query = land(spark, options=options(LONG), table=sys.argv[1], checkpoint=sys.argv[2], trigger="1 second")
while not query.recentProgress:
    time.sleep(0.1)
print("monitor", reports.port, flush=True)
sys.stdin.read()
query.stop()
reports.close()
spark.stop()
"""


def listed() -> set[tuple[str, str]]:
    """Protocol and process of each row of the table in SECURITY.md."""
    rows = re.findall(r"^\| `(tcp|udp|unix)` [^|]*\| ([^|]*) \|", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    return {(protocol, name) for protocol, process in rows for name in _names(process)}


def _names(process: str) -> list[str]:
    return [name for name in ("driver", "planner", "JVM", "fork server", "worker daemon", "gateway") if name in process]


@contextmanager
def running(folder: Path) -> Iterator[tuple[int, int]]:
    """A program with a query that lands, its process id, and the port of its metrics."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder / "table"), str(folder / "checkpoint")],
        cwd=ROOT, env=spark_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdin is not None and program.stdout is not None
    try:
        port = next(int(line.split()[1]) for line in program.stdout if line.startswith("monitor "))
        yield program.pid, port
    finally:
        program.stdin.close()
        program.wait()
        program.stdout.close()


def process_of(found: Listening, driver: int) -> str:
    """The process in the words of SECURITY.md."""
    if found.pid == driver:
        return "driver"
    command = Path(f"/proc/{found.pid}/cmdline").read_bytes().split(b"\0")
    if command[0].endswith(b"java"):
        return "JVM"
    if found.protocol == "unix":
        return "fork server"
    return "planner" if found.protocol == "udp" else "worker daemon"


@pytest.mark.starts_spark
def test_each_socket_of_a_query_is_in_the_list_of_sockets_and_only_loopback_is_open(tmp_path: Path) -> None:
    with running(tmp_path) as (driver, monitor):
        found = {each: process_of(each, driver) for each in listening(driver)}
    assert {(each.protocol, process) for each, process in found.items()} <= listed()
    assert {each.host for each in found if each.protocol != "unix"} <= set(LOOPBACK)
    assert {("udp", "driver"), ("udp", "planner"), ("unix", "fork server")} <= {
        (each.protocol, process) for each, process in found.items()
    }
    assert monitor in {each.port for each in found if each.protocol == "tcp"}
    (place,) = {each.place for each in found if each.protocol == "unix"}
    assert Path(place).name == "socket"


@pytest.mark.stack
def test_a_gateway_listens_where_its_settings_say_and_nowhere_else() -> None:
    with made_up_gateway(partitions=1, segments=1) as gateway:
        found = listening(gateway.process.pid)
    ports = int(gateway.bootstrap_servers.rpartition(":")[2]), gateway.broker_port, gateway.monitor_port
    assert {(each.protocol, each.place) for each in found} == {("tcp", f"127.0.0.1:{port}") for port in ports}
    assert ("tcp", "gateway") in listed()


@pytest.mark.slow
@pytest.mark.starts_spark
def test_each_socket_of_the_demos_processes_is_in_the_list_and_only_loopback_is_open() -> None:
    """The demo's two jobs, one of which `spark-submit` starts, use both lanes; its gateway signs URLs."""
    seen: dict[Listening, str | None] = {}
    program = subprocess.Popen([sys.executable, "-m", "tests.rigs.demo"], cwd=ROOT, stdout=subprocess.DEVNULL)
    while program.poll() is None:
        for each in listening(program.pid) - seen.keys():
            with suppress(OSError):  # the process may have ended
                seen[each] = process_of_demo(each)
        time.sleep(1)  # a look takes some 40 ms of a core
    assert program.returncode == 0
    found = {(each.protocol, process) for each, process in seen.items() if process}
    assert found <= listed()
    assert {each.host for each, process in seen.items() if process and each.protocol != "unix"} <= set(LOOPBACK)
    assert found >= {("udp", "driver"), ("udp", "planner"), ("unix", "fork server"), ("tcp", "gateway"), ("tcp", "JVM")}


def process_of_demo(found: Listening) -> str | None:
    """The process in the words of SECURITY.md; None: it is Kafka or the object store, which the demo starts, too."""
    command = Path(f"/proc/{found.pid}/cmdline").read_bytes()
    if any(name in command for name in (b"kafka.Kafka", b"versitygw", b"s3proxy")):
        return None
    if b"gateway" in command:
        return "gateway"
    is_driver = any(name in command for name in (b"tests.rigs.demo", b"jobs/"))
    return process_of(found, found.pid if is_driver else -1)


def test_the_list_of_sockets_names_each_module_that_listens() -> None:
    """A new `bind`, `create_server` or `make_server` in the package needs a row."""
    opens = re.compile(r"\.bind\(|create_server\(|make_server\(|start_server\(|\.listen\(")
    modules = {
        path.relative_to(ROOT / "tiered_stream").as_posix()
        for path in (ROOT / "tiered_stream").rglob("*.py")
        if path.name != "bound.py" and opens.search(path.read_text())
    }
    assert modules == {
        "gateway/sockets/listening_ports.py", "gateway/sockets/relay.py", "observe/prometheus_endpoint.py",
        "observe/metrics_receiver.py", "pythons/forked_python.py",
    }  # fmt: skip
    assert {process for _, process in listed()} == {
        "driver", "planner", "JVM", "fork server", "worker daemon", "gateway",
    }  # fmt: skip

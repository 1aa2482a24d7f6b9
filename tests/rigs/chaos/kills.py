"""Processes that end as by a crash, those that are to run started again, and partitions that get another leader."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.rigs.chaos.rig import Query, Rig
from tests.rigs.chaos.topics import REPLICAS
from tests.rigs.stack.topics import lead


def kill_driver(rig: Rig, query: Query) -> None:
    rig.driver.kill()


def kill_worker(rig: Rig, query: Query) -> None:
    """Kill a process that a daemon of this driver's has forked for tasks.

    Never the daemon: Spark does not get over that, and closes the stderr of the workers that are left behind.
    """
    found = _python_processes(rig, "pyspark.daemon")
    _kill_one(rig, [pid for pid in found if _parent(pid) in found])


def kill_planner(rig: Rig, query: Query) -> None:
    _kill_one(rig, _python_processes(rig, "streaming_source_runner"))


def _python_processes(rig: Rig, module: str) -> list[int]:
    """Those of this driver's that run the module, or were forked by one that does."""
    return [pid for pid, words in _processes() if module in words and _session(pid) == rig.driver.pid]


def kill_executor(rig: Rig, query: Query) -> None:
    executors = [
        pid
        for pid, words in _processes()
        if "CoarseGrainedExecutorBackend" in words and _folder(pid).is_relative_to(rig.cluster_folder)
    ]
    _kill_one(rig, executors)


def kill_broker(rig: Rig, query: Query) -> None:
    rig.stack.broker.kill()
    rig.stack.broker.start()
    lead([rig.stack.broker], query.topic, REPLICAS)


def move_leaders(rig: Rig, query: Query) -> None:
    """There, and after another micro-batch back again."""
    lead([rig.stack.broker], query.topic, REPLICAS[::-1])
    before = query.commits()
    rig.wait(lambda: query.commits() > before, "a micro-batch")
    lead([rig.stack.broker], query.topic, REPLICAS)


def kill_leader(rig: Rig, query: Query) -> None:
    """The cluster takes its time to notice; meanwhile nobody answers for the partitions."""
    lead([rig.stack.broker], query.topic, REPLICAS[::-1])
    rig.second_broker.kill()
    rig.wait(lambda: False, "the query to end")
    rig.second_broker.start()
    lead([rig.stack.broker], query.topic, REPLICAS)


def kill_s3(rig: Rig, query: Query) -> None:
    rig.stack.s3proxy.kill()
    rig.stack.s3proxy.start()


def kill_gateway(rig: Rig, query: Query) -> None:
    rig.gateway.kill()
    rig.gateway.start()


def _kill_one(rig: Rig, pids: Sequence[int]) -> None:
    """None, if there is none this moment: the last one may just have been killed."""
    if pids:
        os.kill(rig.chance.choice(pids), signal.SIGKILL)


def _processes() -> Iterator[tuple[int, str]]:
    """Id and command line of each."""
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            yield pid, Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            pass


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _parent(pid: int) -> int:
    try:
        # proc(5): the parent comes second after the name, which may have blanks.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _folder(pid: int) -> Path:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:
        return Path("/")

"""Processes that end as by a crash, those that are to run started again, and partitions that get another leader."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from tests.rigs.chaos.rig import Query, Rig
from tests.rigs.chaos.topics import REPLICAS
from tests.rigs.soak.held import Process, family
from tests.rigs.stack.topics import lead


def kill_driver(rig: Rig, query: Query) -> None:
    rig.driver.kill()


def kill_worker(rig: Rig, query: Query) -> None:
    """Kill a process that a daemon of this driver's has forked for tasks.

    Never the daemon: Spark does not get over that, and closes the stderr of the workers that are left behind.
    """
    found = _running(rig.driver.pid, "pyspark.daemon")
    _kill_one(rig, [pid for pid, process in found.items() if process.parent in found])


def kill_planner(rig: Rig, query: Query) -> None:
    _kill_one(rig, [*_running(rig.driver.pid, "streaming_source_runner")])


def kill_executor(rig: Rig, query: Query) -> None:
    _kill_one(rig, [*_running(os.getpid(), "CoarseGrainedExecutorBackend")])


def _running(root: int, what: str) -> dict[int, Process]:
    """Those below a process that run a module or a class, or were forked by one that does."""
    return {pid: each for pid, each in family(root).items() if any(what in word for word in each.arguments)}


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

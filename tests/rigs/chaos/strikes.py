"""Strikes: processes that end as by a crash, partitions that get another leader, and topics that change.

What goes of a topic, goes between plan and read.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kafka import TopicPartition
from kafka.protocol.consumer.offsets import OffsetSpec

from tests.rigs.chaos import effects
from tests.rigs.chaos.rig import Query, Rig
from tests.rigs.chaos.topics import PARTITIONS, REPLICAS, produce
from tests.rigs.soak.held import Process, family
from tests.rigs.stack.topics import add_partitions, alter_topic, lead, offsets, recreate_topic


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


@contextmanager
def _planned(rig: Rig) -> Iterator[bool]:
    """While a task's first request waits at the S3 endpoint; whether there is one."""
    release = threading.Event()
    rig.storage.arm(effects.held(release), matches=lambda request: b".log" in request.partition(b" HTTP")[0])
    rig.wait(lambda: rig.storage.struck > 0, "a task to ask for a segment")
    rig.storage.disarm()
    try:
        yield rig.storage.struck > 0
    finally:
        release.set()


def delete_records(rig: Rig, query: Query) -> bool:
    """DeleteRecords up to somewhere in the topic."""
    broker = rig.stack.broker
    with _planned(rig) as planned:
        if planned:
            ends = offsets(broker, query.topic, OffsetSpec.LATEST_TIERED)
            starts = {at: rig.chance.randint(1, end) for at, end in ends.items() if end > 0}
            with broker.admin() as admin:
                admin.delete_records({TopicPartition(query.topic, at): start for at, start in starts.items()})
            _wait_until_gone(rig, query)
    return planned


def retention(rig: Rig, query: Query) -> bool:
    """Retention by size, which leaves about half."""
    broker = rig.stack.broker
    with _planned(rig) as planned:
        if planned:
            sizes = [file.stat().st_size for file in rig.stack.tier_dir.glob(f"{query.topic}-0-*/*.log")]
            alter_topic(broker, query.topic, {"retention.bytes": str(sum(sizes) // 2)})
            rig.wait(lambda: offsets(broker, query.topic, OffsetSpec.EARLIEST)[0] > 0, "retention")
            _wait_until_gone(rig, query)
    return planned


def _wait_until_gone(rig: Rig, query: Query) -> None:
    """Wait until no tiered segment is left below the log start offsets; what the topic has no more is `gone`."""
    starts = offsets(rig.stack.broker, query.topic, OffsetSpec.EARLIEST)

    def below() -> bool:
        for partition, start in starts.items():
            bases = sorted(
                int(file.name.partition("-")[0])
                for file in rig.stack.tier_dir.glob(f"{query.topic}-{partition}-*/*.log")
            )
            if any(following <= start for following in bases[1:]):
                return True
        return False

    rig.wait(lambda: not below(), "segments to be deleted")
    query.gone |= {place for place in query.expected if place[1] < starts.get(place[0], 0)}


def recreate(rig: Rig, query: Query) -> bool:
    with _planned(rig) as planned:
        if planned:
            recreate_topic(rig.stack.broker, query.topic, PARTITIONS, replicas=REPLICAS)
            produce(rig.stack.broker, query.topic, 0, rig.chance)
    return planned


def add_partition(rig: Rig, query: Query) -> None:
    total = len(offsets(rig.stack.broker, query.topic, OffsetSpec.EARLIEST)) + 1
    add_partitions(rig.stack.broker, query.topic, total)
    lead([rig.stack.broker], query.topic, REPLICAS)
    produce(rig.stack.broker, query.topic, total - 1, rig.chance)
    query.expected = rig.truth(query)
    query.grows = True

"""What changes a topic while a query reads it; what goes, goes between plan and read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kafka import TopicPartition
from kafka.protocol.consumer.offsets import OffsetSpec

from tests.rigs.chaos import effects
from tests.rigs.chaos.rig import Query, Rig
from tests.rigs.chaos.topics import PARTITIONS, REPLICAS, produce
from tests.rigs.stack.topics import add_partitions, alter_topic, lead, offsets, recreate_topic


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

"""Topics that tier within a second, and waiting until they have."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.protocol.admin.topics import ElectionType
from kafka.protocol.consumer.offsets import OffsetSpec

from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.processes import LONG, wait_until
from tests.rigs.stack.produce import produce_batch
from tests.rigs.stack.rows import Record
from tests.rigs.stack.wire import BrokerConnection

TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),  # the smallest that Kafka takes
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "1000",
    "retention.ms": "-1",  # records may carry old timestamps,
    "message.timestamp.after.max.ms": str(2**63 - 1),  # and future ones
}
SEVEN_DAYS_MS = 7 * 24 * 3600 * 1000
"""Kafka's default `segment.ms`."""
KEEP_LOCAL = {"local.retention.bytes": "-2", "local.retention.ms": "-2"}
"""For `config`: tier, but keep the local copy as well."""
COMPACTED = {
    "remote.storage.enable": "false",
    "local.retention.bytes": "-2",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
}
"""For `config`: compact, and do not tier, because Kafka does not tier compacted topics."""


def create_tiered_topic(
    broker: KafkaBroker,
    topic: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    replicas: int | Sequence[int] = 1,
) -> None:
    """Create a topic that tiers closed segments at once and then drops their local copy.

    Args:
        config: more topic settings; they override `TIERED`.
        replicas: on how many brokers each partition is, or on which nodes, its leader first.
    """
    settings = {**TIERED, **(config or {})}
    with broker.admin() as admin:
        admin.create_topics([_new_topic(topic, partitions, replicas, settings)])
        admin.wait_for_topics([topic])


def _new_topic(topic: str, partitions: int, replicas: int | Sequence[int], settings: Mapping[str, str]) -> NewTopic:
    if isinstance(replicas, int):
        return NewTopic(topic, partitions, replicas, topic_configs=settings)
    assignments = {partition: list(replicas) for partition in range(partitions)}
    return NewTopic(topic, replica_assignments=assignments, topic_configs=settings)


def add_partitions(broker: KafkaBroker, topic: str, total: int) -> None:
    """Let the topic have `total` partitions, and wait until the broker lists them."""
    with broker.admin() as admin:
        admin.create_partitions({topic: total})
    wait_until(lambda: len(partitions_of(broker, topic)) == total, f"{topic} to have {total} partitions", pause=0.05)


def delete_topic(broker: KafkaBroker, topic: str) -> None:
    """Delete the topic, and wait until the broker lists it no more."""
    with broker.admin() as admin:
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics(), f"{topic} to be gone", pause=0.05)


def delete_topics_of(broker: KafkaBroker, prefix: str) -> None:
    """Delete all topics whose names begin with the prefix, without waiting."""
    with broker.admin() as admin:
        if topics := [topic for topic in admin.list_topics() if topic.startswith(prefix)]:
            admin.delete_topics(topics)


def recreate_topic(broker: KafkaBroker, topic: str, partitions: int = 1, replicas: int | Sequence[int] = 1) -> None:
    """Delete the topic and create one of the same name, as `create_tiered_topic`."""
    delete_topic(broker, topic)
    create_tiered_topic(broker, topic, partitions, replicas=replicas)


def leaders(broker: KafkaBroker, topic: str) -> dict[int, int]:
    """By partition, the node id of its leader, -1 where it has none, as this broker knows it."""
    return {each.partition_index: each.leader_id for each in _partitions(broker, topic)}


def move_leaders(brokers: Sequence[KafkaBroker], topic: str) -> dict[int, int]:
    """Let the next replica lead each partition, and say which broker it is by partition.

    Args:
        brokers: all that run; each knows the new leaders when this returns.
    """
    found = _partitions(brokers[0], topic)
    turned = {each.partition_index: [*each.replica_nodes[1:], each.replica_nodes[0]] for each in found}
    return _reassign(brokers, topic, turned)


def lead(brokers: Sequence[KafkaBroker], topic: str, replicas: Sequence[int]) -> None:
    """Let the first of the nodes lead all partitions, which are to be on all of them; `brokers` as above."""
    _reassign(brokers, topic, {each.partition: replicas for each in partitions_of(brokers[0], topic)})


def _reassign(brokers: Sequence[KafkaBroker], topic: str, replicas: Mapping[int, Sequence[int]]) -> dict[int, int]:
    wanted = {partition: nodes[0] for partition, nodes in replicas.items()}
    with brokers[0].admin() as admin:
        admin.alter_partition_reassignments(
            {TopicPartition(topic, partition): list(nodes) for partition, nodes in replicas.items()}
        )

        def moved() -> bool:  # asked for again: a replica that lags behind cannot lead yet
            admin.elect_leaders(ElectionType.PREFERRED, {topic: list(wanted)}, raise_errors=False)
            return all(leaders(broker, topic) == wanted for broker in brokers)

        wait_until(moved, f"the leaders of {topic} to be {wanted}", pause=0.05)
    return wanted


def _partitions(broker: KafkaBroker, topic: str) -> list[Any]:
    with BrokerConnection(broker.bootstrap_servers) as connection:
        return connection.partitions(topic, broker.node_id)


def alter_topic(broker: KafkaBroker, topic: str, config: Mapping[str, str]) -> None:
    """Set some of a topic's settings and leave the others. Wait until the broker knows them."""
    with broker.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(config))])

        def known() -> bool:
            asked = [ConfigResource(ConfigResourceType.TOPIC, topic, dict(config))]
            found = admin.describe_configs(asked, config_filter="all")
            values = found[ConfigResourceType.TOPIC.name.lower()][topic]
            return all(values.get(name, {}).get("value") == value for name, value in config.items())

        wait_until(known, f"the broker to know {dict(config)} of {topic}", pause=0.05)


def partitions_of(broker: KafkaBroker, topic: str) -> list[TopicPartition]:
    with broker.admin() as admin:
        (description,) = admin.describe_topics([topic])
    return sorted(TopicPartition(topic, partition["partition_index"]) for partition in description["partitions"])


def offsets(broker: KafkaBroker, topic: str, spec: OffsetSpec) -> dict[int, int]:
    """Return the offset of each partition by ListOffsets; it is -1 for `LATEST_TIERED` if nothing is tiered."""
    wanted = dict.fromkeys(partitions_of(broker, topic), spec)
    with broker.admin() as admin:
        found = admin.list_partition_offsets(wanted)
    return {partition.partition: found[partition].offset for partition in found}


def roll(broker: KafkaBroker, topic: str) -> None:
    """Close the active segment of every partition that is not empty.

    One more record (key `roll`, stamped later than all others) goes to each and is alone in the new active segment, so
    that everything before it can be tiered.

    Raises:
        StackError: a segment would not close.
    """
    ends = {partition: end for partition, end in offsets(broker, topic, OffsetSpec.LATEST).items() if end}
    with broker.admin() as admin:
        newest = admin.list_partition_offsets({TopicPartition(topic, p): OffsetSpec.MAX_TIMESTAMP for p in ends})
    filler = Record(
        b"roll", timestamp_ms=1000 + max(time.time_ns() // 1_000_000, *(at.timestamp for at in newest.values()))
    )

    def rolled() -> bool:  # a filler may come too early: the broker acknowledges a setting before it applies it
        for partition, end in ends.items():
            if active_segment(broker, topic, partition) < end:
                produce_batch(broker, topic, [filler], partition)
        return all(active_segment(broker, topic, partition) >= end for partition, end in ends.items())

    alter_topic(broker, topic, {"segment.ms": "1"})
    wait_until(rolled, f"the active segments of {topic} to close")
    alter_topic(broker, topic, {"segment.ms": str(SEVEN_DAYS_MS)})


def wait_until_tiered(
    broker: KafkaBroker, topic: str, *, deleted_locally: bool = True, timeout: float = LONG
) -> dict[int, int]:
    """Wait until the closed segments of every partition are tiered, and by default also gone from the broker's disk.

    Segments at or above the last stable offset are not tiered by Kafka: with a transaction left open, use
    `wait_until_tiered_to`.

    Returns:
        by partition, the first offset that is not tiered.
    """

    def done() -> bool:
        tiered = offsets(broker, topic, OffsetSpec.LATEST_TIERED)
        local = offsets(broker, topic, OffsetSpec.EARLIEST_LOCAL)
        for partition in tiered:
            active = active_segment(broker, topic, partition)
            if tiered[partition] + 1 < active or (deleted_locally and local[partition] < active):
                return False
        return True

    wait_until(done, f"closed segments of {topic} to be tiered", timeout)
    return {partition: last + 1 for partition, last in offsets(broker, topic, OffsetSpec.LATEST_TIERED).items()}


def wait_until_tiered_to(broker: KafkaBroker, topic: str, ends: Mapping[int, int]) -> None:
    """Wait until each partition is tiered up to its end (exclusive) or further."""

    def done() -> bool:
        tiered = offsets(broker, topic, OffsetSpec.LATEST_TIERED)
        return all(tiered[partition] + 1 >= end for partition, end in ends.items())

    wait_until(done, f"{topic} to be tiered to {dict(ends)}")


def active_segment(broker: KafkaBroker, topic: str, partition: int) -> int:
    """Return the base offset of the active segment. No request returns it, so it is read from the broker's folder."""
    return max((int(file.stem) for file in (broker.logs_dir / f"{topic}-{partition}").glob("*.log")), default=0)

"""Checks of a target topic, before a replay produces its first record to the topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import Producer, TopicCollection

# The module `confluent_kafka.admin` has no `__all__`, so mypy does not know the names that it exports.
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.errors import BrokerAuthorizationError, ConfigurationError, UnknownTopicError
from tiered_stream.model import TopicPartition
from tiered_stream.options.positions import show_time
from tiered_stream.replays.librdkafka_errors import PATIENCE_SECONDS, retry
from tiered_stream.replays.replay_plan import ReplayPlan
from tiered_stream.replays.topic_settings import TopicWrites

log = logging.getLogger(__name__)

_APPEND_TIME = "LogAppendTime"


def check_topics(writes: TopicWrites, plan: ReplayPlan) -> None:
    """Check each target topic of the plan: its partitions, its settings, and the user's authorization to produce.

    The check does not disturb a replay with the same name that is running.

    Raises:
        UnknownTopicError: a target topic does not exist.
        BrokerAuthorizationError: the login fails, or the user lacks a permission that a replay needs.
        ConfigurationError: a target is one of the replayed topics, has too few partitions, or would change or refuse
            timestamps.
        BrokerError: the target's cluster cannot be reached, or refuses a request.
    """
    sources = sorted({partition.topic for partition in plan.ranges})
    # Our own client names what is wrong with a login, where librdkafka only reports a timeout.
    with BrokerClient(writes.properties) as client:
        metadata = {topic: _metadata(client, topic) for topic in dict.fromkeys(map(writes.target, sources))}
    ids = {plan.topic_ids[source] for source in sources if source in plan.topic_ids}
    for source in sources:
        topic = writes.target(source)
        if metadata[topic].topic_id in ids:
            raise ConfigurationError(f"the target {topic} is the topic that is replayed: give another topic")
        if not writes.by_key:
            _check_partitions(topic, len(metadata[topic].partitions), plan.ranges, source)
    admin = AdminClient(dict(writes.connection))
    for topic in metadata:
        resource, collection = f"the target {topic}", TopicCollection([topic])
        described = _describe(partial(admin.describe_topics, collection, include_authorized_operations=True), resource)
        _check_authorized(described, AclOperation.WRITE, resource, "WRITE on the topic")
        _check_settings(topic, _settings(admin, topic), plan.times.from_ms)
    for partition in list(plan.ranges)[:1]:  # one is enough, because all groups and transactional ids have one prefix
        group = writes.name_of(partition)
        resource = f"the consumer group {group}"
        describe = partial(admin.describe_consumer_groups, [group], include_authorized_operations=True)
        described = _describe(describe, resource)
        _check_authorized(described, AclOperation.READ, resource, "READ on groups with the prefix replay-")
        if writes.transactional:
            # Not the id of a partition's producer, because `init_transactions` would fence a running replay.
            name = f"{writes.replay}:check"
            producer = Producer({**writes.producer_of(partition), "transactional.id": name})
            retry(partial(producer.init_transactions, PATIENCE_SECONDS), f"beginning transactions as {name}")


def _metadata(client: BrokerClient, topic: str) -> TopicMetadata:
    try:
        return client.metadata([topic])[topic]
    except UnknownTopicError as error:
        raise UnknownTopicError(
            f"the target {topic} does not exist: create it with as many partitions as the source has "
            "(Kafka: UNKNOWN_TOPIC_OR_PARTITION)"
        ) from error


def _check_partitions(topic: str, count: int, partitions: Collection[TopicPartition], source: str) -> None:
    needed = 1 + max(partition.partition for partition in partitions if partition.topic == source)
    if count < needed:
        raise ConfigurationError(
            f"the target {topic} has {count} partitions, but partition {needed - 1} of {source} must keep its number: "
            f"give it {needed} partitions, or set target.partition.by=key"
        )


def _check_settings(topic: str, settings: Mapping[str, str], oldest_ms: int) -> None:
    """Check that the target topic keeps records' timestamps. Log a warning if its retention would soon delete records.

    Args:
        topic: name of the target topic, for messages.
        settings: the topic's settings by name; settings that could not be read are left out.
        oldest_ms: earliest timestamp of a replayed record, in milliseconds since the epoch.

    Raises:
        ConfigurationError: the topic would replace or refuse timestamps.
    """
    now_ms = time.time_ns() // 1_000_000
    age_ms = now_ms - oldest_ms
    if settings.get("message.timestamp.type") == _APPEND_TIME:
        raise ConfigurationError(
            f"the target {topic} has message.timestamp.type={_APPEND_TIME}, which would replace the records' "
            "timestamps: set it to CreateTime"
        )
    max_age_ms = int(settings.get("message.timestamp.before.max.ms", age_ms))
    if max_age_ms < age_ms:
        raise ConfigurationError(
            f"the target {topic} has message.timestamp.before.max.ms={max_age_ms}, which refuses records from before "
            f"{show_time(now_ms - max_age_ms)}: set it higher"
        )
    retention_ms = int(settings.get("retention.ms", -1))
    if 0 <= retention_ms < age_ms and "delete" in settings.get("cleanup.policy", "delete"):
        log.warning(
            "the target %s has retention.ms=%d: its brokers delete records from before %s soon after they were written",
            topic, retention_ms, show_time(now_ms - retention_ms),
        )  # fmt: skip


def _check_authorized(described: Any, operation: AclOperation, resource: str, grant: str) -> None:
    if described.authorized_operations is not None and operation not in described.authorized_operations:
        raise BrokerAuthorizationError(f"{resource}: the user is not authorized: grant {grant}")


def _describe(describe: Callable[[], Mapping[Any, Future[Any]]], resource: str) -> Any:
    """Send an admin request for one resource, and return its result. Repeat it for up to 60 s on temporary errors.

    Args:
        describe: sends the request, and returns a mapping with one future.
        resource: name of the resource, for an error message.
    """

    return retry(lambda: next(iter(describe().values())).result(), f"describing {resource}")


def _settings(admin: AdminClient, topic: str) -> Mapping[str, str]:
    """Return the topic's settings by name; empty if the user lacks DESCRIBE_CONFIGS, which producing does not need."""
    topics = [ConfigResource(ResourceType.TOPIC, topic)]
    try:
        entries = _describe(partial(admin.describe_configs, topics), f"the settings of the target {topic}")
    except BrokerAuthorizationError:
        return {}
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}

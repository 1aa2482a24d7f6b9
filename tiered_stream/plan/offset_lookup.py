"""Look-ups, with retries, of the partitions that a query reads, and of these partitions' offsets.

(Spark: `ConsumerStrategy`, `KafkaOffsetReaderAdmin`.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar
from uuid import UUID

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.errors import ConfigurationError, OpenTransactionError, TieredStreamError, UnknownTopicError
from tiered_stream.model import NO_TOPIC_ID, PartitionOffsets, TopicPartition, listed
from tiered_stream.options.parsing import Options, Subscription
from tiered_stream.options.spark_options import FETCH_OFFSET_NUM_RETRIES

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions that a query reads now, and the ids of their topics.

    A topic is missing in `topic_ids` if the brokers do not report its id.
    """

    partitions: frozenset[TopicPartition]
    topic_ids: dict[str, UUID]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Partitions that a query reads now, and the bounds of their logs.

    `earliest` has log start offsets by partition, and `latest` has end offsets (exclusive). A partition that has no
    offsets to read may be missing in `earliest`; then its offset in `latest` is the micro-batch's end.
    """

    assignment: Assignment
    earliest: dict[TopicPartition, int]
    latest: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """Look-ups of partitions and offsets of one subscription by an `OffsetReader`, with up to `attempts` attempts.

    Attempts are `interval_ms` apart. Each method raises the reader's error after the last attempt. `sleep` takes
    seconds, and `now_ms` returns the time in ms since 1970. `topics_seen` has the topics that look-ups have found. If
    no topic was found yet, an unknown topic is looked up again only if `awaits_topics` is true.
    """

    reader: OffsetReader
    subscription: Subscription
    attempts: int
    interval_ms: int
    sleep: Callable[[float], None] = time.sleep
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    awaits_topics: bool = False
    topics_seen: set[str] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, options: Options, reader: OffsetReader, sleep: Callable[[float], None] = time.sleep) -> OffsetLookup:
        """Return a lookup with the subscription, the number of attempts and their interval in the options.

        The lookup waits for topics that do not exist yet if the option `fetchOffset.numRetries` differs from its
        default.
        """
        attempts, interval_ms = options.fetch_offset_num_retries, options.fetch_offset_retry_interval_ms
        awaits = attempts != FETCH_OFFSET_NUM_RETRIES.default
        return cls(reader, options.subscription, attempts, interval_ms, sleep, awaits_topics=awaits)

    def retrying(self, request: Callable[[], T]) -> T:
        """Return the result of `request`, which is called again after a retriable error, up to `attempts` times in all.

        `request` is also called again after an UnknownTopicError, because some brokers learn of topics late. This needs
        `awaits_topics` to be true, or an earlier look-up to have found a topic. The error of the last attempt is
        raised.
        """
        for attempt in range(1, self.attempts):
            try:
                return request()
            except TieredStreamError as error:
                may_appear = isinstance(error, UnknownTopicError) and (self.awaits_topics or self.topics_seen)
                if not (error.retriable or may_appear):
                    raise
                logger.warning("attempt %d of %d to look up offsets: %s", attempt, self.attempts, error)
            self.sleep(self.interval_ms / 1000)
        return request()

    def assignment(self) -> Assignment:
        """Return the partitions of the subscription that exist now, and their topics' ids, with retries."""
        return self.retrying(self.assigned)

    def assigned(self) -> Assignment:
        """Return the partitions of the subscription that exist now, and their topics' ids, without retries."""
        found = assigned(self.subscription, self.reader)
        self.topics_seen.update(partition.topic for partition in found.partitions)
        return found

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return by partition the log start offset, for `partitions` that still exist."""
        if not partitions:
            return {}
        return self.retrying(lambda: self.reader.earliest(self.assigned().partitions.intersection(partitions)))

    def latest(self, known: PartitionOffsets | None = None) -> tuple[Assignment, dict[TopicPartition, int]]:
        """Return the partitions to read, and by partition its end offset (exclusive).

        `known` has by partition an offset up to which the query has read or is to read. If only an open transaction
        keeps an end below the `known` offset, the `known` offset is returned as the end. If the end is below the
        `known` offset for another reason, it is requested again, and returned if it stays below.
        """

        def request() -> tuple[Assignment, dict[TopicPartition, int]]:
            assignment = self.assigned()
            return assignment, self._latest(assignment.partitions, known or {})[0]

        return self.retrying(request)

    def bounds(self, start: PartitionOffsets, end: PartitionOffsets, *, idle: bool = False) -> LogBounds:
        """Return log starts and ends of the partitions for a micro-batch from `start` to `end`, which must be readable.

        The ends are the result of `latest` with `end` as the known offsets. A partition that is not in `start` is read
        from its log start.

        Args:
            idle: also request the bounds of partitions that have nothing to read.

        Raises:
            OpenTransactionError: offsets up to `end` cannot be read while a transaction is open.
        """

        def request() -> LogBounds:
            assignment = self.assigned()
            idle_ends = {} if idle else {partition: at for partition, at in end.items() if start.get(partition) == at}
            latest, undecided = self._latest(assignment.partitions - idle_ends.keys(), end)
            check_decided(
                {partition: at for partition, at in undecided.items() if start.get(partition, 0) < end[partition]}, end
            )
            earliest = self.reader.earliest(latest.keys()) if latest else {}
            known = {partition: idle_ends[partition] for partition in assignment.partitions & idle_ends.keys()}
            return LogBounds(assignment, earliest, known | latest)

        return self.retrying(request)

    def undecided(self, latest: PartitionOffsets, known: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return the ends in `latest` that are below their `known` offset only because a transaction is open."""
        below = [partition for partition, end in latest.items() if end < known.get(partition, 0)]
        watermarks = self.reader.high_watermarks(below) if below else {}
        return {partition: latest[partition] for partition in below if known[partition] <= watermarks[partition]}

    def _latest(
        self, partitions: frozenset[TopicPartition], known: PartitionOffsets
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return two mappings by partition: the ends that `latest` describes, and last stable offsets.

        The second mapping has only the partitions whose ends an open transaction keeps below their `known` offsets.
        """
        if not partitions:
            return {}, {}
        attempt = 1
        while True:
            latest = self.reader.latest(partitions)
            undecided = self.undecided(latest, known)
            latest.update({partition: known[partition] for partition in undecided})
            below = [partition for partition, end in latest.items() if end < known.get(partition, 0)]
            if not below or attempt >= self.attempts:
                return latest, undecided
            logger.warning(
                "the end lies below the offset that was read up to, and is asked for again: %s", listed(below)
            )
            self.sleep(self.interval_ms / 1000)
            attempt += 1


def check_decided(undecided: PartitionOffsets, ends: PartitionOffsets) -> None:
    """Check that no open transaction prevents a read of partitions up to their `ends`.

    Args:
        undecided: last stable offsets of the partitions where an open transaction prevents the read, by partition.

    Raises:
        OpenTransactionError: `undecided` is not empty.
    """
    if undecided:
        partition, stable_offset = min(undecided.items())
        raise OpenTransactionError(
            f"offsets up to {ends[partition]} of {partition} are to be read, but a transaction is open from offset "
            f"{stable_offset} on (last stable offset), in {listed(undecided)}. Run the query again when it is "
            "committed or aborted; Kafka aborts it after the producer's transaction.timeout.ms. To read it now, set "
            "kafka.isolation.level to read_uncommitted"
        )


def assigned(subscription: Subscription, reader: OffsetReader) -> Assignment:
    """Return the partitions of `subscription` that exist, and their topics' ids.

    A pattern may match anywhere in a topic's name, and may match no topic. As in Spark, partitions of `assign` that do
    not exist are left out silently, and so are partitions of internal topics, even if they are named
    (`ConsumerStrategy.retrieveAllPartitions`).

    Raises:
        UnknownTopicError: a topic that is named does not exist.
        BrokerError: the reader cannot describe the topics.
    """
    if subscription.pattern is not None:
        described = reader.matching(subscription.names)
    else:
        topics = {*subscription.topics, *(partition.topic for partition in subscription.assigned)}
        described = reader.partitions(topics) if topics else {}
    readable = {topic: description for topic, description in described.items() if not description.internal}
    for topic in described.keys() - readable.keys():
        _warn_of_internal(topic)
    existing = frozenset(
        TopicPartition(topic, number) for topic, description in readable.items() for number in description.partitions
    )
    return Assignment(
        partitions=existing.intersection(subscription.assigned) if subscription.assigned else existing,
        topic_ids={
            topic: description.topic_id
            for topic, description in readable.items()
            if description.topic_id != NO_TOPIC_ID
        },
    )


def check_chosen(subscription: Subscription, partitions: Set[TopicPartition]) -> None:
    """Check that the option `assign` names no partition that is missing, and that there is a partition to read.

    Args:
        partitions: existing partitions of the subscription.

    Raises:
        UnknownTopicError: a partition in `assign` does not exist.
        ConfigurationError: there is no partition to read.
    """
    if missing := set(subscription.assigned) - partitions:
        raise UnknownTopicError(f"the partitions {listed(missing)} do not exist: correct the option assign")
    if not partitions and (pattern := subscription.pattern) is not None:
        raise ConfigurationError(
            f"no topic matches the pattern {pattern!r}: correct subscribePattern, or grant DESCRIBE on the topics"
        )
    if not partitions:
        raise ConfigurationError("assign names no partition: name the partitions to read")


@cache
def _warn_of_internal(topic: str) -> None:
    """Warn once per topic that it is internal; a stream calls this for every micro-batch."""
    logger.warning("%s is an internal topic of the brokers: as with Spark's kafka source, nothing of it is read", topic)

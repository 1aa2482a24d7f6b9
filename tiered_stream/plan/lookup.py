"""Partitions that a query reads, and requests for their offsets, with retries.

(Spark: `ConsumerStrategy`, `KafkaOffsetReaderAdmin`.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import TypeVar
from uuid import UUID

from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.errors import OpenTransactionError, TieredStreamError, UnknownTopicError
from tiered_stream.model import PartitionOffsets, TopicPartition, listed
from tiered_stream.options.parsing import Options, Subscription

logger = logging.getLogger(__name__)

T = TypeVar("T")

NO_TOPIC_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions that a query reads now, and the ids of their topics if the broker reports them."""

    partitions: frozenset[TopicPartition]
    topic_ids: dict[str, UUID]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Partitions that a query reads now, and the log starts and ends of the partitions that have something to read.

    Other partitions have the given end, so that hundreds of idle topics are requested once a micro-batch, and not
    twice.
    """

    assignment: Assignment
    earliest: dict[TopicPartition, int]
    latest: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """Requests to an `OffsetReader` for one subscription, with up to `attempts` attempts.

    Each method raises the reader's error after the last attempt. `sleep` takes seconds.
    """

    reader: OffsetReader
    subscription: Subscription
    attempts: int
    interval_ms: int
    sleep: Callable[[float], None] = time.sleep
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    @classmethod
    def of(cls, options: Options, reader: OffsetReader, sleep: Callable[[float], None] = time.sleep) -> OffsetLookup:
        """Return the lookup that the options describe."""
        attempts, interval_ms = options.fetch_offset_num_retries, options.fetch_offset_retry_interval_ms
        return cls(reader, options.subscription, attempts, interval_ms, sleep)

    def retrying(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, called again after a retriable error, or if a new topic does not appear yet."""
        for attempt in range(1, self.attempts):
            try:
                return ask()
            except TieredStreamError as error:
                if not (error.retriable or isinstance(error, UnknownTopicError)):
                    raise
                logger.warning("attempt %d of %d to look up offsets: %s", attempt, self.attempts, error)
            self.sleep(self.interval_ms / 1000)
        return ask()

    def assignment(self) -> Assignment:
        """Return the partitions to read now, by topic name, by pattern, or as assigned."""
        return self.retrying(self.assigned)

    def assigned(self) -> Assignment:
        """Return the partitions to read now, without retries."""
        return assigned(self.subscription, self.reader)

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log starts of the given partitions that still exist."""
        if not partitions:
            return {}
        return self.retrying(lambda: self.reader.earliest(self.assigned().partitions.intersection(partitions)))

    def latest(self, known: PartitionOffsets | None = None) -> tuple[Assignment, dict[TopicPartition, int]]:
        """Return the partitions to read, and their ends.

        If an open transaction keeps the end below the partition's `known` offset, the `known` offset is the end:
        nothing is new until the transaction ends, and nothing is lost. Any other end below the `known` offset is
        requested again, and accepted if it stays.
        """

        def ask() -> tuple[Assignment, dict[TopicPartition, int]]:
            assignment = self.assigned()
            return assignment, self._latest(assignment.partitions, known or {})[0]

        return self.retrying(ask)

    def bounds(self, start: PartitionOffsets, end: PartitionOffsets, *, idle: bool = False) -> LogBounds:
        """Return log starts and ends for a read from `start` to `end`, after a check that these offsets can be read.

        The ends are those of `latest`, with `end` as known offsets. A partition that is not in `start` is read from its
        log start. `idle`: also request the bounds of partitions that have nothing to read.

        Raises:
            OpenTransactionError: offsets up to `end` cannot be read while a transaction is open.
        """

        def ask() -> LogBounds:
            assignment = self.assigned()
            nothing = {} if idle else {partition: at for partition, at in end.items() if start.get(partition) == at}
            latest, undecided = self._latest(assignment.partitions - nothing.keys(), end)
            check_decided(
                {partition: at for partition, at in undecided.items() if start.get(partition, 0) < end[partition]}, end
            )
            earliest = self.reader.earliest(latest.keys()) if latest else {}
            known = {partition: nothing[partition] for partition in assignment.partitions & nothing.keys()}
            return LogBounds(assignment, earliest, known | latest)

        return self.retrying(ask)

    def undecided(self, latest: PartitionOffsets, known: PartitionOffsets) -> dict[TopicPartition, int]:
        """Return the ends in `latest` that are below their `known` offset only because a transaction is open."""
        below = [partition for partition, end in latest.items() if end < known.get(partition, 0)]
        watermarks = self.reader.high_watermarks(below) if below else {}
        return {partition: latest[partition] for partition in below if known[partition] <= watermarks[partition]}

    def _latest(
        self, partitions: frozenset[TopicPartition], known: PartitionOffsets
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the ends, and the reader's own ends where an open transaction keeps them below the `known` offsets."""
        if not partitions:
            return {}, {}
        attempt = 1
        while True:
            latest = self.reader.latest(partitions)
            undecided = self.undecided(latest, known)
            latest.update({partition: known[partition] for partition in undecided})
            behind = [partition for partition, end in latest.items() if end < known.get(partition, 0)]
            if not behind or attempt >= self.attempts:
                return latest, undecided
            logger.warning(
                "the end lies below the offset that was read up to, and is asked for again: %s", listed(behind)
            )
            self.sleep(self.interval_ms / 1000)
            attempt += 1


def check_decided(undecided: PartitionOffsets, wanted: PartitionOffsets) -> None:
    """Check that no offsets to read up to `wanted` are undecided; `undecided` maps partitions to their stable ends.

    Raises:
        OpenTransactionError: `undecided` is not empty.
    """
    if undecided:
        partition, stable = min(undecided.items())
        raise OpenTransactionError(
            f"offsets up to {wanted[partition]} of {partition} are to be read, but a transaction is open from offset "
            f"{stable} on (last stable offset), in {listed(undecided)}. Run the query again when it is committed or "
            "aborted; Kafka aborts it after the producer's transaction.timeout.ms. To read it now, set "
            "kafka.isolation.level to read_uncommitted"
        )


def assigned(subscription: Subscription, reader: OffsetReader) -> Assignment:
    """Return the partitions of `subscription` that exist.

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
        _tell_internal(topic)
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


@cache
def _tell_internal(topic: str) -> None:
    """Warn once per topic, because a stream asks for every micro-batch."""
    logger.warning("%s is an internal topic of the brokers: as with Spark's kafka source, nothing of it is read", topic)

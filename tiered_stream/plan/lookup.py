"""Which partitions a query reads, and offset requests that are sent again when they fail.

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
    """The partitions that a query reads now, and the ids of their topics where the broker tells them."""

    partitions: frozenset[TopicPartition]
    topic_ids: dict[str, UUID]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The partitions that a query reads now, and where the logs begin and end of those that have something to read.

    The others have the end that was given: hundreds of idle topics are asked for once a micro-batch, and not twice.
    """

    assignment: Assignment
    earliest: dict[TopicPartition, int]
    latest: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """Asks an `OffsetReader`, up to `attempts` times, for what concerns one subscription.

    Each method raises what the reader raises, after the last attempt. `sleep` takes seconds.
    """

    reader: OffsetReader
    subscription: Subscription
    attempts: int
    interval_ms: int
    sleep: Callable[[float], None] = time.sleep
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    @classmethod
    def of(cls, options: Options, reader: OffsetReader, sleep: Callable[[float], None] = time.sleep) -> OffsetLookup:
        """The lookup that the options ask for."""
        attempts, interval_ms = options.fetch_offset_num_retries, options.fetch_offset_retry_interval_ms
        return cls(reader, options.subscription, attempts, interval_ms, sleep)

    def retrying(self, ask: Callable[[], T]) -> T:
        """The answer of `ask`, asked again after a failure that may pass; a new topic may be late to appear."""
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
        """The partitions to read at this moment, by name, by pattern, or as assigned."""
        return self.retrying(self.assigned)

    def assigned(self) -> Assignment:
        """As `assignment`, asked once."""
        return assigned(self.subscription, self.reader)

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The log starts of those of `partitions` that still exist."""
        if not partitions:
            return {}
        return self.retrying(lambda: self.reader.earliest(self.assigned().partitions.intersection(partitions)))

    def latest(self, known: PartitionOffsets | None = None) -> tuple[Assignment, dict[TopicPartition, int]]:
        """The partitions to read, and their ends.

        Where an open transaction keeps the end below the `known` offset of its partition, that offset is the end:
        nothing is new until the transaction ends, and nothing is lost. Any other end below it is asked for again, and
        believed when it stays.
        """

        def ask() -> tuple[Assignment, dict[TopicPartition, int]]:
            assignment = self.assigned()
            return assignment, self._latest(assignment.partitions, known or {})[0]

        return self.retrying(ask)

    def bounds(self, start: PartitionOffsets, end: PartitionOffsets, *, idle: bool = False) -> LogBounds:
        """As `latest` with `end` known, with the log starts; what lies between `start` and `end` can be read.

        A partition that is not in `start` is to be read from its log start. `idle`: also those are asked for of which
        nothing is to be read.

        Raises:
            OpenTransactionError: it can not, as long as a transaction is open.
        """

        def ask() -> LogBounds:
            assignment = self.assigned()
            nothing = {} if idle else {each: at for each, at in end.items() if start.get(each) == at}
            latest, undecided = self._latest(assignment.partitions - nothing.keys(), end)
            check_decided({each: at for each, at in undecided.items() if start.get(each, 0) < end[each]}, end)
            earliest = self.reader.earliest(latest.keys()) if latest else {}
            known = {each: nothing[each] for each in assignment.partitions & nothing.keys()}
            return LogBounds(assignment, earliest, known | latest)

        return self.retrying(ask)

    def undecided(self, latest: PartitionOffsets, known: PartitionOffsets) -> dict[TopicPartition, int]:
        """The ends in `latest` that are below their `known` offset only because a transaction is open."""
        below = [partition for partition, end in latest.items() if end < known.get(partition, 0)]
        watermarks = self.reader.high_watermarks(below) if below else {}
        return {partition: latest[partition] for partition in below if known[partition] <= watermarks[partition]}

    def _latest(
        self, partitions: frozenset[TopicPartition], known: PartitionOffsets
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The ends; and of those that are not as the reader has them, since a transaction is open, the reader's."""
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
    """All that is to be read up to `wanted` is committed or aborted; `undecided` are the ends of what is.

    Raises:
        OpenTransactionError: it is not so.
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
    """The partitions of `subscription` that exist.

    A pattern is found anywhere in a topic's name, and may match nothing. Of `assign`, partitions that do not exist are
    left out without a word, as in Spark, and so are the partitions of internal topics, also where they are named
    (`ConsumerStrategy.retrieveAllPartitions`).

    Raises:
        UnknownTopicError: a topic that is named does not exist.
        BrokerError: the reader cannot tell.
    """
    if subscription.pattern is not None:
        described = reader.matching(subscription.names)
    else:
        topics = {*subscription.topics, *(partition.topic for partition in subscription.assigned)}
        described = reader.partitions(topics) if topics else {}
    readable = {topic: each for topic, each in described.items() if not each.internal}
    for topic in described.keys() - readable.keys():
        _tell_internal(topic)
    existing = frozenset(
        TopicPartition(topic, number) for topic, each in readable.items() for number in each.partitions
    )
    return Assignment(
        partitions=existing.intersection(subscription.assigned) if subscription.assigned else existing,
        topic_ids={topic: each.topic_id for topic, each in readable.items() if each.topic_id != NO_TOPIC_ID},
    )


@cache
def _tell_internal(topic: str) -> None:
    """Once: a stream asks with every micro-batch."""
    logger.warning("%s is an internal topic of the brokers: as with Spark's kafka source, nothing of it is read", topic)

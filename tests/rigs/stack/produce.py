"""Filling topics with chosen batches, by Produce requests made by hand.

kafka-python's producer chooses batch boundaries itself and refuses a record without key and value; here a test says
what is in each batch. For bulk see `bulk.py`, for transactions `transactions.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import islice

from kafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError
from kafka.protocol.producer.produce import ProduceRequest

from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.processes import Closing
from tests.rigs.stack.rows import Record
from tests.rigs.stack.wire import NODE, BrokerConnection, check

LEADER_ATTEMPTS = 600
"""A tenth of a second apart."""
_PASSING = (NotLeaderForPartitionError.errno, UnknownTopicOrPartitionError.errno)
"""Errors of a broker that does not know the topic yet, or not that it leads the partition."""
NEWEST_PRODUCE = 11
"""The last version before one that adds partitions to transactions by itself (12) and names topics by id (13)."""


def send_batch(
    connection: BrokerConnection, topic: str, partition: int, batch: bytes, transactional_id: str | None = None
) -> int:
    """Produce one ready batch, acknowledged by the broker.

    The batch is sent again while the broker does not know the topic yet, which happens with new topics. If another
    broker leads the partition, the batch is sent to that broker.

    Returns:
        its base offset.

    Raises:
        kafka.errors.KafkaError: the broker's refusal.
    """
    topic_data = ProduceRequest.TopicProduceData
    data = topic_data.PartitionProduceData(index=partition, records=batch)
    node_id = NODE
    for attempts_left in reversed(range(LEADER_ATTEMPTS)):
        answer = connection.request(
            ProduceRequest(
                transactional_id=transactional_id,
                acks=-1,
                timeout_ms=30_000,
                topic_data=[topic_data(name=topic, partition_data=[data])],
                max_version=NEWEST_PRODUCE,
            ),
            node_id,
        )
        (result,) = answer.responses[0].partition_responses
        if result.error_code not in _PASSING or not attempts_left:
            break
        if (leader := connection.leader(topic, partition)) in (-1, node_id):
            time.sleep(0.1)
        else:
            node_id = leader
    check(result.error_code, f"{topic}-{partition}: {result.error_message}")
    return int(result.base_offset)


class RawProducer(Closing):
    """Producer of ready batches over one connection."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._connection = BrokerConnection(broker.bootstrap_servers)

    def send(self, topic: str, records: Iterable[Record], partition: int = 0, codec: str = "none") -> int:
        """All the records as one batch; returns its base offset."""
        return send_batch(self._connection, topic, partition, record_batch(records, codec))

    def send_all(
        self,
        topic: str,
        records: Iterable[Record],
        partition: int = 0,
        *,
        batch_records: int = 100,
        codecs: Sequence[str] = ("none",),
    ) -> int:
        """The records in batches of `batch_records`, the codecs taking turns; returns how many batches."""
        remaining, batches = iter(records), 0
        while chunk := list(islice(remaining, batch_records)):
            self.send(topic, chunk, partition, codecs[batches % len(codecs)])
            batches += 1
        return batches

    def close(self) -> None:
        self._connection.close()


def produce_batch(broker: KafkaBroker, topic: str, records: Iterable[Record], partition: int = 0) -> int:
    """One batch over a connection of its own; returns its base offset."""
    with RawProducer(broker) as producer:
        return producer.send(topic, records, partition)


def produce_segments(broker: KafkaBroker, topic: str, segments: Iterable[Sequence[Record]], partition: int = 0) -> None:
    """Each sequence of records as one batch in a segment of its own.

    The topic needs a `segment.ms` that is smaller than the step between the timestamps of one sequence and the next:
    Kafka rolls by record timestamps, so this takes no waiting.
    """
    with RawProducer(broker) as producer:
        for records in segments:
            producer.send(topic, records, partition)

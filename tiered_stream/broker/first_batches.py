"""Fetch of small first record batches at given offsets, from many partitions in one request to each leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import NO_TOPIC_ID
from tiered_stream.broker.leaders import LeaderRequest, Leaders, ask_each_leader, by_topic
from tiered_stream.broker.list_offsets import isolation_code
from tiered_stream.broker.record_fetch import LAST_BY_NAME, NEWEST, OLDEST, FetchedRecords, fetched_records
from tiered_stream.model import PartialAnswer, TopicPartition
from tiered_stream.options.choices import IsolationLevel

_MOST_BYTES = 16 << 20
"""Maximum number of record bytes in one response."""


def fetch_first_batches(
    client: BrokerClient,
    offsets: Mapping[TopicPartition, int],
    max_bytes: int,
    isolation: IsolationLevel,
    patience_ms: int | None = None,
) -> PartialAnswer[TopicPartition, FetchedRecords]:
    """Fetch the records at each partition's offset, at most `max_bytes` per partition, without waiting for new ones.

    A first batch that is larger than `max_bytes` gives no records. Each leader gets as few requests as the limit of
    16 MiB for a response allows. `patience_ms` None: `default.api.timeout.ms`.

    Raises: as `leaders.ask_each_leader`.
    """
    answer: PartialAnswer[TopicPartition, FetchedRecords] = PartialAnswer({}, {})
    most, partitions = max(1, _MOST_BYTES // max_bytes), list(offsets)
    for at in range(0, len(partitions), most):
        asked = {each: offsets[each] for each in partitions[at : at + most]}
        request = _FirstBatches(client, asked, max_bytes, isolation)
        some = client.run(partial(ask_each_leader, client, request, asked, patience_ms))
        answer.found.update(some.found)
        answer.faults.update(some.faults)
    return answer


class _FirstBatches(LeaderRequest[FetchedRecords]):
    needed_acl = "READ on the topic"

    def __init__(
        self, client: BrokerClient, offsets: Mapping[TopicPartition, int], max_bytes: int, isolation: IsolationLevel
    ) -> None:
        self._offsets = offsets
        self._client = client
        self._max_bytes = max_bytes
        self._isolation = isolation

    def message(self, leaders: Leaders) -> Any:
        topics = by_topic(leaders)
        by_name = any(self._topic_id(topic) == NO_TOPIC_ID for topic in topics)
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=_MOST_BYTES,
            isolation_level=isolation_code(self._isolation),
            topics=[self._topic(topic, listed, leaders) for topic, listed in topics.items()],
            forgotten_topics_data=[],
            rack_id="",
            min_version=OLDEST,
            max_version=LAST_BY_NAME if by_name else NEWEST,
        )

    def _topic(self, topic: str, partitions: list[TopicPartition], leaders: Leaders) -> Any:
        kind = FetchRequest.FetchTopic
        return kind(
            topic=topic,
            topic_id=self._topic_id(topic),
            partitions=[
                kind.FetchPartition(
                    partition=each.partition,
                    current_leader_epoch=leaders[each].leader_epoch,
                    fetch_offset=self._offsets[each],
                    partition_max_bytes=self._max_bytes,
                )
                for each in partitions
            ],
        )

    def _topic_id(self, topic: str) -> UUID:
        known = self._client.topic(topic)
        return known.topic_id if known else NO_TOPIC_ID

    def error_of_all(self, response: Any) -> int:
        return int(response.error_code)

    def answers(self, response: Any) -> Iterable[tuple[TopicPartition, int, FetchedRecords]]:
        names = {self._topic_id(each.topic): each.topic for each in self._offsets}
        found = (
            (TopicPartition(names.get(topic.topic_id) or topic.topic or "", answer.partition_index), answer)
            for topic in response.responses or ()
            for answer in topic.partitions or ()
        )
        return [
            (partition, answer.error_code, fetched_records(partition, self._offsets.get(partition, -1), answer))
            for partition, answer in found
        ]

    def subject(self, partition: TopicPartition) -> str:
        return f"partition {partition}, offset {self._offsets[partition]}"

"""Fetch of raw record bytes from a partition's leader, or from the replica that the leader names (Kafka: KIP-392).

We use no fetch session (KIP-227): a split reads one partition, so each Fetch names it in full. `first_batches` fetches
from many partitions at once. `location_fetch` asks for segment locations, not for records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import NO_TOPIC_ID
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.leaders import LeaderRequest, Leaders, ask_leaders, ask_node
from tiered_stream.broker.list_offsets import ListOffsets, isolation_code
from tiered_stream.errors import OffsetOutOfRangeError, TopicRecreatedError
from tiered_stream.model import TopicPartition, uuid_to_text
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST, LATEST

# Fetch versions: 4 = first with isolation level and record batches, 12 = last by topic name, 13 = first by topic id
# (KIP-516), 17 = last with a change for consumers.
OLDEST, LAST_BY_NAME, NEWEST = 4, 12, 17


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Records and log bounds that one Fetch returned for a partition, from `fetch_offset` on.

    `records` are record batches as they are in the log: the first may begin below `fetch_offset`, the last may be cut
    off. If they are large (64 KiB or more), they are a read-only view of the broker's response. Under read_committed
    the records end below `last_stable_offset`, and `aborted_transactions` are the broker's pairs
    (producer id, first offset) for them; under read_uncommitted there are no pairs. `throttled`: the broker may have
    sent no records because the client is beyond its quota (KIP-219).
    """

    topic_partition: TopicPartition
    fetch_offset: int
    records: bytes | memoryview = field(repr=False)
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: tuple[tuple[int, int], ...] = ()
    throttled: bool = False


def fetched_records(partition: TopicPartition, offset: int, answer: Any, *, throttled: bool = False) -> FetchedRecords:
    """Convert a partition's part of a Fetch response, which was requested from `offset` on, into `FetchedRecords`."""
    return FetchedRecords(
        partition, offset, answer.records or b"",
        answer.high_watermark, answer.last_stable_offset, answer.log_start_offset,
        tuple((entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or ()), throttled,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FetchTerms:
    """Settings of a Fetch: sizes and waits as in Kafka's `max.partition.fetch.bytes`, `fetch.max.wait.ms` and
    `fetch.min.bytes`. If `topic_id` is given, records of another topic with the same name are refused.
    """

    isolation: IsolationLevel
    max_bytes: int
    max_wait_ms: int
    min_bytes: int = 1
    topic_id: UUID | None = None


def fetch_records(
    client: BrokerClient,
    topic_partition: TopicPartition,
    offset: int,
    *,
    isolation: IsolationLevel,
    max_bytes: int,
    max_wait_ms: int,
    min_bytes: int = 1,
    topic_id: UUID | None = None,
    patience_ms: int | None = None,
) -> FetchedRecords:
    """Fetch records of a partition from an offset on, and return the result of one Fetch.

    The call gives up after `max_wait_ms` plus `patience_ms` (None: `default.api.timeout.ms`). If the log has a batch
    within `max_wait_ms`, at least one whole batch is returned, however large it is.

    Raises:
        OffsetOutOfRangeError: the offset lies outside the log; the message names the log's bounds.
        TopicRecreatedError: the topic does not have the id `topic_id` any more.
        UnknownTopicError, BrokerAuthorizationError, BrokerUnavailableError: as `leaders.ask_leaders`.
    """
    terms = FetchTerms(isolation, max_bytes, max_wait_ms, min_bytes, topic_id)
    return client.run(lambda: fetch(client, topic_partition, offset, terms, client.deadline(patience_ms, max_wait_ms)))


async def fetch(
    client: BrokerClient, partition: TopicPartition, offset: int, terms: FetchTerms, deadline: Deadline
) -> FetchedRecords:
    """Fetch records of a partition from an offset on. Runs on the network thread. Raises: as `fetch_records`."""
    request = _Fetch(client, partition, offset, terms, client.config.client_rack)
    if terms.topic_id is not None:
        await client.expect_topic(partition.topic, terms.topic_id, deadline)
    try:
        replica = client.read_replicas.get(partition)
        if replica is None:
            answer = (await ask_leaders(client, request, [partition], deadline))[partition]
            if answer.read_replica < 0:
                return answer.fetched
            replica = client.read_replicas[partition] = answer.read_replica
        fetched = await _from_replica(client, request, replica, deadline)
        if fetched is not None and fetched.records:
            return fetched
        # The replica is gone or behind. To a Fetch without a rack, the leader does not name the replica again.
        client.read_replicas.pop(partition, None)
        request = _Fetch(client, partition, offset, terms, rack="")
        return (await ask_leaders(client, request, [partition], deadline))[partition].fetched
    except OffsetOutOfRangeError as error:
        raise await _out_of_range(client, partition, offset, terms, deadline) from error


async def _from_replica(
    client: BrokerClient, request: _Fetch, replica: int, deadline: Deadline
) -> FetchedRecords | None:
    partition = request.partition
    leaders = await client.leaders([partition], deadline)
    answers = await ask_node(client, request, replica, leaders, deadline)
    return answers.found[partition].fetched if partition in answers.found else None


async def _out_of_range(
    client: BrokerClient, partition: TopicPartition, offset: int, terms: FetchTerms, deadline: Deadline
) -> OffsetOutOfRangeError:
    bounds = []
    for special in (EARLIEST, LATEST):
        request = ListOffsets({partition: special}, terms.isolation, client.config.request_timeout_ms)
        bounds.append((await ask_leaders(client, request, [partition], deadline))[partition])
    return OffsetOutOfRangeError(
        f"partition {partition}: offset {offset} is not in the log, which begins at {bounds[0]} and ends before "
        f"{bounds[1]}"
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    fetched: FetchedRecords
    read_replica: int


class _Fetch(LeaderRequest[_Answer]):
    needed_acl = "READ on the topic"

    def __init__(
        self, client: BrokerClient, partition: TopicPartition, offset: int, terms: FetchTerms, rack: str
    ) -> None:
        self._client = client
        self.partition = partition
        self._offset = offset
        self._terms = terms
        self._rack = rack

    def message(self, leaders: Leaders) -> Any:
        terms = self._terms
        topic_id = self._topic_id()
        kind = FetchRequest.FetchTopic
        partition = kind.FetchPartition(
            partition=self.partition.partition,
            current_leader_epoch=leaders[self.partition].leader_epoch,
            fetch_offset=self._offset,
            partition_max_bytes=terms.max_bytes,
        )
        return FetchRequest(
            # The broker must answer before our own timer closes the connection.
            max_wait_ms=min(terms.max_wait_ms, self._client.config.request_timeout_ms // 2),
            min_bytes=terms.min_bytes,
            max_bytes=terms.max_bytes,
            isolation_level=isolation_code(terms.isolation),
            topics=[kind(topic=self.partition.topic, topic_id=topic_id, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id=self._rack,
            min_version=OLDEST,
            max_version=LAST_BY_NAME if topic_id == NO_TOPIC_ID else NEWEST,
        )

    def _topic_id(self) -> UUID:
        topic = self._client.topic(self.partition.topic)
        known = topic.topic_id if topic else NO_TOPIC_ID
        wanted = self._terms.topic_id
        if wanted is not None and wanted != known:
            raise TopicRecreatedError(
                f"topic {self.partition.topic!r} was deleted and made again: its id is {uuid_to_text(known)}, not "
                f"{uuid_to_text(wanted)}; the offsets that were planned belong to records that are gone"
            )
        return known

    def error_of_all(self, response: Any) -> int:
        return int(response.error_code)

    def answers(self, response: Any) -> Iterable[tuple[TopicPartition, int, _Answer]]:
        throttled = response.throttle_time_ms > 0
        return [
            (
                TopicPartition(self.partition.topic, answer.partition_index),
                answer.error_code,
                _Answer(
                    fetched_records(self.partition, self._offset, answer, throttled=throttled),
                    answer.preferred_read_replica,
                ),
            )
            for topic in response.responses or ()
            for answer in topic.partitions or ()
        ]

    def subject(self, partition: TopicPartition) -> str:
        return f"partition {partition}, offset {self._offset}"

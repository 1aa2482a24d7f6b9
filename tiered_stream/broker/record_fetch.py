"""Fetch of raw record bytes from a partition's leader, or from the replica that the leader names (Kafka: KIP-392).

We use no fetch session (KIP-227), because a reader reads only one partition, which each Fetch can name. `read_range`
reads all records of an offset range, with one Fetch always in flight ahead of the reader. `fetch_first_batches` fetches
from many partitions at once. `location_fetch` fetches no records, but the places of tiered segments.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.leader_requests import (
    LeaderRequest,
    ask_each_leader,
    ask_leaders,
    ask_node,
)
from tiered_stream.broker.list_offsets import BrokerOffsetReader, isolation_code, list_offsets
from tiered_stream.errors import (
    BrokerUnavailableError,
    CorruptDataError,
    FetchTimeoutError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from tiered_stream.model import NO_TOPIC_ID, OffsetRange, PartialAnswer, TopicPartition, uuid_to_text
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import EARLIEST, LATEST
from tiered_stream.options.spark_options import POLL_TIMEOUT_MS
from tiered_stream.records.header import LAST_OFFSET_DELTA, MAGIC, whole_batches

# Fetch versions: 4 = first with isolation level and record batches, 12 = last by topic name, 13 = first by topic id
# (KIP-516), 17 = last with a change for consumers.
_OLDEST, _LAST_BY_NAME, _NEWEST = 4, 12, 17
_RESPONSE_BYTES = 16 << 20
"""Maximum number of record bytes in one response."""


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Records and log ends that one Fetch returned for a partition, from `fetch_offset` on.

    Args:
        records: record batches as they are in the log. The first batch may begin below `fetch_offset`, and the last
            batch may be cut off. If they have 64 KiB or more, they are a read-only view of the broker's response. Under
            read_committed, the records end below `last_stable_offset`.
        aborted_transactions: pairs of producer id and first offset for the aborted transactions in `records`; empty
            under read_uncommitted.
        throttled: true if the broker may have sent no records because the client is beyond its quota (KIP-219).
        read_replica: the broker id of the replica to fetch from instead of the leader (KIP-392); -1: the leader.
    """

    topic_partition: TopicPartition
    fetch_offset: int
    records: bytes | memoryview = field(repr=False)
    high_watermark: int
    last_stable_offset: int
    aborted_transactions: tuple[tuple[int, int], ...] = ()
    throttled: bool = False
    read_replica: int = -1


@dataclass(frozen=True, slots=True)
class FetchTerms:
    """Settings of a Fetch.

    Args:
        max_bytes: the maximum of record bytes of one partition (Kafka: `max.partition.fetch.bytes`).
        max_wait_ms: the longest time that the broker waits for `min_bytes` (Kafka: `fetch.max.wait.ms`).
        min_bytes: the number of record bytes that the broker waits for (Kafka: `fetch.min.bytes`).
        topic_id: the id that the topic must have; the Fetch of another topic with this name raises TopicRecreatedError.
            None: any id.
        response_bytes: the maximum of record bytes of all partitions in a response; 0: `max_bytes`.
    """

    isolation: IsolationLevel
    max_bytes: int
    max_wait_ms: int
    min_bytes: int = 1
    topic_id: UUID | None = None
    response_bytes: int = 0


def check_authorized_to_read(
    client: BrokerClient,
    partition: TopicPartition,
    isolation: IsolationLevel,
    topic_id: UUID | None = None,
    end: int | None = None,
) -> None:
    """Check that the user is authorized to READ a topic, by a Fetch at the end of `partition`, where no record is.

    `topic_id` is the id that the topic must have; None: any id. `end` is the end offset of the partition; None: the end
    offset is requested from the leader.

    Raises:
        TopicRecreatedError: the topic does not have the id `topic_id` any more.
        BrokerAuthorizationError: the user is not authorized to READ the topic.
        UnknownTopicError: the topic or the partition does not exist.
        BrokerError: the brokers do not respond, or respond with an error.
    """
    if end is None:
        end = BrokerOffsetReader(client, isolation).latest([partition])[partition]
    with suppress(OffsetOutOfRangeError):  # proves that the user may read; another leader's log may end earlier
        fetch_records(client, partition, end, FetchTerms(isolation, max_bytes=1, max_wait_ms=0, topic_id=topic_id))


def fetch_records(
    client: BrokerClient, partition: TopicPartition, offset: int, terms: FetchTerms, patience_ms: int | None = None
) -> FetchedRecords:
    """Fetch records of a partition from an offset on, and return the result of one Fetch.

    Failed attempts are repeated for `patience_ms` (None: `default.api.timeout.ms`) plus the `max_wait_ms` of `terms`.
    If the log has a batch within `max_wait_ms`, at least one whole batch is returned, however large it is. Otherwise
    the result has no records.

    Raises:
        OffsetOutOfRangeError: the offset lies outside the log; the message names the log's bounds.
        TopicRecreatedError: the topic does not have the id `terms.topic_id` any more.
        UnknownTopicError, BrokerAuthorizationError, BrokerError: the broker refused the request.
        BrokerUnavailableError: no attempt succeeded in time; the message has the last reason.
    """
    return client.run(lambda: fetch(client, partition, offset, terms, client.deadline(patience_ms, terms.max_wait_ms)))


async def fetch(
    client: BrokerClient, partition: TopicPartition, offset: int, terms: FetchTerms, deadline: Deadline
) -> FetchedRecords:
    """Fetch records of a partition from an offset on, and return the result of one Fetch.

    Runs on the network thread. Failed attempts are repeated until `deadline`. The result and the errors are described
    at `fetch_records`.
    """
    request = RecordFetch(client, {partition: offset}, terms, client.config.client_rack)
    if terms.topic_id is not None and terms.topic_id != client.topic_id(partition.topic):
        await client.fetch_metadata([partition.topic], deadline)
    try:
        replica = client.read_replicas.get(partition)
        if replica is None:
            fetched = (await ask_leaders(client, request, [partition], deadline))[partition]
            if fetched.read_replica < 0:
                return fetched
            replica = client.read_replicas[partition] = fetched.read_replica
        leaders = await client.leaders([partition], deadline)
        outcome = await ask_node(client, request, replica, leaders, deadline)
        if partition in outcome.results and outcome.results[partition].records:
            return outcome.results[partition]
        # The replica is gone or behind. If a Fetch has no rack, the leader names no replica, and sends the records.
        client.read_replicas.pop(partition, None)
        request = RecordFetch(client, {partition: offset}, terms)
        return (await ask_leaders(client, request, [partition], deadline))[partition]
    except OffsetOutOfRangeError as error:
        raise await _out_of_range(client, partition, offset, terms, deadline) from error


async def _out_of_range(
    client: BrokerClient, partition: TopicPartition, offset: int, terms: FetchTerms, deadline: Deadline
) -> OffsetOutOfRangeError:
    begin, end = [
        (await list_offsets(client, {partition: special}, terms.isolation, deadline))[partition]
        for special in (EARLIEST, LATEST)
    ]
    return OffsetOutOfRangeError(
        f"partition {partition}: offset {offset} is not in the log, which begins at {begin} and ends before {end}"
    )


@dataclass(frozen=True)
class RecordFetch(LeaderRequest[FetchedRecords]):
    """Fetch request for records of several partitions, from the offset in `_offsets` of each partition on.

    If `_rack` is not empty, a leader may name a replica in this rack to fetch from instead (KIP-392).
    """

    needed_acl = "READ on the topic"

    _client: BrokerClient
    _offsets: Mapping[TopicPartition, int]
    _terms: FetchTerms
    _rack: str = ""
    _names: dict[UUID, str] = field(default_factory=dict, init=False)
    """Names of topics by the ids in the requests so far. When a response comes, the client may know a newer id."""

    def request(self, topics: list[Any]) -> Any:
        terms = self._terms
        by_name = any(topic.topic_id == NO_TOPIC_ID for topic in topics)
        return FetchRequest(
            # The broker must respond before our own timer closes the connection.
            max_wait_ms=min(terms.max_wait_ms, self._client.config.request_timeout_ms // 2),
            min_bytes=terms.min_bytes,
            max_bytes=terms.response_bytes or terms.max_bytes,
            isolation_level=isolation_code(terms.isolation),
            topics=topics,
            forgotten_topics_data=[],
            rack_id=self._rack,
            min_version=_OLDEST,
            max_version=_LAST_BY_NAME if by_name else _NEWEST,
        )

    def topic(self, name: str, partitions: list[Any]) -> Any:
        topic_id, expected = self._client.topic_id(name), self._terms.topic_id
        if expected is not None and expected != topic_id:
            raise TopicRecreatedError(
                f"topic {name!r} was deleted and made again: its id is {uuid_to_text(topic_id)}, not "
                f"{uuid_to_text(expected)}; the offsets that were planned belong to records that are gone"
            )
        self._names[topic_id] = name
        return FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)

    def partition(self, partition: TopicPartition, leader_epoch: int) -> Any:
        return FetchRequest.FetchTopic.FetchPartition(
            partition=partition.partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=self._offsets[partition],
            partition_max_bytes=self._terms.max_bytes,
        )

    def response_error(self, response: Any) -> int:
        return int(response.error_code)

    def results(self, response: Any) -> Iterable[tuple[TopicPartition, int, FetchedRecords]]:
        for topic in response.responses or ():
            for data in topic.partitions or ():
                partition = TopicPartition(topic.topic or self._names.get(topic.topic_id, ""), data.partition_index)
                yield partition, data.error_code, self._fetched(partition, data, response.throttle_time_ms > 0)

    def _fetched(self, partition: TopicPartition, data: Any, throttled: bool) -> FetchedRecords:
        return FetchedRecords(
            partition, self._offsets.get(partition, -1), data.records or b"",
            data.high_watermark, data.last_stable_offset,
            tuple((entry.producer_id, entry.first_offset) for entry in data.aborted_transactions or ()),
            throttled, data.preferred_read_replica,
        )  # fmt: skip

    def subject(self, partition: TopicPartition) -> str:
        return f"partition {partition}, offset {self._offsets[partition]}"


def fetch_first_batches(
    client: BrokerClient,
    offsets: Mapping[TopicPartition, int],
    max_bytes: int,
    isolation: IsolationLevel,
    patience_ms: int | None = None,
) -> PartialAnswer[TopicPartition, FetchedRecords]:
    """Fetch at most `max_bytes` of records from each partition's offset on, without waiting for new records.

    The result has the records or an error for each partition. If a partition's first batch is larger than `max_bytes`,
    the broker usually returns no records for the partition (KIP-74). Partitions are requested in groups whose records
    fit into 16 MiB, one group after the other, with one request to each leader.

    `patience_ms` is the time limit of one group; None: `default.api.timeout.ms`.

    Raises:
        BrokerError, ConfigurationError: the topics' metadata cannot be read, for example because a topic does not
            exist.
    """
    answer: PartialAnswer[TopicPartition, FetchedRecords] = PartialAnswer({}, {})
    terms = FetchTerms(isolation, max_bytes, max_wait_ms=0, response_bytes=_RESPONSE_BYTES)
    partitions, request_size = list(offsets), max(1, _RESPONSE_BYTES // max_bytes)
    for start in range(0, len(partitions), request_size):
        requested = {partition: offsets[partition] for partition in partitions[start : start + request_size]}
        request = RecordFetch(client, requested, terms)
        fetched = client.run(partial(ask_each_leader, client, request, requested, patience_ms))
        answer.found.update(fetched.found)
        answer.faults.update(fetched.faults)
    return answer


def read_range(
    client: BrokerClient,
    topic_partition: TopicPartition,
    offsets: OffsetRange,
    isolation: IsolationLevel,
    *,
    poll_timeout_ms: int,
    topic_id: UUID | None = None,
) -> Iterator[FetchedRecords]:
    """Yield the records of `offsets` in order, in responses of about `client.config.fetch_max_bytes`.

    Each response has at least one whole batch. The next Fetch is under way while the caller holds a response, so at
    most two responses are in memory. The first and the last batch may reach beyond the range. The iterator ends early
    at the end of the log (high watermark, or last stable offset under read_committed).

    Raises:
        FetchTimeoutError: no whole batch came within `poll_timeout_ms` of waiting, although the log has more offsets.
        CorruptDataError: a response is not a sequence of batches, or does not reach the requested offset.
        OffsetOutOfRangeError: an offset of the range lies outside the log.
        TopicRecreatedError: the topic does not have the id `topic_id` any more.
        UnknownTopicError, BrokerAuthorizationError: the broker refused the request.
    """
    if not len(offsets):
        return
    config = client.config
    terms = FetchTerms(isolation, config.fetch_max_bytes, config.fetch_max_wait_ms, config.fetch_min_bytes, topic_id)
    position = _Position(client, topic_partition, offsets.start, terms, poll_timeout_ms)
    while (fetched := position.poll()) is not None:
        if position.offset < offsets.end:
            position.start_fetch(position.patience())
        yield fetched
        if position.offset >= offsets.end:
            return


@dataclass(slots=True)
class _Position:
    """Position of a reader in a partition: the next offset to fetch, and the Fetch from there that is under way."""

    client: BrokerClient
    partition: TopicPartition
    offset: int
    terms: FetchTerms
    poll_timeout_ms: int
    _fetch: Future[FetchedRecords] | None = None

    def patience(self) -> Deadline:
        """Return a deadline `kafkaConsumer.pollTimeoutMs` from now."""
        return Deadline(self.poll_timeout_ms, POLL_TIMEOUT_MS.name)

    def start_fetch(self, deadline: Deadline) -> Future[FetchedRecords]:
        """Start a Fetch at the next offset, repeated until `deadline`, and return a future of its result."""
        self._fetch = self.client.start(partial(fetch, self.client, self.partition, self.offset, self.terms, deadline))
        return self._fetch

    def poll(self) -> FetchedRecords | None:
        """Wait for a response with whole batches, move the next offset past these batches, and return the response.

        None: the log ends at the next offset. The errors are described at `read_range`.
        """
        patience, reason = self.patience(), BrokerUnavailableError("the responses had no record")
        while True:
            try:
                fetched = self._fetched(patience)
                following = offset_after(fetched)
                if following is not None:
                    self.offset = following
                    return fetched
                if fetched.records:  # a broker sends the first batch whole, however large it is (KIP-74)
                    raise _corrupt(fetched, f"no whole batch in {len(fetched.records)} bytes")
                if self._at_log_end(fetched, patience):
                    return None
            except BrokerUnavailableError as error:
                # A Fetch that was under way while the caller was busy may have reached its own deadline: try again.
                reason = error
            else:  # for example, remote storage did not respond to the broker in time
                time.sleep(self.client.config.retry_backoff_ms / 1000)
            if not patience.remaining_ms:
                raise FetchTimeoutError(
                    f"partition {self.partition}: cannot fetch record for offset {self.offset} in {patience}: {reason}"
                ) from reason

    def _fetched(self, patience: Deadline) -> FetchedRecords:
        under_way, self._fetch = self._fetch or self.start_fetch(patience), None
        return under_way.result()

    def _at_log_end(self, fetched: FetchedRecords, patience: Deadline) -> bool:
        isolation, partition = self.terms.isolation, self.partition
        committed = isolation is IsolationLevel.READ_COMMITTED
        if self.offset < (fetched.last_stable_offset if committed else fetched.high_watermark):
            return False
        # A new leader's high watermark lags for a moment; ListOffsets waits until it is up to date (KIP-207).
        ends = self.client.run(lambda: list_offsets(self.client, {partition: LATEST}, isolation, patience))
        return ends[partition] <= self.offset


def offset_after(fetched: FetchedRecords) -> int | None:
    """Return the offset after the last whole batch in the records; None: there is no whole batch.

    Raises:
        CorruptDataError: the records are not batches, or the last whole batch ends before the requested offset.
    """
    following = None
    try:
        for position, base_offset, magic in whole_batches(fetched.records):
            delta = LAST_OFFSET_DELTA.unpack_from(fetched.records, position)[0] if magic == MAGIC else 0
            following = base_offset + delta + 1
    except CorruptDataError as error:
        raise _corrupt(fetched, str(error)) from error
    if following is not None and following <= fetched.fetch_offset:
        raise _corrupt(fetched, f"the last batch ends before offset {following}")
    return following


def _corrupt(fetched: FetchedRecords, what: str) -> CorruptDataError:
    return CorruptDataError(f"Fetch of partition {fetched.topic_partition}, offset {fetched.fetch_offset}: {what}")

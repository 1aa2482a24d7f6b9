"""What readers get from brokers, or from a gateway: the answers of every API that they ask.

The client is the product's, without its network thread: requests are encoded, and the case is what comes back, read as
on a connection. An answer that asks for another attempt gets none.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafka.protocol.consumer.group import OffsetCommitResponse, OffsetFetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse

from tests.broker.scripted import metadata
from tests.broker.wire.segment_entries import SegmentEntry, encode_entries
from tests.gateway.requests import TOPIC_ID
from tests.rigs.fuzz import kafka_messages
from tests.rigs.fuzz.mutation import below, fixed, number, one, spoiled, uvarint
from tests.rigs.fuzz.target import MIB, Target
from tiered_stream.broker.client import BrokerClient, supported_feature
from tiered_stream.broker.client_properties import BrokerConfig
from tiered_stream.broker.cluster_metadata import metadata_request, read_topics
from tiered_stream.broker.connections import Connections, Deadline
from tiered_stream.broker.group_offsets import GroupOffsets
from tiered_stream.broker.kafka_errors import connection_fault
from tiered_stream.broker.leader_epochs import leader_epoch_end_offsets
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.broker.record_fetch import FetchTerms, fetch_records, offset_after
from tiered_stream.broker.wire.kafka_python import InterpretingProtocol
from tiered_stream.broker.wire.location_messages import FetchTopic, LocatedPartition, LocationFetchResponse
from tiered_stream.errors import BrokerUnavailableError
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.model import AbortedTransaction, LeaderEpoch, OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.records.header import aborted_in_fetched

T = TypeVar("T")

PARTITION = TopicPartition("t", 0)
CONFIG = BrokerConfig.parse({"bootstrap.servers": "made-up:1"})
_LONG_NUMBERS = 0.001
"""Of the answers: they have a varint of 600 KB."""
VERSIONS = {1: 17, 2: 8, 3: 12, 8: 9, 9: 7, 10: 3, 18: 4, 23: 4}
_KNOWN_METADATA = read_topics(metadata(topic_id=TOPIC_ID))[0]


class OneAnswerClient(BrokerClient):
    """Every request gets the same bytes; nothing is asked twice."""

    def __init__(self, answer: bytes) -> None:
        self.config = CONFIG
        self._answer = answer
        self._topics = {topic: (float("inf"), found) for topic, found in _KNOWN_METADATA.items()}
        self.read_replicas = {}
        self.troubles = {}
        self.connections = cast(Connections, self)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            work().send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        raise AssertionError("it waits for something else than the answer")

    async def gather(self, works: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
        return [await work() for work in works]

    async def back_off(self, attempt: int, deadline: Deadline) -> None:
        raise BrokerUnavailableError("nothing is asked twice")

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(self.run(work))
        return done

    async def ask_any(self, build: Callable[[], Any], deadline: Deadline) -> Any:
        return await self.request(1, build(), deadline)

    async def request(self, node_id: int, message: Any, deadline: Deadline) -> Any:
        """Sent and received as by kafka-python's connections; errors are mapped as by `Connections.request`."""
        message.API_VERSION = VERSIONS[message.API_KEY]
        protocol = InterpretingProtocol(client_id="fuzz", receive_message_max_bytes=1 << 30)
        try:
            protocol.send_request(message, correlation_id=1)
            answers = protocol.receive_bytes(fixed(len(self._answer), 4) + self._answer)
        except Exception as error:
            raise connection_fault(error, f"broker {node_id}", CONFIG.security) from error
        if not answers:
            raise BrokerUnavailableError("half an answer")
        return answers[0][1]


def _answer(kind: Any, version: int, **known: Any) -> Callable[[Random], bytes]:
    def make(random: Random) -> bytes:
        answer = kafka_messages.response(random, kind, version, **known)
        if random.random() > _LONG_NUMBERS:
            return answer
        at = below(random, len(answer))
        return answer[:at] + one(random, (b"\xff", b"\x80")) * 600_000 + answer[at:]

    return make


def list_offsets(data: bytes) -> None:
    BrokerOffsetReader(OneAnswerClient(data), IsolationLevel.READ_COMMITTED).latest([PARTITION])


def leader_epochs(data: bytes) -> None:
    answer = leader_epoch_end_offsets(OneAnswerClient(data), {PARTITION: 5})
    for fault in answer.faults.values():
        raise fault


def fetch(data: bytes) -> None:
    terms = FetchTerms(IsolationLevel.READ_COMMITTED, max_bytes=1 << 20, max_wait_ms=0, topic_id=TOPIC_ID)
    fetched = fetch_records(OneAnswerClient(data), PARTITION, 3, terms)
    offset_after(fetched)
    aborted_in_fetched(fetched.records, fetched.aborted_transactions, 100)


def describe_topics(data: bytes) -> None:
    response = OneAnswerClient(data).ask_any_broker(lambda: metadata_request(None))
    topics, _ = read_topics(response)
    for topic in topics.values():
        sorted(topic.partitions)


def features(data: bytes) -> None:
    supported_feature(OneAnswerClient(data), "remote.log.segment.location")


class Coordinator(OneAnswerClient):
    """Broker 1 coordinates every group."""

    async def ask_any(self, build: Callable[[], Any], deadline: Deadline) -> Any:
        return SimpleNamespace(error_code=0, node_id=1)


def find_coordinator(data: bytes) -> None:
    GroupOffsets(OneAnswerClient(data), "g").committed([PARTITION])


def group_offsets(data: bytes) -> None:
    (offset,) = GroupOffsets(Coordinator(data), "g").committed([PARTITION]).values()
    assert offset is None or offset >= 0


def group_commit(data: bytes) -> None:
    GroupOffsets(Coordinator(data), "g").start_commit({PARTITION: 5}).result()


def segment(random: Random, start: int) -> SegmentEntry:
    """A segment of ten offsets, all of it located."""
    numbers = [start, start + 9, 1000, start, start + 10, 0, 1000, -1, -1]
    if random.random() < 0.3:
        at = below(random, 9)
        numbers[at] = numbers[at] + one(random, (-1, 1)) if random.random() < 0.5 else number(random)
        limit = 1 << (31 if at == 2 else 31 if at in (5, 6) else 63)
        numbers[at] = max(-limit, min(limit - 1, numbers[at]))
    return SegmentEntry(
        UUID(int=one(random, (0, 1 + start, 1 + start, 1 + start))),
        one(random, (None, b"", b"\1\0\1\0")),
        one(random, (None, "https://s3.example.com/b/k?X-Amz-Signature=0", "")),
        one(random, ("ApacheKafkaV1", "ApacheKafkaV1", "x")),
        numbers[0],
        numbers[1],
        numbers[2],
        numbers[3],
        numbers[4],
        numbers[5],
        numbers[6],
        numbers[7],
        numbers[8],
        tuple(LeaderEpoch(each, start) for each in range(below(random, 3))),
        tuple(AbortedTransaction(5, start, start + each) for each in range(below(random, 3))),
    )


def locations(random: Random) -> bytes:
    """A Fetch answer that names segments, or something like them."""
    count = one(random, (0, 1, 2, 3, 30))
    segments = encode_entries([segment(random, 10 * each) for each in range(count)])
    if random.random() < 0.4:
        segments = spoiled(random, segments)
    partition = LocatedPartition(
        0, one(random, (0, 0, 0, 0, 0, 1, 3, 6, 29)), 1000, 900, 0, remote_log_segments=segments,
        located_end_offset=one(random, (300, 300, 300, 900, 0, -1, 10, -(1 << 63), (1 << 63) - 1)),
    )  # fmt: skip
    answer = LocationFetchResponse(0, 0, 0, [FetchTopic(TOPIC_ID, [partition] * one(random, (1, 1, 1, 2)))])
    made = fixed(1, 4) + uvarint(0) + b"".join(answer.pieces())
    return spoiled(random, made) if random.random() < 0.3 else made


def locate(data: bytes) -> None:
    locator = BrokerLocator(OneAnswerClient(data), IsolationLevel.READ_COMMITTED, part_bytes=1 << 20)
    wanted = OffsetRange(0, 300)
    found = locator.locate({PARTITION: wanted})[PARTITION]
    for each in found:
        assert wanted.start <= each.offsets.start < each.offsets.end <= wanted.end
    locator.segments({PARTITION: wanted})
    for each in found[:3]:
        locator.cut_all([(each, 100)])


TARGETS = (
    Target("fetch-answers", _answer(FetchResponse, 17, error_code=0, preferred_read_replica=-1), fetch),
    Target("list-offsets-answers", _answer(ListOffsetsResponse, 8, error_code=0, offset=50), list_offsets),
    Target("leader-epoch-answers", _answer(OffsetForLeaderEpochResponse, 4, error_code=0), leader_epochs),
    Target("metadata-answers", _answer(MetadataResponse, 12, error_code=0), describe_topics),
    Target("api-versions-answers", _answer(ApiVersionsResponse, 4, error_code=0), features),
    Target("coordinator-answers", _answer(FindCoordinatorResponse, 3, error_code=0), find_coordinator),
    Target("group-offset-answers", _answer(OffsetFetchResponse, 7, error_code=0), group_offsets),
    Target("group-commit-answers", _answer(OffsetCommitResponse, 9, error_code=0), group_commit),
    Target("location-answers", locations, locate, memory=64 * MIB),
)

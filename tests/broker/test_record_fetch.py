from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka.record import MemoryRecords

from tests.reading import tier_segments
from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.consume import READ_UNCOMMITTED, read_topic
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, roll, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.record_fetch import FetchedRecords, FetchTerms, fetch_records, read_range
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
MAX_BYTES, MAX_WAIT_MS = 1 << 20, 500
PATIENT_MS = 600_000

Values = list[tuple[int, bytes | None, bytes | None]]


def read(client: BrokerClient, topic: str, offsets: OffsetRange, isolation: IsolationLevel = COMMITTED) -> Values:
    """Offset, key and value of the whole batches, as kafka-python's own record reader sees them."""
    found: Values = []
    for answer in read_range(client, TopicPartition(topic, 0), offsets, isolation, poll_timeout_ms=PATIENT_MS):
        batches = MemoryRecords(answer.records)
        while batches.has_next():
            found.extend((record.offset, record.key, record.value) for record in batches.next_batch())
    return [row for row in found if row[0] in offsets]


def consumed(stack: TieredStack, topic: str) -> Values:
    rows = read_topic(stack.broker, topic, READ_UNCOMMITTED, {0: (0, log_end(stack, topic))})
    return [(row.offset, row.key, row.value) for row in rows]


def small_fetches(stack: TieredStack, max_bytes: int) -> BrokerClient:
    return BrokerClient({"bootstrap.servers": stack.bootstrap_servers, "max.partition.fetch.bytes": str(max_bytes)})


def log_end(stack: TieredStack, topic: str) -> int:
    with BrokerClient({"bootstrap.servers": stack.bootstrap_servers}) as client:
        partition = TopicPartition(topic, 0)
        terms = FetchTerms(UNCOMMITTED, max_bytes=1, max_wait_ms=MAX_WAIT_MS)
        return fetch_records(client, partition, 0, terms).high_watermark


@pytest.mark.parametrize("tiered", [False, True])
def test_a_range_read_raw_is_what_kafkas_own_consumer_reads(stack: TieredStack, topic: str, tiered: bool) -> None:
    create_tiered_topic(stack.broker, topic)
    produce_bulk(stack.broker, topic, records=30_000, record_bytes=100)
    if tiered:
        roll(stack.broker, topic)
        wait_until_tiered(stack.broker, topic)
    end = log_end(stack, topic)
    expected = consumed(stack, topic)

    with small_fetches(stack, 200_000) as client:
        for offsets in (OffsetRange(0, end), OffsetRange(7_777, 12_345), OffsetRange(end - 1, end)):
            assert read(client, topic, offsets) == expected[offsets.start : offsets.end]


def test_a_batch_that_is_larger_than_asked_for_comes_whole(stack: TieredStack, topic: str) -> None:
    create_tiered_topic(stack.broker, topic)
    with RawProducer(stack.broker) as producer:
        for _ in range(3):
            producer.send(topic, [Record(value=bytes(300_000))])

    with small_fetches(stack, 1_000) as client:
        found = read(client, topic, OffsetRange(0, 3))

    assert found == [(offset, None, bytes(300_000)) for offset in range(3)]


def test_read_committed_stops_at_the_open_transaction_and_names_the_aborted_one(
    stack: TieredStack, client: BrokerClient, topic: str
) -> None:
    create_tiered_topic(stack.broker, topic)
    partition = TopicPartition(topic, 0)
    with TransactionalProducer(stack.broker, f"{topic}-a") as aborted, RawProducer(stack.broker) as plain:
        plain.send(topic, [Record(value=b"plain")])
        aborted.send(topic, [Record(value=b"void")] * 2)
        aborted.abort()
        wait_until(lambda: log_end(stack, topic) == 4, "the abort marker")
        with TransactionalProducer(stack.broker, f"{topic}-b") as undecided:
            undecided.send(topic, [Record(value=b"open")] * 3)

            def fetch(isolation: IsolationLevel) -> FetchedRecords:
                return fetch_records(client, partition, 0, FetchTerms(isolation, MAX_BYTES, MAX_WAIT_MS))

            def offsets_of(isolation: IsolationLevel) -> list[int]:
                return [row[0] for row in read(client, topic, OffsetRange(0, 7), isolation)]

            committed, uncommitted = fetch(COMMITTED), fetch(UNCOMMITTED)
            visible, written = offsets_of(COMMITTED), offsets_of(UNCOMMITTED)
            undecided.abort()

    assert (committed.last_stable_offset, committed.high_watermark) == (4, 7)
    assert committed.aborted_transactions == ((aborted.producer_id, 1),)
    assert uncommitted.aborted_transactions == ()
    assert (visible, written) == ([0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6])


def test_an_empty_partition_gives_an_empty_answer(stack: TieredStack, client: BrokerClient, topic: str) -> None:
    create_tiered_topic(stack.broker, topic)

    answer = fetch_records(client, TopicPartition(topic, 0), 0, FetchTerms(COMMITTED, MAX_BYTES, max_wait_ms=0))

    assert answer == FetchedRecords(TopicPartition(topic, 0), 0, b"", 0, 0, ())


def test_a_broker_whose_own_read_from_storage_failed_is_asked_again(
    stack: TieredStack, client: BrokerClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    end = tier_segments(stack, topic, [200]) - 1
    expected = consumed(stack, topic)[:end]
    (log,) = stack.tier_dir.glob(f"{topic}-0-*/*.log")
    log.rename(away := log.with_suffix(".away"))
    with ThreadPoolExecutor(1) as other:
        reading = other.submit(read, client, topic, OffsetRange(0, end))
        try:
            wait_until(
                lambda: reading.done() or "responded with UNKNOWN_SERVER_ERROR" in caplog.text, "the broker's error"
            )
        finally:
            away.rename(log)

    assert reading.result() == expected

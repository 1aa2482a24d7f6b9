"""Transactions on a real broker that tiers: interleaved, over several segments and leaders, read from anywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from tests.archives import arrow_rows
from tests.reading import batch, options, rows
from tests.rigs.stack.batches import CODECS
from tests.rigs.stack.consume import READ_COMMITTED, READ_UNCOMMITTED, read_rounds, read_topic
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record, Row
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.tools import console_consumer
from tests.rigs.stack.topics import create_tiered_topic, roll, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import OffsetRange, SegmentLocation, TopicPartition
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.splits import splits_for
from tiered_stream.read.split_reader import read_split

pytestmark = [pytest.mark.stack, pytest.mark.slow]

TOPIC = "interleaved"
PARTITIONS = range(4)
STEPS = 220
"""Of each of the three leaders."""
SEGMENT_MS = 1000

Ranges = Mapping[int, tuple[int, int]]


@dataclass
class History:
    """What producers do, at random; timestamps of the future, so that they decide where segments end."""

    stack: TieredStack
    random: Random
    now_ms: int = field(default_factory=lambda: (time.time_ns() // 1_000_000) + 86_400_000)

    def records(self) -> list[Record]:
        """A few; now and then so much later than the last that a segment ends."""
        if self.random.random() < 0.2:
            self.now_ms += 2 * SEGMENT_MS
        values = [
            b"%x" % self.random.getrandbits(self.random.choice([4, 80, 4000])) for _ in range(self.random.randint(1, 6))
        ]
        return [Record(None, value, (), self.now_ms) for value in values]

    def lead(self) -> None:
        """What happens under one leader. Some transactions are left open: the next incarnation aborts them."""
        with ExitStack() as closing:
            plain = closing.enter_context(RawProducer(self.stack.broker))
            idempotent = KafkaProducer(
                bootstrap_servers=self.stack.bootstrap_servers, enable_idempotence=True, linger_ms=0
            )
            closing.callback(idempotent.close)
            names = [f"{TOPIC}-{number}" for number in range(4)]
            producers = [closing.enter_context(TransactionalProducer(self.stack.broker, name)) for name in names]
            is_open = dict.fromkeys(names, False)
            for _ in range(STEPS):
                partition, codec = self.random.choice(PARTITIONS), self.random.choice(list(CODECS))
                kind = self.random.random()
                if kind < 0.25:
                    plain.send(TOPIC, self.records(), partition, codec)
                elif kind < 0.35:
                    for record in self.records():
                        idempotent.send(TOPIC, record.value, partition=partition, timestamp_ms=record.timestamp_ms)
                    idempotent.flush()
                else:
                    producer = self.random.choice(producers)
                    self._go_on(producer, is_open, partition, codec)

    def _go_on(self, producer: TransactionalProducer, is_open: dict[str, bool], partition: int, codec: str) -> None:
        """The first producer's transactions are long."""
        name = producer.transactional_id
        ends = self.random.random() < (0.03 if name.endswith("0") else 0.25)
        if is_open[name] and ends:
            self.random.choice([producer.commit, producer.abort])()
        else:
            producer.send(TOPIC, self.records(), partition, codec)
        is_open[name] = not (is_open[name] and ends)


@pytest.fixture(scope="module")
def stack(restarted_stack: TieredStack) -> TieredStack:
    """Return a stack whose broker may be restarted."""
    return restarted_stack


@pytest.fixture(scope="module")
def history(stack: TieredStack) -> Iterator[None]:
    """The topic: three leaders' work, the end of the last's not tiered, the very end not decided."""
    create_tiered_topic(stack.broker, TOPIC, len(PARTITIONS), config={"segment.ms": str(SEGMENT_MS)})
    made = History(stack, Random(405))
    made.lead()
    stack.broker.stop()
    stack.broker.start()
    made.lead()
    stack.broker.kill()
    stack.broker.start()
    made.lead()
    with ExitStack() as closing:
        plain = closing.enter_context(RawProducer(stack.broker))
        names = [f"{TOPIC}-{number}" for number in range(4)]
        first, second, *_ = (closing.enter_context(TransactionalProducer(stack.broker, name)) for name in names)
        for producer in (first, second):
            for partition in PARTITIONS:
                producer.send(TOPIC, made.records(), partition)
        roll(stack.broker, TOPIC)
        first.abort()  # beyond the seam
        second.commit()
        wait_until_tiered(stack.broker, TOPIC)
        for producer, end in ((first, first.abort), (second, second.commit), (first, None)):
            for partition in PARTITIONS:
                producer.send(TOPIC, made.records(), partition)
                plain.send(TOPIC, made.records(), partition)
            if end is not None:
                end()
        yield
        first.abort()


@pytest.fixture(scope="module", params=[READ_COMMITTED, READ_UNCOMMITTED])
def isolation(request: pytest.FixtureRequest) -> str:
    level: str = request.param
    return level


@pytest.fixture(scope="module")
def consumed(stack: TieredStack, history: None, isolation: str) -> list[Row]:
    """The whole topic, as kafka-python's consumer returns it."""
    return read_topic(stack.broker, TOPIC, isolation)


def ours(stack: TieredStack, isolation: str, rounds: list[Ranges], random: Random) -> list[list[Row]]:
    """Each round as executors read it, in splits of any size."""
    parsed = parse_options(options(stack, TOPIC, {"kafka.isolation.level": isolation}), streaming=False)
    read = []
    with closing(open_log_source(parsed)) as tier:
        for ranges in rounds:
            wanted = {TopicPartition(TOPIC, partition): OffsetRange(*ends) for partition, ends in ranges.items()}
            sized = replace(parsed, split_bytes=random.choice([1, 3000, 50_000, 1 << 27]))
            splits = splits_for(wanted, sized, tier.locator, {})
            read.append([row for split in splits for rows in read_split(split, sized) for row in arrow_rows(rows)])
    return read


def located(stack: TieredStack) -> dict[int, tuple[SegmentLocation, ...]]:
    parsed = parse_options(options(stack, TOPIC, {"kafka.isolation.level": READ_COMMITTED}), streaming=False)
    everything = {TopicPartition(TOPIC, partition): OffsetRange(0, 1 << 40) for partition in PARTITIONS}
    with closing(open_log_source(parsed)) as tier:
        assert tier.locator is not None
        return {partition.partition: found for partition, found in tier.locator.locate(everything).items()}


@pytest.mark.contract("1.6 gap in the log", "2.72", "2.73")
def test_the_whole_topic_is_what_a_consumer_returns(
    stack: TieredStack, spark: SparkSession, isolation: str, consumed: list[Row]
) -> None:
    read = rows(batch(spark, options(stack, TOPIC, {"kafka.isolation.level": isolation})))
    assert sorted(read) == consumed
    if isolation == READ_COMMITTED:
        shown = [(row.partition, row.offset, "null" if row.value is None else row.value.decode()) for row in consumed]
        assert console_consumer(stack.broker, TOPIC, isolation, len(shown)) == shown


def test_the_history_is_as_hard_as_it_should_be(stack: TieredStack, history: None) -> None:
    found = located(stack)
    assert all(len(locations) > 15 for locations in found.values())
    for locations in found.values():
        assert len({entry.epoch for location in locations for entry in location.segment.leader_epochs}) >= 3
    spanning = {
        transaction
        for locations in found.values()
        for location in locations
        for transaction in location.aborted_transactions
        if transaction.first_offset < location.segment.base_offset
    }
    assert len(spanning) > 10
    assert all(locations[-1].aborted_transactions for locations in found.values())


def test_any_range_is_what_a_consumer_that_seeks_returns(
    stack: TieredStack, isolation: str, consumed: list[Row]
) -> None:
    """Two hundred ranges with both isolation levels."""
    random = Random(isolation)
    ends = {
        partition: 1 + max(row.offset for row in consumed if row.partition == partition) for partition in PARTITIONS
    }
    rounds: list[Ranges] = []
    for _ in range(26):
        starts = {partition: random.randrange(end) for partition, end in ends.items()}
        rounds.append(
            {partition: (start, random.randint(start, ends[partition])) for partition, start in starts.items()}
        )
    read = ours(stack, isolation, rounds, random)
    assert read == read_rounds(stack.broker, TOPIC, isolation, rounds)
    assert sum(map(len, rounds)) > 100


def test_ranges_that_begin_after_an_abort_marker_in_its_segment(stack: TieredStack, history: None) -> None:
    after_markers: dict[int, list[tuple[int, int]]] = {
        partition: [
            (transaction.last_offset + 1, location.offsets.end)
            for location in locations
            for transaction in location.aborted_transactions
            if transaction.last_offset + 1 in location.offsets
        ]
        for partition, locations in located(stack).items()
    }
    assert sum(map(len, after_markers.values())) > 20
    most = max(map(len, after_markers.values()))
    rounds = [{p: ranges[n] for p, ranges in after_markers.items() if n < len(ranges)} for n in range(most)]
    expected = read_rounds(stack.broker, TOPIC, READ_COMMITTED, rounds)
    assert ours(stack, READ_COMMITTED, rounds, Random(1)) == expected

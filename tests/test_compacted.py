"""A topic that was compacted before it was tiered: what the cleaner took out is no loss, and nothing was altered."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.plan.planned_splits import plan_splits
from tests.read.test_split_reader import rows_of
from tests.reading import options
from tests.rigs.stack.consume import READ_COMMITTED, READ_UNCOMMITTED, read_topic
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record, Row
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import COMPACTED, TIERED, alter_topic, create_tiered_topic, roll, wait_until_tiered
from tests.rigs.stack.transactions import TransactionalProducer
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.record_fetch import FetchTerms, fetch_records
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.parsing import parse_options
from tiered_stream.read.split_reader import read_split
from tiered_stream.records.header import whole_batches

pytestmark = pytest.mark.stack

TOPIC = "once-compacted"


@pytest.fixture(scope="module")
def ends(stack: TieredStack) -> dict[int, int]:
    """The ends of what is tiered. Each log begins with an aborted transaction; that of partition 1 has more gaps."""
    create_tiered_topic(stack.broker, TOPIC, partitions=2, config=COMPACTED)
    with RawProducer(stack.broker) as plain, TransactionalProducer(stack.broker, TOPIC) as transaction:
        for partition, rounds in ((0, 1), (1, 3)):
            for number in range(rounds):
                transaction.send(TOPIC, [Record(b"void", b"v")] * 3, partition)
                transaction.abort()
                for key in range(20):
                    plain.send(TOPIC, [Record(b"%d" % key, b"%d" % number)], partition)
                transaction.send(TOPIC, [Record(b"committed %d" % number, b"v")], partition)
                transaction.commit()
    roll(stack.broker, TOPIC)
    with BrokerClient({"bootstrap.servers": stack.bootstrap_servers}) as client:
        wait_until(lambda: all(first_offset(client, partition) for partition in (0, 1)), "the cleaner", timeout=600)
    alter_topic(stack.broker, TOPIC, {**TIERED, "cleanup.policy": "delete"})
    return wait_until_tiered(stack.broker, TOPIC)


def first_offset(client: BrokerClient, partition: int) -> int:
    terms = FetchTerms(IsolationLevel.READ_UNCOMMITTED, max_bytes=1, max_wait_ms=500)
    fetched = fetch_records(client, TopicPartition(TOPIC, partition), 0, terms)
    return next((offset for _, offset, _ in whole_batches(fetched.records)), 0)


@pytest.mark.contract("1.6 gap in the log")
@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
@pytest.mark.parametrize("split_bytes", ["1", "128m"])
def test_a_log_that_was_once_compacted_is_read_as_a_consumer_reads_it(
    stack: TieredStack, ends: dict[int, int], isolation: str, split_bytes: str
) -> None:
    given = {"kafka.isolation.level": isolation, "remote.split.bytes": split_bytes, "remote.fallback": "fail"}
    parsed = parse_options(options(stack, TOPIC, given), streaming=False)
    wanted = {TopicPartition(TOPIC, partition): OffsetRange(0, end) for partition, end in ends.items()}
    with closing(open_log_source(parsed)) as tier:
        splits = plan_splits(wanted, tier.locator, split_bytes=parsed.split_bytes)
    assert all(split.locations for split in splits)
    read: list[Row] = [row for split in splits for row in rows_of(read_split(split, parsed))]
    assert read == read_topic(stack.broker, TOPIC, isolation, {partition: (0, end) for partition, end in ends.items()})
    assert min(row.offset for row in read) > 0

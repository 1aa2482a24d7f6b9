"""What planning asks of brokers and storage, however many partitions there are and whatever limit bites.

The brokers are made up (`tests.gateway.made_up_cluster`), and so are the segments' indexes; nobody has a log.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.gateway.made_up_cluster import OFFSETS, TOPIC
from tests.gateway.planning import made_up_cluster
from tests.tier.fetchers import IndexesOnly
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.locate.metadata_topic.metadata_topic_locator import MetadataTopicLocator
from tiered_stream.model import OffsetRange, PartitionRanges, RemoteLogSegment, Split, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.storage.fetcher import IndexType

pytestmark = pytest.mark.stack

SEGMENT_BYTES = 1 << 30
BATCH_OFFSETS = 10
"""Of ten megabytes; each is in the index."""


class MadeUpIndexes(IndexesOnly):
    """Counts the indexes that are asked for. Whoever asks for the log of a segment fails the test."""

    def __init__(self) -> None:
        self.asked = 0

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        self.asked += 1
        batches = OFFSETS // BATCH_OFFSETS
        entries = (
            ((number + 1) * BATCH_OFFSETS - 1, number * SEGMENT_BYTES // batches) for number in range(1, batches)
        )
        return {IndexType.OFFSET: b"".join(struct.pack(">ii", *entry) for entry in entries)}


class CountedClient(BrokerClient):
    """Counts requests by their kind."""

    def __init__(self, servers: str) -> None:
        super().__init__({"bootstrap.servers": servers})
        self.asked: Counter[str] = Counter()

    async def request(self, node_id: int, message: Any, deadline: Deadline) -> Any:
        self.asked[type(message).__name__] += 1
        return await super().request(node_id, message, deadline)


@dataclass
class Driver:
    """Who plans, without what it asks to know where logs begin and end."""

    servers: str
    fetcher: MadeUpIndexes = field(default_factory=MadeUpIndexes)

    def __post_init__(self) -> None:
        self.client = CountedClient(self.servers)
        self.locator = MetadataTopicLocator(
            self.client, self.fetcher, IsolationLevel.READ_COMMITTED, falls_back=True, patience_ms=60_000
        )

    def spent(self) -> tuple[int, int]:
        """Requests of brokers and of the storage since this was last asked."""
        spent = self.client.asked.total(), self.fetcher.asked
        self.client.asked.clear()
        self.fetcher.asked = 0
        return spent

    def close(self) -> None:
        self.locator.close()
        self.client.close()


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[int, str]]:
    """Bootstrap servers by the number of partitions."""
    with (
        made_up_cluster(400, 1, segment_bytes=SEGMENT_BYTES) as (some, _),
        made_up_cluster(2_000, 1, segment_bytes=SEGMENT_BYTES) as (many, _),
    ):
        yield {400: some, 2_000: many}


def planned(driver: Driver, planner: StreamPlanner, options: Any, start: Any) -> tuple[PartitionRanges, list[Split]]:
    """One micro-batch: its ranges and its splits."""
    end = planner.next_end(start, limited=True)
    ranges = planner.ranges(start, end)
    return ranges, splits_for(ranges, options, driver.locator, planner.topic_ids)


ALL = "all of them"
LIMITS: dict[str, dict[str, str]] = {
    "offsets": {"maxOffsetsPerTrigger": "50 each", "maxBytesPerTrigger": "1p"},
    "a minimum": {"maxOffsetsPerTrigger": "50 each", "minOffsetsPerTrigger": "1", "maxBytesPerTrigger": "1p"},
    "bytes": {"maxBytesPerTrigger": "100000000 each"},
    "records a task": {"maxRecordsPerPartition": "7", "maxBytesPerTrigger": "100000000 each"},
    "more tasks": {"minPartitions": "5 each", "maxBytesPerTrigger": "200000000 each"},
    "bytes a task": {"remote.split.bytes": "20m", "maxBytesPerTrigger": "200000000 each"},
    ALL: {
        "maxOffsetsPerTrigger": "50 each", "maxBytesPerTrigger": "60000000 each", "minOffsetsPerTrigger": "1",
        "maxRecordsPerPartition": "25", "minPartitions": "3 each", "remote.split.bytes": "20m",
    },
}  # fmt: skip


@pytest.mark.parametrize(("partitions", "limit"), [*((400, limit) for limit in LIMITS), (2_000, ALL)])
def test_planning_takes_no_more_rounds_than_to_locate_everything_once(
    clusters: dict[int, str], partitions: int, limit: str
) -> None:
    servers, given = clusters[partitions], LIMITS[limit]
    limits = {
        name: str(int(value.removesuffix(" each")) * partitions) if value.endswith(" each") else value
        for name, value in given.items()
    }
    options = parse_options(
        {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest", **limits},
        streaming=True,
    )
    with closing(Driver(servers)) as driver, closing(Driver(servers)) as other, BrokerClient(options.kafka) as client:
        planner = StreamPlanner(options, BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED), driver.locator)
        start: dict[TopicPartition, int] = dict(planner.initial())
        for _ in range(2):
            ranges, splits = planned(driver, planner, options, start)
            assert all(0 < len(each) < OFFSETS for each in ranges.values()) and len(ranges) == partitions
            assert all(split.locations for split in splits) and len(splits) >= partitions
            other.locator.locate(ranges)
            (rounds, gets), (rounds_once, gets_once) = driver.spent(), other.spent()
            assert rounds <= 1.2 * rounds_once, (rounds, rounds_once)
            assert gets <= 1.2 * gets_once, (gets, gets_once)
            start = {partition: each.end for partition, each in ranges.items()}


def test_a_piece_for_every_few_records_is_cut_from_what_was_located_once(clusters: dict[int, str]) -> None:
    servers = clusters[400]
    given = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "maxRecordsPerPartition": "2"}
    options = parse_options(given, streaming=False)
    wanted = {TopicPartition(TOPIC, number): OffsetRange(0, OFFSETS) for number in range(20)}
    with closing(Driver(servers)) as driver, closing(Driver(servers)) as other:
        splits = splits_for(wanted, options, driver.locator, {})
        assert len(splits) == len(wanted) * OFFSETS // 2
        # A batch of 10 MB, and the one after it.
        assert max(split.storage_bytes for split in splits) < 3 * SEGMENT_BYTES * BATCH_OFFSETS / OFFSETS
        other.locator.locate(wanted)
        assert driver.spent() == (other.spent()[0], len(wanted))

"""How soon a query knows where 100,000 segments of 1,000 partitions are: by the metadata topic, and by a gateway; and
whether that grows straight with the partitions, and with the segments of each.

The cluster is made up. At first a query, or a gateway, has just been started and nothing is kept of an earlier one;
again: the same asks once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.gateway.made_up_cluster import OFFSETS, TOPIC
from tests.gateway.planning import SPLIT_BYTES, made_up_cluster, made_up_gateway
from tests.rigs.bench.batch_reads import Growth, straight
from tests.rigs.bench.figures import Row
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.turns import Claim, Contender, allowance, rows_of, take_turns, timed
from tiered_stream.broker.client import BrokerClient
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.locate.locator import Locator
from tiered_stream.locate.metadata_topic.metadata_topic_locator import MetadataTopicLocator
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.process.heap_and_gc import collect_old_rarely
from tiered_stream.storage.file_store import FileStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher

PARTITIONS, SEGMENTS = 1_000, 100
FIRST, AGAIN = "at first", "again"
_TOPIC, _GATEWAY = "metadata topic", "gateway"
_MAY_TAKE = {
    _TOPIC: {FIRST: (3.0, 1.0), AGAIN: (2.0, 1.0)},  # keeps no locations, because a stream plans each segment once
    _GATEWAY: {FIRST: (3.0, 1.0), AGAIN: (0.15, 0.1)},
}
"""Seconds: floor and aim."""
_START, _ALL = "one segment", "all segments"
_QUARTERS = "a quarter of the segments", "a quarter of the partitions"


class _Query:
    """One that `opened` begins, which has to be told where everything is."""

    def __init__(self, opened: Callable[[ExitStack], Locator], segments: int, partitions: int = PARTITIONS) -> None:
        self._opened = opened
        self._ending = ExitStack()
        self._wanted = {
            TopicPartition(TOPIC, number): OffsetRange(0, segments * OFFSETS) for number in range(partitions)
        }
        self.segments = partitions * segments
        self._locator: Locator

    def begin(self) -> None:
        self.close()
        self._locator = self._opened(self._ending)

    def locate(self) -> None:
        found = sum(map(len, self._locator.locate(self._wanted).values()))
        assert found == self.segments, f"{found} segments"

    def close(self) -> None:
        self._ending.close()


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """A row for each way and time."""
    segments = max(1, round(SEGMENTS * rig.scale))
    collect_old_rarely()  # as the process does that plans a streaming query
    with made_up_cluster(PARTITIONS, segments) as cluster:

        def by_gateway(ending: ExitStack) -> Locator:
            nothing_kept = {"remote.log.metadata.snapshot.dir": "none"}
            gateway = ending.enter_context(made_up_gateway(PARTITIONS, segments, nothing_kept))
            client = ending.enter_context(BrokerClient({"bootstrap.servers": gateway.bootstrap_servers}))
            return BrokerLocator(client, IsolationLevel.READ_COMMITTED, part_bytes=SPLIT_BYTES)

        for name, opened in {_TOPIC: _by_metadata_topic(cluster), _GATEWAY: by_gateway}.items():
            query = _Query(opened, segments)
            try:
                yield from _rows(f"I {query.segments:,} segments, {name}", query, runs, _MAY_TAKE[name])
            finally:
                query.close()


def _by_metadata_topic(cluster: tuple[str, Path]) -> Callable[[ExitStack], Locator]:
    servers, folder = cluster

    def opened(ending: ExitStack) -> Locator:
        client = ending.enter_context(BrokerClient({"bootstrap.servers": servers}))
        fetcher = LocalLayoutFetcher(FileStore(folder))
        return MetadataTopicLocator(client, fetcher, IsolationLevel.READ_COMMITTED)

    return opened


def measure_growth(rig: Rig, runs: int) -> Iterator[Row]:
    """A row for four times the segments of each partition, and for four times the partitions; by the metadata topic."""
    segments = max(4, round(SEGMENTS * rig.scale))
    sizes = {_START: (1, 1), _ALL: (PARTITIONS, segments)}
    sizes |= dict(zip(_QUARTERS, [(PARTITIONS, segments // 4), (PARTITIONS // 4, segments)], strict=True))
    contenders = {}
    with ExitStack() as ending:
        for name, (partitions, each) in sizes.items():
            cluster = ending.enter_context(made_up_cluster(partitions, each))
            query = _Query(_by_metadata_topic(cluster), each, partitions)
            ending.callback(query.close)
            contenders[name] = Contender(timed(query.locate), query.segments, settle=query.begin)
        seconds = take_turns(contenders, runs)
    for base in _QUARTERS:
        times = contenders[_ALL].records / contenders[base].records
        yield straight(f"S {base}", FIRST, Growth(base, _ALL, _START, times), seconds)


def _rows(workload: str, query: _Query, runs: int, may_take: Mapping[str, tuple[float, float]]) -> list[Row]:
    count = query.segments
    contenders = {
        FIRST: Contender(timed(query.locate), count, settle=query.begin),
        AGAIN: Contender(timed(query.locate), count),
    }
    allowances = {f"{floor:g} s": allowance(floor, count) for floor, _ in may_take.values()}
    claims = [
        Claim(workload, name, f"{floor:g} s", 1, round(floor / aim, 1)) for name, (floor, aim) in may_take.items()
    ]
    return rows_of(claims, contenders | allowances, runs)

"""The metadata topic of a large, old cluster: how soon a query knows its segments, at first and with what was kept.

Each segment of each partition has two records, that its copy began and that it is finished, each in a batch of its own,
as brokers write them. Such a log is written as a broker's own files, since a Produce request takes one batch only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import numba
import numpy as np
from kafka.admin import NewTopic

from tests.rigs.bench.figures import Row
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.turns import Claim, Contender, allowance, rows_of
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.rows import Record
from tests.tier.metadata import segment_record, update_record
from tiered_stream.broker.client import BrokerClient
from tiered_stream.locate.metadata_topic.metadata_log import MetadataLog
from tiered_stream.locate.metadata_topic.metadata_snapshots import MetadataSnapshots
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    TopicIdPartition,
    metadata_partition,
)
from tiered_stream.model import LeaderEpoch, RemoteLogSegment, TopicPartition
from tiered_stream.records import header
from tiered_stream.records.intrinsics import crc32c

FIRST, AGAIN = "the segments of a topic, at first", "the same, by what was kept"
_MAY_TAKE = {FIRST: 15.0, AGAIN: 1.0}
"""Seconds, with ten million records."""
CLAIMS = tuple(Claim("I 10 M metadata records", name, f"{most:g} s", 1, 2) for name, most in _MAY_TAKE.items())
METADATA_PARTITIONS = 50
RECORDS_A_SEGMENT = 2
_NAME, _ID, _SEGMENT_ID, _PARTITION = b"topic-000", b"\xa1" * 16, b"\xb2" * 16, b"\x0c" * 4
_START, _END = b"\x0d" * 8, b"\x0e" * 8


@dataclass(frozen=True)
class Cluster:
    """So many topics of so many partitions, each with so many tiered segments."""

    topics: int = 100
    partitions: int = 100
    segments: int = 500

    @property
    def records(self) -> int:
        return self.topics * self.partitions * self.segments * RECORDS_A_SEGMENT

    def partition(self, topic: int, number: int) -> TopicIdPartition:
        return TopicIdPartition(UUID(int=(topic + 1) << 64 | 7), TopicPartition(f"topic-{topic:03}", number))


def _templates() -> tuple[bytes, bytes]:
    """A batch for each of a segment's records, with marks where they differ."""
    segment = RemoteLogSegment(
        TopicPartition(_NAME.decode(), int.from_bytes(_PARTITION, "big")), UUID(bytes=_ID), UUID(bytes=_SEGMENT_ID),
        int.from_bytes(_START, "big"), int.from_bytes(_END, "big"), 1 << 30, 0, (LeaderEpoch(0, 0),),
        transaction_index_empty=True,
    )  # fmt: skip
    return record_batch([Record(None, segment_record(segment))]), record_batch([Record(None, update_record(segment))])


def metadata_log(told: list[TopicIdPartition], segments: int) -> bytes:
    """A metadata partition's log: of each partition that it tells of, so many segments, in turns."""
    return metadata_batches(told, range(segments * len(told))).tobytes()


def metadata_batches(told: list[TopicIdPartition], which: range) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Rows of such a log, of the segments with these numbers: both batches of a segment are in its row."""
    count = len(which)
    columns = []
    at = np.arange(which.start, which.stop)
    numbers, whose = at // len(told), at % len(told)
    marks = {
        _NAME: np.array([list(each.topic_partition.topic.encode()) for each in told], np.uint8)[whose],
        _ID: np.array([list(each.topic_id.bytes) for each in told], np.uint8)[whose],
        _PARTITION: _big(np.array([each.topic_partition.partition for each in told]), 4)[whose],
        _SEGMENT_ID: np.hstack([_big(whose + 1, 8), _big(numbers + 1, 8)]),
        _START: _big(numbers * 1000, 8),
        _END: _big(numbers * 1000 + 999, 8),
    }
    for index, template in enumerate(_templates()):
        batches = np.tile(np.frombuffer(template, np.uint8), (count, 1))
        batches[:, :8] = _big(at * RECORDS_A_SEGMENT + index, 8)
        for mark, values in marks.items():
            if (place := template.find(mark)) >= 0:
                batches[:, place : place + len(mark)] = values
        sums = np.empty(count, np.int64)
        _sum_up(batches, sums)
        batches[:, header.CRC_AT : header.ATTRIBUTES_AT] = _big(sums, 4)
        columns.append(batches)
    return np.hstack(columns)


def first_batch_bytes() -> int:
    """The size of the first of a segment's two batches."""
    return len(_templates()[0])


def _big(numbers: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return numbers.astype(f">i{size}" if size == 8 else f">u{size}").view(np.uint8).reshape(-1, size)


@numba.njit  # type: ignore[untyped-decorator, unused-ignore]
def _sum_up(batches: Any, sums: Any) -> None:
    for index in range(len(batches)):
        sums[index] = crc32c(batches[index], header.ATTRIBUTES_AT, batches.shape[1])


def fill_metadata_topic(broker: KafkaBroker, cluster: Cluster) -> None:
    """Let a broker without tiered storage, which runs, have the cluster's metadata topic; it is started again."""
    with broker.admin() as admin:
        for_ever = {"retention.ms": "-1"}
        admin.create_topics([NewTopic(REMOTE_LOG_METADATA_TOPIC, METADATA_PARTITIONS, 1, topic_configs=for_ever)])
        admin.wait_for_topics([REMOTE_LOG_METADATA_TOPIC])
    broker.stop()
    told: list[list[TopicIdPartition]] = [[] for _ in range(METADATA_PARTITIONS)]
    for topic in range(cluster.topics):
        for number in range(cluster.partitions):
            partition = cluster.partition(topic, number)
            told[metadata_partition(partition, METADATA_PARTITIONS)].append(partition)
    for number, partitions in enumerate(told):
        folder = broker.logs_dir / f"{REMOTE_LOG_METADATA_TOPIC}-{number}"
        for index in (*folder.glob("*.index"), *folder.glob("*.timeindex")):
            index.unlink()  # the broker makes them anew
        if partitions:
            (folder / f"{0:020}.log").write_bytes(metadata_log(partitions, cluster.segments))
    broker.start()


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """On a broker of its own, of which the log is written."""
    cluster = Cluster(segments=max(1, round(Cluster.segments * rig.scale)))
    not_tiered = {"remote.log.storage.system.enable": "false"}
    with KafkaBroker(rig.folder / "metadata-broker", rig.folder / "no-tier", properties=not_tiered) as broker:
        fill_metadata_topic(broker, cluster)
        yield from rows_of(CLAIMS, _contenders(broker, cluster, rig.folder / "metadata-kept"), runs)


def _contenders(broker: KafkaBroker, cluster: Cluster, folder: Path) -> dict[str, Contender]:
    """Each run of the second goes on from what the first's has kept."""
    at_first, again = count(), count()
    found = {
        FIRST: Contender(lambda: seconds_to_know(broker, cluster, folder / str(next(at_first))), cluster.records),
        AGAIN: Contender(lambda: seconds_to_know(broker, cluster, folder / str(next(again))), cluster.records),
    }
    return found | {f"{most:g} s": allowance(most, cluster.records) for most in _MAY_TAKE.values()}


def seconds_to_know(broker: KafkaBroker, cluster: Cluster, folder: Path) -> float:
    """By a new client, as a new query has it: without a kept snapshot, or with the one that `folder` then has."""
    wanted = [cluster.partition(0, number) for number in range(cluster.partitions)]
    began = time.perf_counter()
    with BrokerClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        topic = client.metadata([REMOTE_LOG_METADATA_TOPIC])[REMOTE_LOG_METADATA_TOPIC]
        answer = MetadataLog(client, snapshots=MetadataSnapshots(folder)).tables(wanted, topic)
        segments = sum(len(table.segments(each)) for each, table in answer.found.items())
    assert not answer.faults and segments == cluster.partitions * cluster.segments
    return time.perf_counter() - began

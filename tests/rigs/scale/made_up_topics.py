"""Tiered topics of any size, made up: the planner's own classes read them, and no broker and no storage is there.

Left out: connections to brokers, elections (all segments are of one leader epoch), transactions, and contents of
segments. The metadata topic's records are batches with right checksums, as brokers write them: two for each segment.
The bytes of other topics' records repeat, because the reader checks and skips each of them anyway.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np

from tests.rigs.bench.metadata_topic import RECORDS_A_SEGMENT, first_batch_bytes, metadata_batches
from tests.rigs.scale.measured import Meter
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.leader_epochs import END_OF_LOG
from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.broker.record_fetch import FetchedRecords
from tiered_stream.locate.metadata_topic.metadata_log import MetadataLog
from tiered_stream.locate.metadata_topic.metadata_snapshots import MetadataSnapshots
from tiered_stream.locate.metadata_topic.metadata_topic_locator import MetadataTopicLocator
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    TopicIdPartition,
    metadata_partition,
)
from tiered_stream.model import (
    AbortedTransaction,
    PartialAnswer,
    RemoteLogSegment,
    TopicDescription,
    TopicPartition,
)
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import LATEST
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

OFFSETS = 1000
"""Offsets of a segment."""
METADATA_PARTITIONS = 50
_METADATA_TOPIC_ID = UUID(int=8)
_BLOCK = 16_000
"""Segments whose records come in one response, of about 7 MiB."""
_INDEX_ENTRIES = 100
_INDEX_ENTRY = struct.Struct(">ii")
SEGMENT_BYTES = 1 << 30
_EPOCH = 0


@dataclass
class Topics:
    """So many topics of so many partitions, each of which has so many tiered segments and `untiered` more records.

    The metadata topic also has the records of `foreign` segments of topics that nobody reads.
    """

    topics: int
    partitions: int
    segments: int
    foreign: int = 0
    untiered: dict[TopicPartition, int] = field(default_factory=dict)
    added: dict[TopicPartition, int] = field(default_factory=dict)
    """Segments that were tiered after the others."""

    @cached_property
    def names(self) -> list[str]:
        return [f"t-{number:07}" for number in range(self.topics)]

    @cached_property
    def ids(self) -> dict[str, UUID]:
        return {name: UUID(int=number + 1 << 64 | 7) for number, name in enumerate(self.names)}

    @cached_property
    def every_partition(self) -> list[TopicIdPartition]:
        return [
            TopicIdPartition(topic_id, TopicPartition(name, number))
            for name, topic_id in self.ids.items()
            for number in range(self.partitions)
        ]

    @property
    def all_segments(self) -> int:
        return self.topics * self.partitions * self.segments

    def end(self, partition: TopicPartition) -> int:
        tiered = self.segments + self.added.get(partition, 0)
        return tiered * OFFSETS + self.untiered.get(partition, 0)

    def metadata(self, topics: Collection[str]) -> dict[str, TopicMetadata]:
        leaders: dict[int, Any] = dict.fromkeys(range(METADATA_PARTITIONS))
        described = {name: TopicMetadata(name, self.ids[name], False, {}) for name in topics if name in self.ids}
        name = REMOTE_LOG_METADATA_TOPIC
        return described | {name: TopicMetadata(name, _METADATA_TOPIC_ID, True, leaders)}


class MadeUpOffsets(OffsetReader):
    """`OffsetReader` of the topics."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        numbers = tuple(range(topics.partitions))
        self._described = {
            name: TopicDescription(name, topic_id, numbers, False) for name, topic_id in topics.ids.items()
        }

    def matching(self, accepts: Callable[[str], bool]) -> dict[str, TopicDescription]:
        return {topic: description for topic, description in self._described.items() if accepts(topic)}

    def partitions(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        return {topic: self._described[topic] for topic in topics}

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self._topics.end(partition) for partition in partitions}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self.latest(partitions)

    def for_timestamps(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(timestamps)


class _Client:
    """The part of a `BrokerClient` that the locator asks of its own accord."""

    cluster_id = "made-up"

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def metadata(self, topics: Collection[str]) -> dict[str, TopicMetadata]:
        return self._topics.metadata(topics)


class _LogOffsets:
    """Offsets of the metadata topic, or log starts of the topics."""

    def __init__(self, ends: Mapping[int, int]) -> None:
        self._ends = ends

    def special_offsets(
        self, which: int, partitions: Collection[TopicPartition], patience_ms: int | None = None
    ) -> PartialAnswer[TopicPartition, int]:
        found = {each: self._ends[each.partition] if which == LATEST else 0 for each in partitions}
        return PartialAnswer(found, {})

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self._ends[each.partition] for each in partitions}


class _Lineages:
    def of(self, epochs: Collection[TopicPartition], topics: object) -> PartialAnswer[TopicPartition, dict[int, int]]:
        return PartialAnswer({partition: {_EPOCH: END_OF_LOG} for partition in epochs}, {})


class MadeUpLog(MetadataLog):
    """`MetadataLog` whose records are made when they are fetched, outside of the meter's seconds."""

    def __init__(self, topics: Topics, meter: Meter, snapshots: MetadataSnapshots | None) -> None:
        super().__init__(_Client(topics), snapshots=snapshots)  # type: ignore[arg-type]
        self._meter = meter
        self._told: list[list[TopicIdPartition]] = [[] for _ in range(METADATA_PARTITIONS)]
        for partition in topics.every_partition:
            self._told[metadata_partition(partition, METADATA_PARTITIONS)].append(partition)
        self._segments = topics.segments
        self._foreign = -(-topics.foreign // METADATA_PARTITIONS)
        self._news: dict[int, list[np.ndarray[Any, np.dtype[np.uint8]]]] = {}
        self.ends = {
            number: (len(told) * self._segments + self._foreign) * RECORDS_A_SEGMENT
            for number, told in enumerate(self._told)
        }
        self._offsets = _LogOffsets(self.ends)  # type: ignore[assignment]
        others = Topics(1, 100, 0)
        foreign = [TopicIdPartition(UUID(int=1 << 100), each.topic_partition) for each in others.every_partition]
        self._template = metadata_batches(foreign, range(_BLOCK))

    def add_segment(self, partition: TopicIdPartition, number: int) -> None:
        """Append the records of the partition's segment with this number."""
        log = metadata_partition(partition, METADATA_PARTITIONS)
        self._news.setdefault(log, []).append(metadata_batches([partition], range(number, number + 1)))
        self.ends[log] += RECORDS_A_SEGMENT

    def _fetch_once(self, log_partition: TopicPartition, offset: int, max_bytes: int) -> FetchedRecords:
        with self._meter.outside():
            rows = self._rows(log_partition.partition, offset // RECORDS_A_SEGMENT, 1 if max_bytes == 1 else _BLOCK)
            records = rows.tobytes() if offset % RECORDS_A_SEGMENT == 0 else rows[0, first_batch_bytes() :].tobytes()
        end = self.ends[log_partition.partition]
        return FetchedRecords(log_partition, offset, records, end, end)

    def _rows(self, log: int, first: int, most: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the batches of at most so many segments, from the log's segment `first` on."""
        own = len(self._told[log]) * self._segments
        known = own + self._foreign
        if first < own:
            rows = metadata_batches(self._told[log], range(first, min(first + most, own)))
        elif first < known:
            rows = self._template[: min(most, known - first)].copy()
        else:
            rows = self._news[log][first - known]
        for index, at in enumerate((0, first_batch_bytes())):
            offsets = np.arange(first, first + len(rows)) * RECORDS_A_SEGMENT + index
            rows[:, at : at + 8] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
        return rows


class Indexes(RemoteStorageFetcher):
    """Storage that has an offset index for each segment, with evenly spaced entries, and nothing else."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        """No property counts."""

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        return bytes((segment.size if end == -1 else end) - start)

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        step = OFFSETS // _INDEX_ENTRIES
        entries = (
            _INDEX_ENTRY.pack(number * step - 1, segment.size // _INDEX_ENTRIES * number)
            for number in range(1, _INDEX_ENTRIES)
        )
        return {each: b"".join(entries) if each is IndexType.OFFSET else b"" for each in types}


class MadeUpLocator(MetadataTopicLocator):
    """The locator of stock brokers, over the made-up metadata topic."""

    def __init__(self, topics: Topics, meter: Meter, snapshots: MetadataSnapshots | None = None) -> None:
        client: Any = _Client(topics)
        super().__init__(client, Indexes(), IsolationLevel.READ_COMMITTED)
        self.log = self._log = MadeUpLog(topics, meter, snapshots)
        self._lineages = _Lineages()  # type: ignore[assignment]
        self._offsets = _LogOffsets({})  # type: ignore[assignment]

    def _aborted_across(
        self, seams: Collection[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], Sequence[AbortedTransaction]]:
        return dict.fromkeys(seams, ())

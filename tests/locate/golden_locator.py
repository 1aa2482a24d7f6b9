"""A locator over a golden bucket, its segments as the golden metadata topic tells them."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from tests.golden import golden
from tests.locate.segments import named_partitions
from tests.storage import golden_aiven
from tests.tier.fetchers import PassingFetcher
from tiered_stream.broker.leader_epochs import END_OF_LOG
from tiered_stream.locate.index_files import open_transactions
from tiered_stream.locate.metadata_topic.remote_log_metadata import decode_remote_log_metadata
from tiered_stream.locate.metadata_topic.segment_table import SegmentTable
from tiered_stream.locate.segment_metadata_locator import SegmentMetadataLocator
from tiered_stream.locate.visible_segments import VisibleSegments, visible_segments
from tiered_stream.model import AbortedTransaction, RemoteLogSegment, SegmentLocation, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.records.decoder import PartBounds, RecordBatchDecoder
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

Row = tuple[int, bytes | None]

PLAIN = "aiven-plain"


class CountingFetcher(PassingFetcher):
    """Counts what another fetcher is asked for."""

    def __init__(self, fetcher: RemoteStorageFetcher) -> None:
        super().__init__(fetcher)
        self.requests: Counter[str] = Counter()

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        self.requests["log"] += 1
        return super().fetch_log_segment(segment, start, end)

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        self.requests["indexes"] += 1
        return super().fetch_indexes(segment, types)


def golden_table(name: str) -> dict[TopicPartition, Sequence[RemoteLogSegment]]:
    """By partition, the segments that the golden metadata topic says are readable; of the topics in the bucket."""
    golden_set = golden(name)
    decoded = [decode_remote_log_metadata(value) for _, _, value in golden_set.remote_log_metadata()]
    metadata = [each for each in decoded if each is not None]
    table = SegmentTable()
    for each in metadata:
        table.apply(each)
    return {
        partition.topic_partition: table.segments(partition)
        for partition in named_partitions(table)
        if partition.topic_partition.topic.startswith(golden_set.topic_prefix)
    }


class GoldenLocator(SegmentMetadataLocator):
    """All epochs belong to the lineage; beyond the tier, the expected rows tell which transactions were aborted."""

    name = "golden"

    def __init__(
        self,
        golden_name: str = PLAIN,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        fetcher: RemoteStorageFetcher | None = None,
        *,
        falls_back: bool = False,
    ) -> None:
        """`fetcher`: another than that of the golden bucket."""
        self.golden_name = golden_name
        self.fetcher = CountingFetcher(golden_aiven.fetcher(golden_name))
        super().__init__(fetcher or self.fetcher, isolation, falls_back=falls_back)
        lineage = dict.fromkeys(range(20), END_OF_LOG)
        deleted: dict[str, int] = golden(golden_name).manifest.get("deleted_below", {})
        self.visible: dict[TopicPartition, VisibleSegments] = {
            partition: visible_segments(segments, lineage, deleted.get(str(partition), 0))
            for partition, segments in golden_table(golden_name).items()
            if segments
        }
        self.seams: list[tuple[TopicPartition, int]] = []
        self.ahead: dict[TopicPartition, int] = {}

    def visible_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, VisibleSegments]:
        return {partition: self.visible[partition] for partition in partitions if partition in self.visible}

    def _aborted_across(
        self, seams: Collection[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], Sequence[AbortedTransaction]]:
        self.seams += seams
        return {(partition, seam): self._aborted_at(partition, seam) for partition, seam in seams}

    def _prefetch_aborted(self, seams: Mapping[TopicPartition, int]) -> None:
        self.ahead |= seams

    def _aborted_at(self, partition: TopicPartition, seam: int) -> list[AbortedTransaction]:
        last = self.visible[partition][-1].segment
        assert seam == last.end_offset + 1
        indexes = golden_aiven.fetcher(self.golden_name).fetch_indexes(last, [IndexType.PRODUCER_SNAPSHOT])
        committed = {row[0] for row in _expected_rows(self.golden_name, partition, IsolationLevel.READ_COMMITTED)}
        return [
            AbortedTransaction(producer_id, first, seam)
            for producer_id, first in open_transactions(indexes[IndexType.PRODUCER_SNAPSHOT])
            if first not in committed
        ]


def read(fetcher: RemoteStorageFetcher, location: SegmentLocation, *, checked: bool = False) -> list[Row]:
    """Offsets and values of a location's records, as an executor reads them.

    `checked`: it is held against what it says of its offsets, too.
    """
    partition, segment, offsets = location.segment.topic_partition, location.segment, location.offsets
    first = offsets.start if location.bytes.start else None
    bounds = PartBounds(segment.base_offset, segment.end_offset, first, location.following)
    decoder = RecordBatchDecoder(
        partition.topic,
        partition.partition,
        location.offsets.start,
        location.offsets.end,
        aborted=location.aborted_transactions,
        bounds=bounds if checked else None,
    )
    data = fetcher.fetch_log_segment(location.segment, location.bytes.start, location.bytes.end)
    rows = [
        row
        for batch in decoder.feed(data)
        for row in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ]
    decoder.finish()
    return rows


def expected(golden_name: str, partition: TopicPartition, start: int, end: int, isolation: IsolationLevel) -> list[Row]:
    """Offsets and values that a consumer returned from `start` to `end` (exclusive)."""
    return [
        (offset, None if value is None else base64.b64decode(value))
        for offset, _, _, _, value, _ in _expected_rows(golden_name, partition, isolation)
        if start <= offset < end
    ]


def expected_timestamps(golden_name: str, partition: TopicPartition, end: int) -> list[tuple[int, int]]:
    """(offset, timestamp in ms) of every record below `end` that a read_uncommitted consumer returned."""
    rows = _expected_rows(golden_name, partition, IsolationLevel.READ_UNCOMMITTED)
    return [(row[0], row[1]) for row in rows if row[0] < end]


@cache
def _expected_rows(golden_name: str, partition: TopicPartition, isolation: IsolationLevel) -> list[list[Any]]:
    return golden(golden_name).expected(partition, isolation.value)

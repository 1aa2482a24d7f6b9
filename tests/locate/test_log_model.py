"""Random histories of producers, transactions, segments and leaders, read in random ranges and splits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.locate.log_model import PARTITION, CurrentFetcher, Log, Row, tiered_of
from tests.plan.planned_splits import plan_splits
from tests.tier.layouts import MemoryBucket, archive_in
from tests.tier.segments import TieredSegment
from tiered_stream.locate.archive.archive_locator import ArchiveLocator
from tiered_stream.locate.archive.archive_offsets import ArchiveOffsetReader
from tiered_stream.locate.locator import Locator
from tiered_stream.locate.segment_metadata_locator import SegmentMetadataLocator
from tiered_stream.locate.visible_segments import VisibleSegments, lineage_of, visible_segments
from tiered_stream.model import AbortedTransaction, OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.parsing import parse_options
from tiered_stream.read.split_reader import read_split
from tiered_stream.storage.fetcher import RemoteStorageFetcher

TRANSACTIONAL, IDEMPOTENT = range(1, 5), range(11, 13)
KINDS = {"plain": 2, "idempotent": 1, "data": 5, "commit": 1, "abort": 2, "cut": 3}
"""What happens next, and how often of 14 times."""


@dataclass(frozen=True)
class History:
    """The log that counts, and every segment that was tiered of it or of logs that lost an election."""

    log: Log
    segments: tuple[TieredSegment, ...]
    lost: tuple[TieredSegment, ...]


@st.composite
def histories(draw: st.DrawFn, *, compacted: bool = False) -> History:
    """By a seed: drawn one by one, few transactions would end and few segments close.

    `compacted`: once, under its one leader.
    """
    random = Random(draw(st.integers(0, 1 << 32)))
    says_empty, interval = draw(st.booleans()), draw(st.sampled_from([0, 100, 1 << 20]))
    log, lost, ids = Log(), [], (UUID(int=number) for number in count(1))

    def upload(leader: Log) -> list[TieredSegment]:
        return tiered_of(leader, ids, index_interval=interval, says_empty=says_empty)

    for leader in range(1 if compacted else draw(st.integers(1, 3))):
        if leader:
            lost += upload(log)
            log = log.elect(random.randint(0, 12))
            if random.random() < 0.5:  # another replica's segments end elsewhere
                bases = [batch.base for batch in log.batches]
                log.cuts = {0, *random.sample(bases, len(bases) // 5)}
        happen(log, random, draw(st.integers(5, 60)))
    for producer_id in log.undecided(log.end):
        if random.random() < 0.8:
            log.append(random.choice(["commit", "abort"]), 1, producer_id)
    log.append("plain", 1, -1)
    if compacted:
        log.compact(random)
    return History(log, tuple(upload(log)), tuple(lost))


def happen(log: Log, random: Random, times: int) -> None:
    for kind in random.choices(list(KINDS), list(KINDS.values()), k=times):
        if kind == "cut":
            log.cuts.add(log.end)
        else:
            producers = {"plain": range(-1, 0), "idempotent": IDEMPOTENT}.get(kind, TRANSACTIONAL)
            log.append(kind, 1 if kind in ("commit", "abort") else random.randint(1, 4), random.choice(producers))


class ModelLocator(SegmentMetadataLocator):
    """Segments and lineage from the model; beyond the tier, the model tells which transactions were aborted."""

    name = "model"

    def __init__(
        self,
        history: History,
        fetcher: RemoteStorageFetcher,
        isolation: IsolationLevel,
        log_start: int = 0,
        *,
        falls_back: bool = False,
    ) -> None:
        super().__init__(fetcher, isolation, falls_back=falls_back)
        self._history_log = history.log
        segments = [each.segment for each in (*history.segments, *history.lost)]
        lineage = lineage_of(history.log.epochs(0, history.log.end))
        self.visible = visible_segments(segments, lineage, log_start)

    def visible_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, VisibleSegments]:
        return {PARTITION: self.visible}

    def _aborted_across(
        self, seams: Collection[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], Sequence[AbortedTransaction]]:
        return {
            (partition, seam): [
                AbortedTransaction(each.producer_id, each.first, seam)
                for each in self._history_log.ended(self._history_log.end)
                if not each.committed and each.first < seam <= each.last
            ]
            for partition, seam in seams
        }


def options_for(isolation: IsolationLevel) -> dict[str, str]:
    return {
        "subscribe": PARTITION.topic,
        "remote.log.locator": "archive",
        "kafka.isolation.level": isolation.value,
        "kafka.remote.storage.fetcher.class": f"{CurrentFetcher.__module__}.{CurrentFetcher.__name__}",
    }


def read(locator: Locator, wanted: OffsetRange, isolation: IsolationLevel, split_bytes: int) -> list[Row]:
    """What executors give of the tiered part of the range."""
    options = parse_options(options_for(isolation), streaming=False)
    splits = plan_splits({PARTITION: wanted}, locator, split_bytes=split_bytes)
    return [
        row
        for split in splits
        if split.locations
        for rows in read_split(split, options)
        for row in zip(rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True)
    ]


def drawn_range(data: st.DataObject, start: int, end: int) -> OffsetRange:
    first = data.draw(st.integers(start, end))
    return OffsetRange(first, data.draw(st.integers(first, end)))


SPLIT_BYTES = st.sampled_from([1, 150, 600, 1 << 20])


@pytest.mark.parametrize("isolation", list(IsolationLevel), ids=lambda level: level.value)
@settings(max_examples=examples(160), deadline=None)
@given(data=st.data(), history=histories() | histories(compacted=True))
def test_of_a_cluster_any_range_of_any_history_is_read_though_it_was_once_compacted(
    data: st.DataObject, history: History, isolation: IsolationLevel
) -> None:
    log, committed = history.log, isolation is IsolationLevel.READ_COMMITTED
    start = data.draw(st.integers(0, log.end))
    CurrentFetcher.fetcher = MemoryBucket([*history.segments, *history.lost]).fetcher()
    with closing(ModelLocator(history, CurrentFetcher.fetcher, isolation, start)) as locator:
        end = log.last_stable(log.end) if committed else log.end
        held = {offset for piece in locator.visible for offset in range(piece.offsets.start, piece.offsets.end)}
        of_last_leader = {
            offset
            for each in history.segments
            for offset in range(each.segment.base_offset, each.segment.end_offset + 1)
        }
        assert {offset for offset in of_last_leader if offset >= start} <= held
        for _ in range(4):
            wanted = drawn_range(data, min(start, end), end)
            rows = log.rows(max(start, wanted.start), wanted.end, committed=committed)
            expected = [row for row in rows if row[0] in held]
            assert read(locator, wanted, isolation, data.draw(SPLIT_BYTES)) == expected


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data(), history=histories())
def test_what_is_located_is_read_whichever_indexes_are_missing(data: st.DataObject, history: History) -> None:
    bucket = MemoryBucket([*history.segments, *history.lost])
    CurrentFetcher.fetcher = bucket.fetcher()
    indexes = sorted(key for key in bucket.objects if key.endswith(".indexes"))
    for key in data.draw(st.sets(st.sampled_from(indexes)) if indexes else st.just(set[str]())):
        del bucket.objects[key]
    made = ModelLocator(history, CurrentFetcher.fetcher, IsolationLevel.READ_COMMITTED, falls_back=True)
    with closing(made) as locator:
        wanted = drawn_range(data, 0, history.log.last_stable(history.log.end))
        held = {
            offset
            for location in locator.locate({PARTITION: wanted})[PARTITION]
            for offset in range(location.offsets.start, location.offsets.end)
        }
        expected = [row for row in history.log.rows(wanted.start, wanted.end, committed=True) if row[0] in held]
        assert read(locator, wanted, IsolationLevel.READ_COMMITTED, data.draw(SPLIT_BYTES)) == expected


@pytest.mark.parametrize("isolation", list(IsolationLevel), ids=lambda level: level.value)
@settings(max_examples=examples(60))
@given(data=st.data(), history=histories().filter(lambda history: len(history.segments) > 0))
def test_of_an_archive_that_ends_anywhere_all_is_read_that_is_decided(
    data: st.DataObject, history: History, isolation: IsolationLevel
) -> None:
    log, committed = history.log, isolation is IsolationLevel.READ_COMMITTED
    left = history.segments[: data.draw(st.integers(1, len(history.segments)))]
    end = left[-1].segment.end_offset + 1
    bucket = MemoryBucket(left)
    CurrentFetcher.fetcher = bucket.fetcher()
    archive = archive_in(bucket, CurrentFetcher.fetcher)
    with (
        closing(ArchiveLocator(archive, CurrentFetcher.fetcher, isolation)) as locator,
        closing(ArchiveOffsetReader(archive, CurrentFetcher.fetcher, isolation)) as offsets,
    ):
        end = log.last_stable(end) if committed else end
        assert offsets.latest([PARTITION]) == {PARTITION: end}
        for _ in range(4):
            wanted = drawn_range(data, 0, end)
            expected = log.rows(wanted.start, wanted.end, committed=committed)
            assert read(locator, wanted, isolation, data.draw(SPLIT_BYTES)) == expected

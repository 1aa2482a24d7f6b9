"""A model of a partition: what producers did, where Kafka would close its segments, and what is true.

Left out: codecs, headers, several records of one key, retention by time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from uuid import UUID

from tests.records.batches import marker_batch, transactional_batch
from tests.rigs.stack.batches import ProducerState, record_batch
from tests.rigs.stack.rows import Record
from tests.tier.fetchers import PassingFetcher
from tests.tier.segments import TieredSegment, in_epoch, tiered
from tiered_stream.model import LeaderEpoch, TopicPartition

PARTITION = TopicPartition("modelled", 0)
TOPIC_ID = UUID(int=99)

Row = tuple[int, bytes]


@dataclass(frozen=True)
class Batch:
    """`kind`: `plain`, `idempotent`, `data` (of a transaction), `commit`, `abort`."""

    kind: str
    base: int
    last: int
    producer_id: int
    epoch: int

    def rows(self) -> list[Row]:
        if self.kind in ("commit", "abort"):
            return []
        return [(offset, b"%d:%d" % (self.epoch, offset)) for offset in range(self.base, self.last + 1)]

    def encoded(self) -> bytes:
        return in_epoch(self._encoded(), self.epoch)

    def _encoded(self) -> bytes:
        if self.kind in ("commit", "abort"):
            return marker_batch(self.base, self.producer_id, commit=self.kind == "commit")
        records = [Record(None, value) for _, value in self.rows()]
        if self.kind == "data":
            return transactional_batch(records, self.base, self.producer_id)
        state = ProducerState(self.producer_id, 0, 0) if self.kind == "idempotent" else None
        return record_batch(records, state=state, base_offset=self.base)


@dataclass(frozen=True)
class Ended:
    """A transaction that ended; `last_stable` is the last stable offset then."""

    producer_id: int
    first: int
    last: int
    committed: bool
    last_stable: int


@dataclass
class Log:
    """Batches, and where segments begin, as one leader had them."""

    batches: list[Batch] = field(default_factory=list)
    cuts: set[int] = field(default_factory=lambda: {0})
    epoch: int = 0
    compacted: set[int] = field(default_factory=set)
    """Base offsets of batches that compaction took out. Markers and indexes stay, as after Kafka's first pass."""

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def append(self, kind: str, records: int, producer_id: int) -> None:
        ends_nothing = kind in ("commit", "abort") and producer_id not in self.undecided(self.end)
        if not ends_nothing:
            self.batches.append(Batch(kind, self.end, self.end + records - 1, producer_id, self.epoch))

    def elect(self, lost: int) -> Log:
        """Another leader's log, without the last `lost` batches."""
        kept = self.batches[: max(0, len(self.batches) - lost)]
        end = kept[-1].last + 1 if kept else 0
        return Log(kept, {cut for cut in self.cuts if cut <= end}, self.epoch + 1)

    def compact(self, random: Random) -> None:
        """Take any batches of records out of what is closed and decided, but for one of each segment."""
        for start, end in self.closed_segments():
            within = [batch for batch in self.batches if start <= batch.base < end]
            stays = random.choice(within)
            self.compacted |= {
                batch.base
                for batch in within
                if batch is not stays and batch.kind not in ("commit", "abort") and random.random() < 0.6
            }

    def ended(self, before: int) -> list[Ended]:
        """The transactions that ended below an offset, in order."""
        return self._transactions(before)[0]

    def undecided(self, before: int) -> dict[int, int]:
        """By producer, the first offset of a transaction that is open at an offset."""
        return self._transactions(before)[1]

    def _transactions(self, before: int) -> tuple[list[Ended], dict[int, int]]:
        begun: dict[int, int] = {}
        ended = []
        for batch in self.batches:
            if batch.base >= before:
                break
            if batch.kind == "data":
                begun.setdefault(batch.producer_id, batch.base)
            elif batch.kind in ("commit", "abort"):
                first = begun.pop(batch.producer_id)
                stable = min(begun.values(), default=batch.last + 1)
                ended.append(Ended(batch.producer_id, first, batch.base, batch.kind == "commit", stable))
        return ended, begun

    def last_stable(self, end: int) -> int:
        return min([end, *self.undecided(end).values()])

    def rows(self, start: int, end: int, *, committed: bool) -> list[Row]:
        """What a consumer returns."""
        void = {(each.producer_id, offset) for each in self.ended(self.end) if not each.committed
                for offset in range(each.first, each.last)}  # fmt: skip
        return [
            row
            for batch in self.batches
            if batch.base not in self.compacted
            if not (committed and batch.kind == "data" and (batch.producer_id, batch.base) in void)
            for row in batch.rows()
            if start <= row[0] < end
        ]

    def epochs(self, start: int, end: int) -> list[LeaderEpoch]:
        """Those of the offsets, the first one's start moved up to `start` (Kafka: `LeaderEpochFileCache`)."""
        begins: dict[int, int] = {}
        for batch in self.batches:
            if start <= batch.base < end:
                begins.setdefault(batch.epoch, batch.base)
        return [LeaderEpoch(epoch, offset) for epoch, offset in begins.items()]

    def closed_segments(self) -> list[tuple[int, int]]:
        """Offsets (end exclusive) of the segments that Kafka would tier: closed and decided."""
        bases = {batch.base for batch in self.batches}
        starts = sorted(cut for cut in self.cuts if cut in bases)
        return [(start, end) for start, end in pairwise(starts) if end <= self.last_stable(self.end)]


def tiered_of(log: Log, ids: Iterator[UUID], *, index_interval: int, says_empty: bool) -> list[TieredSegment]:
    """All segments of the log that Kafka would tier; `says_empty`: their metadata says so of a transaction index."""
    batches = [
        [batch.encoded() for batch in log.batches if start <= batch.base < end] for start, end in log.closed_segments()
    ]
    return tiered(
        PARTITION, batches, topic_id=TOPIC_ID, segment_ids=ids, index_interval=index_interval, says_empty=says_empty,
        removed=log.compacted,
    )  # fmt: skip


class CurrentFetcher(PassingFetcher):
    """For `remote.storage.fetcher.class`: whatever fetcher a test has put here."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Leave `fetcher` to the class."""

"""A model of a partition: what producers did, the segments and indexes that Kafka would make of it, and what is true.

Left out: codecs, headers, several records of one key, retention by time.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import ClassVar
from uuid import UUID

import google_crc32c

from tests.records.batches import marker_batch, transactional_batch
from tests.stack.batches import ProducerState, record_batch
from tests.stack.rows import Record
from tiered_stream.errors import StorageObjectNotFoundError
from tiered_stream.limits import Limit
from tiered_stream.model import ByteRange, LeaderEpoch, RemoteLogSegment, TopicPartition, uuid_to_text
from tiered_stream.storage.aiven.aiven_fetcher import AivenLayoutFetcher, main_path
from tiered_stream.storage.aiven.encryption import KeyRing
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.object_store import ObjectStore

PARTITION = TopicPartition("modelled", 0)
TOPIC_ID = UUID(int=99)
_CHUNK = 1 << 20

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


@dataclass(frozen=True)
class TieredSegment:
    """A segment of a log with its indexes."""

    segment: RemoteLogSegment
    log: bytes
    indexes: Mapping[IndexType, bytes]


def tiered(log: Log, start: int, end: int, number: int, *, index_interval: int, says_empty: bool) -> TieredSegment:
    """The segment of these offsets as Kafka uploads it; `says_empty`: it says so of an empty transaction index."""
    batches = [batch for batch in log.batches if start <= batch.base < end and batch.base not in log.compacted]
    encoded = [batch.encoded() for batch in batches]
    aborted = [each for each in log.ended(end) if each.last >= start and not each.committed]
    data = b"".join(encoded)
    segment = RemoteLogSegment(
        PARTITION, TOPIC_ID, UUID(int=number), start, end - 1, len(data), 0, tuple(log.epochs(start, end)),
        transaction_index_empty=says_empty and not aborted,
    )  # fmt: skip
    entries = [struct.pack(">hqqqq", 0, each.producer_id, each.first, each.last, each.last_stable) for each in aborted]
    epochs = [f"{entry.epoch} {entry.start_offset}" for entry in log.epochs(0, end)]
    indexes = {
        IndexType.OFFSET: _offset_index(batches, encoded, start, index_interval),
        IndexType.TIMESTAMP: b"",
        IndexType.TRANSACTION: b"".join(entries),
        IndexType.PRODUCER_SNAPSHOT: _snapshot(log, end),
        IndexType.LEADER_EPOCH: "\n".join(["0", str(len(epochs)), *epochs, ""]).encode(),
    }
    return TieredSegment(segment, data, indexes)


def _offset_index(batches: Sequence[Batch], encoded: Sequence[bytes], start: int, interval: int) -> bytes:
    """As Kafka 4: before a batch is appended, an entry for it where enough bytes came since the last entry."""
    index, position, since = b"", 0, 0
    for batch, data in zip(batches, encoded, strict=True):
        if since > interval:
            index, since = index + struct.pack(">ii", batch.last - start, position), 0
        position, since = position + len(data), since + len(data)
    return index


def _snapshot(log: Log, end: int) -> bytes:
    producer_ids = {batch.producer_id for batch in log.batches if batch.base < end and batch.producer_id >= 0}
    undecided = log.undecided(end)
    producers = [
        struct.pack(">qhiqiqiq", each, 0, 0, 0, 0, 0, 0, undecided.get(each, -1)) for each in sorted(producer_ids)
    ]
    body = struct.pack(">i", len(producers)) + b"".join(producers)
    return struct.pack(">hI", 1, google_crc32c.value(body)) + body


class MemoryBucket(ObjectStore):
    """An Aiven bucket in memory, neither compressed nor encrypted."""

    def __init__(self, segments: Collection[TieredSegment]) -> None:
        self.objects: dict[str, bytes] = {}
        for each in segments:
            key = main_path(each.segment)
            self.objects[f"{key}.log"] = each.log
            self.objects[f"{key}.indexes"] = b"".join(each.indexes.values())
            self.objects[f"{key}.rsm-manifest"] = manifest_of(each)

    def fetcher(self) -> RemoteStorageFetcher:
        return AivenLayoutFetcher(self, "", KeyRing({}))

    def get(self, key: str, wanted: ByteRange | Limit) -> bytes:
        if key not in self.objects:
            raise StorageObjectNotFoundError(f"{key} does not exist")
        if isinstance(wanted, Limit):
            return self.objects[key]
        assert wanted.end <= len(self.objects[key])
        return self.objects[key][wanted.start : wanted.end]

    def size(self, key: str) -> int:
        return len(self.objects[key])

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        return (key for key in self.objects if key.startswith(prefix) and key > after)

    def describe(self, key: str) -> str:
        return f"memory:{key}"


class CurrentFetcher(RemoteStorageFetcher):
    """For `remote.storage.fetcher.class`: whatever fetcher a test has put here."""

    current: ClassVar[RemoteStorageFetcher]

    def __init__(self, properties: Mapping[str, str]) -> None:
        pass

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        return self.current.fetch_log_segment(segment, start, end)

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return self.current.fetch_indexes(segment, types)


def manifest_of(each: TieredSegment) -> bytes:
    """The plugin's manifest of a segment that is neither compressed nor encrypted."""
    segment, size = each.segment, each.segment.size
    names = {
        IndexType.OFFSET: "offset",
        IndexType.TIMESTAMP: "timestamp",
        IndexType.PRODUCER_SNAPSHOT: "producerSnapshot",
        IndexType.LEADER_EPOCH: "leaderEpoch",
        IndexType.TRANSACTION: "transaction",
    }
    places, position = {}, 0
    for index_type, data in each.indexes.items():
        places[names[index_type]] = {"position": position, "size": len(data)}
        position += len(data)
    if segment.transaction_index_empty:
        del places["transaction"]
    topic, partition = segment.topic_partition.topic, segment.topic_partition.partition
    metadata = {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": uuid_to_text(segment.topic_id),
                "topicPartition": {"topic": topic, "partition": partition},
            },
            "id": uuid_to_text(segment.segment_id),
        },
        "startOffset": segment.base_offset,
        "endOffset": segment.end_offset,
        "maxTimestampMs": segment.max_timestamp,
        "segmentLeaderEpochs": {str(entry.epoch): entry.start_offset for entry in segment.leader_epochs},
        "txnIdxEmpty": segment.transaction_index_empty,
    }
    chunks = {
        "type": "fixed", "originalChunkSize": _CHUNK, "originalFileSize": size,
        "transformedChunkSize": _CHUNK, "finalTransformedChunkSize": size - max(size - 1, 0) // _CHUNK * _CHUNK,
    }  # fmt: skip
    manifest = {"version": "1", "chunkIndex": chunks, "segmentIndexes": places, "compression": False}
    return json.dumps({**manifest, "remoteLogSegmentMetadata": metadata}).encode()

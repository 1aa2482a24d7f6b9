"""A tier in a folder, as `LocalTieredStorage` lays it out, filled with chosen record batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from uuid import UUID

from tests.stack.batches import record_batch
from tests.stack.rows import Record, Row
from tiered_stream.model import (
    AbortedTransaction,
    ByteRange,
    OffsetRange,
    RemoteLogSegment,
    SegmentLocation,
    TopicPartition,
)
from tiered_stream.storage.local_layout import object_key

PARTITION = TopicPartition("orders", 3)


@dataclass(frozen=True)
class WrittenSegment:
    """A segment in the folder; `starts` are its batches' base offsets, `positions` their bytes, each with the end."""

    segment: RemoteLogSegment
    path: Path
    starts: tuple[int, ...]
    positions: tuple[int, ...]

    def location(
        self, first: int = 0, end: int | None = None, aborted: tuple[AbortedTransaction, ...] = ()
    ) -> SegmentLocation:
        """The batches from number `first` to number `end` (exclusive; None: all that follow)."""
        end = len(self.starts) - 1 if end is None else end
        offsets = OffsetRange(self.starts[first], self.starts[end])
        return SegmentLocation(
            self.segment, offsets, ByteRange(self.positions[first], self.positions[end]), aborted_transactions=aborted
        )


class TierFolder:
    """Segments of partition 3 of the topic `orders`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, batches: Sequence[bytes], end: int) -> WrittenSegment:
        """One segment of these batches; `end` is the offset after its last."""
        log = b"".join(batches)
        starts = tuple(int.from_bytes(batch[:8], "big") for batch in batches)
        segment = RemoteLogSegment(
            topic_partition=PARTITION,
            topic_id=UUID(int=1),
            segment_id=UUID(int=starts[0] + 2),
            base_offset=starts[0],
            end_offset=end - 1,
            size=len(log),
        )
        path = self.root / object_key(segment, ".log")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log)
        return WrittenSegment(segment, path, (*starts, end), (0, *accumulate(map(len, batches))))


def record_at(offset: int) -> Record:
    """The record that tests put at an offset."""
    headers = (("h", b"%d" % offset),) if offset % 3 else ()
    return Record(b"key %d" % offset, b"value " * (offset % 50), headers, 1_700_000_000_000 + offset)


def batches_of(start: int, end: int, size: int = 7, codecs: Sequence[str] = ("none",)) -> list[bytes]:
    """Batches of `size` offsets from `start` to `end` (exclusive), the codecs taking turns."""
    return [
        record_batch(map(record_at, range(base, min(base + size, end))), codecs[index % len(codecs)], base_offset=base)
        for index, base in enumerate(range(start, end, size))
    ]


def rows_at(*offsets: int) -> list[Row]:
    """What must come out for the records at these offsets."""
    return [
        Row(PARTITION.partition, offset, each.timestamp_ms, 0, each.key, each.value, each.headers)
        for offset in offsets
        for each in [record_at(offset)]
    ]

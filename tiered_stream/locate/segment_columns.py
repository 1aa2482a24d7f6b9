"""Columns with the metadata of many segments, from which a `RemoteLogSegment` is made when a plan needs it.

A topic has up to a million segments. As objects, they would take four times the memory, and most of a plan's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat, starmap
from struct import Struct
from typing import Any, overload
from uuid import UUID

import numpy as np
import numpy.typing as npt

from tiered_stream.model import NO_TOPIC_ID, LeaderEpoch, RemoteLogSegment, TopicPartition

Int64s = npt.NDArray[np.int64]

SEGMENT = np.dtype([
    ("high", "<u8"), ("low", "<u8"), ("base", "<i8"), ("end", "<i8"), ("size", "<i8"), ("timestamp", "<i8"),
    ("epochs_at", "<i8"), ("custom_at", "<i8"), ("epochs", "<i4"), ("custom", "<i4"), ("slot", "<i4"),
    ("state", "<i2"), ("no_transactions", "<i2"),
])  # fmt: skip
"""numpy type of a segment's row.

The row has the halves of the segment's id, its offsets (`end` is inclusive), its size in bytes and its largest
timestamp. `epochs_at` and `epochs` are the position and number of its leader epochs in the data bytes. `custom_at` and
`custom` are the position and size of its custom metadata (-1: none). Only `SegmentTable` uses `slot` and `state`.
"""
EPOCH = np.dtype([("epoch", ">i4"), ("start", ">i8"), ("tags", "i1")])
"""numpy type of a leader epoch: epoch, start offset, and a zero byte, as in a record of `__remote_log_metadata`."""
_EPOCH = Struct(">iqx")
_HALF = (1 << 64) - 1
_NO_PARTITION = TopicPartition("", 0)


@dataclass(frozen=True, eq=False)
class Segments(Sequence[RemoteLogSegment]):
    """Sequence of one partition's segments, kept in arrays; an element is made when it is read from the sequence.

    `rows` are of the type `SEGMENT`. `data` has the leader epochs (`EPOCH`) and the custom metadata at the positions
    that the rows name. `SegmentTable` also joins segments of several partitions in one object of this class. It reads
    no elements from such an object, because they would have the wrong partition.
    """

    rows: npt.NDArray[np.void] = field(default_factory=lambda: np.empty(0, SEGMENT))
    data: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    topic_partition: TopicPartition = _NO_PARTITION
    topic_id: UUID = NO_TOPIC_ID

    @classmethod
    def of(cls, segments: Iterable[RemoteLogSegment], codes: Iterable[tuple[int, int]] = repeat((0, 0))) -> Segments:
        """Return `segments`, which are of one partition, in arrays; `codes` has each segment's slot and state."""
        if isinstance(segments, Segments):
            return segments
        rows, data, segment = [], bytearray(), None
        for segment, code in zip(segments, codes, strict=False):
            at, custom = len(data), segment.custom_metadata
            data += b"".join(_EPOCH.pack(*entry) for entry in segment.leader_epochs)
            rows.append((
                segment.segment_id.int >> 64, segment.segment_id.int & _HALF, segment.base_offset, segment.end_offset,
                segment.size, segment.max_timestamp, at, len(data), len(segment.leader_epochs),
                -1 if custom is None else len(custom), *code, segment.transaction_index_empty,
            ))  # fmt: skip
            data += custom or b""
        named = (segment.topic_partition, segment.topic_id) if segment else ()
        return cls(np.array(rows, SEGMENT), np.frombuffer(bytes(data), np.uint8), *named)

    @classmethod
    def joined(cls, parts: Sequence[Segments]) -> Segments:
        """Return the segments of all `parts` in one object, in their order, without the name of a partition."""
        parts = [part for part in parts if len(part)] or [cls()]
        rows = np.concatenate([part.rows for part in parts], dtype=SEGMENT)
        shift = np.repeat(_starts(np.array([len(part.data) for part in parts], np.int64)), list(map(len, parts)))
        rows["epochs_at"] += shift
        rows["custom_at"] += shift
        return cls(rows, np.concatenate([part.data for part in parts]))

    def taken(self, index: Any) -> Segments:
        """Return the segments that numpy selects by `index`; the result shares no memory with these segments.

        Its leader epochs and custom metadata follow each other without gaps, in the order of the rows.
        """
        rows = np.array(self.rows[index])
        data, starts = _gathered(self.data, interleaved(rows["epochs_at"], rows["custom_at"]), data_sizes(rows))
        rows["epochs_at"], rows["custom_at"] = starts[::2], starts[1::2]
        return replace(self, rows=rows, data=data)

    @property
    def epochs(self) -> npt.NDArray[np.void]:
        """Leader epochs (`EPOCH`) of all segments, in their order."""
        sizes = data_sizes(self.rows)[::2]
        if sizes.sum() == len(self.data):  # no segment has custom metadata
            return self.data.view(EPOCH)
        return _gathered(self.data, self.rows["epochs_at"], sizes)[0].view(EPOCH)

    @cached_property
    def leader_epochs(self) -> frozenset[int]:
        """Distinct numbers of the leader epochs of all segments."""
        return frozenset(np.unique(self.epochs["epoch"]).tolist())

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> RemoteLogSegment: ...
    @overload
    def __getitem__(self, at: slice) -> Segments: ...
    def __getitem__(self, at: int | slice) -> RemoteLogSegment | Segments:
        if isinstance(at, slice):
            return self.taken(at)
        return next(self.objects([at]))  # numpy raises IndexError

    def __iter__(self) -> Iterator[RemoteLogSegment]:
        return self.objects(slice(None))

    def objects(self, index: Any) -> Iterator[RemoteLogSegment]:
        """Yield the segments that numpy selects by `index`; many at once take less time than one by one."""
        data = self.data.data
        for (
            high, low, base, end, size, timestamp, epochs_at, custom_at, epochs, custom, _, _, no_transactions
        ) in self.rows[index].tolist():  # fmt: skip
            entries = _EPOCH.iter_unpack(data[epochs_at : epochs_at + epochs * _EPOCH.size])
            yield RemoteLogSegment(
                self.topic_partition, self.topic_id, UUID(int=high << 64 | low), base, end, size, timestamp,
                tuple(starmap(LeaderEpoch, entries)), bool(no_transactions),
                None if custom < 0 else bytes(data[custom_at : custom_at + custom]),
            )  # fmt: skip


def data_sizes(rows: npt.NDArray[np.void]) -> Int64s:
    """Return two sizes in bytes for each row: the size of its leader epochs, then the size of its custom metadata."""
    return interleaved(rows["epochs"] * np.int64(_EPOCH.size), np.maximum(rows["custom"], 0))


def interleaved(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Int64s:
    """Return the numbers of two equally long arrays alternately, beginning with the first number of `first`."""
    numbers = np.empty(2 * len(first), np.int64)
    numbers[::2], numbers[1::2] = first, second
    return numbers


def _gathered(data: npt.NDArray[np.uint8], at: Int64s, sizes: Int64s) -> tuple[npt.NDArray[np.uint8], Int64s]:
    """Return the bytes of several ranges of `data`, one range after the other, and each range's start in this result.

    The ranges begin at the positions `at` and have the sizes `sizes`.
    """
    starts = _starts(sizes)
    index = np.repeat(at - starts, sizes)
    index += np.arange(len(index))
    return data[index], starts


def _starts(sizes: Int64s) -> Int64s:
    ends: Int64s = np.cumsum(sizes)
    return ends - sizes

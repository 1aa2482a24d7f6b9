"""Columns with the metadata of many segments, from which a `RemoteLogSegment` is made when a plan needs it.

A topic has up to a million segments. As objects, they would take ten times the memory, and most of a plan's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload
from uuid import UUID

import numpy as np
import numpy.typing as npt

from tiered_stream.model import NO_TOPIC_ID, LeaderEpoch, RemoteLogSegment, TopicPartition

Int64s = npt.NDArray[np.int64]

SEGMENT = np.dtype(
    [
        ("high", "<i8"), ("low", "<i8"), ("base", "<i8"), ("end", "<i8"), ("size", "<i8"), ("timestamp", "<i8"),
        ("epochs_at", "<i8"), ("custom_at", "<i8"), ("epochs", "<i4"), ("custom", "<i4"), ("slot", "<i4"),
        ("state", "<i2"), ("no_transactions", "<i2"),
    ]
)  # fmt: skip
"""Row of a segment: the halves of its id, its offsets (`end` is inclusive), its size and its largest timestamp.

`epochs_at` and `epochs` are the position and number of its leader epochs, `custom_at` and `custom` the position and
size of its custom metadata (-1: none). `slot` and `state` belong to the table of the metadata topic's records.
"""
NO_CUSTOM_METADATA = -1
_HALF = (1 << 64) - 1
_NO_PARTITION = TopicPartition("", 0)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentColumns:
    """Rows of segments (`SEGMENT`), their leader epochs as pairs (epoch, start offset), and their custom metadata.

    The epochs and the custom metadata of the rows follow each other without gaps, in the order of the rows.
    """

    rows: npt.NDArray[np.void]
    epochs: Int64s
    custom: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.rows)

    def taken(self, index: Any) -> SegmentColumns:
        """Return the columns with the rows that numpy selects by `index`, in memory of their own."""
        return packed(np.array(self.rows[index]), self.epochs, self.custom)

    @classmethod
    def joined(cls, parts: Sequence[SegmentColumns]) -> SegmentColumns:
        """Return the columns with all rows of `parts`, in their order."""
        if len(parts) == 1:
            return parts[0]
        rows = np.concatenate([part.rows for part in parts] or [np.empty(0, SEGMENT)])
        epochs = np.concatenate([part.epochs for part in parts] or [np.empty((0, 2), np.int64)])
        custom = np.concatenate([part.custom for part in parts] or [np.empty(0, np.uint8)])
        rows["epochs_at"], rows["custom_at"] = _starts(rows["epochs"]), _starts(_custom_sizes(rows))
        return cls(rows, epochs, custom)


def packed(rows: npt.NDArray[np.void], epochs: Int64s, custom: npt.NDArray[np.uint8]) -> SegmentColumns:
    """Return columns of `rows`, whose positions in `epochs` and `custom` may have any order; `rows` is changed."""
    epochs, rows["epochs_at"] = gathered(epochs, rows["epochs_at"], rows["epochs"])
    custom, rows["custom_at"] = gathered(custom, rows["custom_at"], _custom_sizes(rows))
    return SegmentColumns(rows, epochs, custom)


def gathered(pool: npt.NDArray[Any], at: Int64s, counts: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Int64s]:
    """Return the items of `pool` at several ranges, one after the other, and the start of each range in the result.

    A range has a start in `at` and a number of items in `counts`.
    """
    starts = _starts(counts)
    index = np.repeat(at - starts, counts)
    index += np.arange(len(index))
    return pool[index], starts


def _starts(counts: npt.NDArray[Any]) -> Int64s:
    ends: Int64s = np.cumsum(counts, dtype=np.int64)
    ends -= counts
    return ends


def _custom_sizes(rows: npt.NDArray[np.void]) -> npt.NDArray[Any]:
    sizes: npt.NDArray[Any] = np.maximum(rows["custom"], 0)
    return sizes


class RowBuffer:
    """Buffer of rows that are made one by one, until `columns` makes arrays of them."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._epochs: list[LeaderEpoch] = []
        self._custom = bytearray()

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self, segment_id: UUID, custom: bytes | None, slot: int, state: int, segment: RemoteLogSegment | None, end: int
    ) -> None:
        """Add a row; if `segment` is None, only the fields are known that are given, and `end` is the end offset."""
        high, low = segment_id.int >> 64, segment_id.int & _HALF
        epochs: tuple[LeaderEpoch, ...] = ()
        fields = 0, end, 0, -1
        if segment is not None:
            epochs = segment.leader_epochs
            fields = segment.base_offset, end, segment.size, segment.max_timestamp
        self._rows.append((
            high - (high >> 63 << 64), low - (low >> 63 << 64), *fields, len(self._epochs), len(self._custom),
            len(epochs), NO_CUSTOM_METADATA if custom is None else len(custom), slot, state,
            segment is not None and segment.transaction_index_empty,
        ))  # fmt: skip
        self._epochs += epochs
        self._custom += custom or b""

    def columns(self) -> SegmentColumns:
        """Return the columns with the rows, and empty the buffer."""
        columns = SegmentColumns(
            np.array(self._rows, SEGMENT),
            np.array(self._epochs, np.int64).reshape(-1, 2),
            np.frombuffer(bytes(self._custom), np.uint8),
        )
        self.__init__()  # type: ignore[misc]
        return columns


@dataclass(frozen=True, eq=False)
class Segments(Sequence[RemoteLogSegment]):
    """Segments of one partition, each of which becomes an object when it is asked for."""

    columns: SegmentColumns = field(default_factory=lambda: SegmentColumns.joined([]))
    topic_partition: TopicPartition = _NO_PARTITION
    topic_id: UUID = NO_TOPIC_ID

    @classmethod
    def of(cls, segments: Iterable[RemoteLogSegment]) -> Segments:
        """Return columns of `segments`, which are of one partition."""
        if isinstance(segments, Segments):
            return segments
        buffer, segment = RowBuffer(), None
        for segment in segments:
            buffer.add(segment.segment_id, segment.custom_metadata, 0, 0, segment, segment.end_offset)
        return cls() if segment is None else cls(buffer.columns(), segment.topic_partition, segment.topic_id)

    def __len__(self) -> int:
        return len(self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Segments) and list(self) == list(other)

    @overload
    def __getitem__(self, at: int) -> RemoteLogSegment: ...
    @overload
    def __getitem__(self, at: slice) -> Segments: ...
    def __getitem__(self, at: int | slice) -> RemoteLogSegment | Segments:
        if isinstance(at, slice):
            return Segments(self.columns.taken(at), self.topic_partition, self.topic_id)
        (
            high, low, base, end, size, timestamp, epochs_at, custom_at, epochs, custom, _, _, no_transactions
        ) = self.columns.rows[at].item()  # fmt: skip
        entries = self.columns.epochs[epochs_at : epochs_at + epochs].tolist()
        return RemoteLogSegment(
            self.topic_partition, self.topic_id, UUID(int=(high & _HALF) << 64 | (low & _HALF)), base, end, size,
            timestamp, tuple(LeaderEpoch(*entry) for entry in entries), bool(no_transactions),
            None if custom < 0 else self.columns.custom[custom_at : custom_at + custom].tobytes(),
        )  # fmt: skip

    @cached_property
    def leader_epochs(self) -> frozenset[int]:
        """Leader epochs of all segments."""
        return frozenset(np.unique(self.columns.epochs[:, 0]).tolist())

"""Parsers of the index files that are uploaded with a log segment, except the offset index, and a cache of all indexes.

Time index (Kafka: `TimeIndex`), 12 bytes an entry, timestamps strictly ascending, offsets never descending:

    timestamp         int64   largest timestamp (ms) of the segment so far
    relative offset   int32   an offset in the batch that has this timestamp, minus the segment's base offset

Transaction index (Kafka: `TransactionIndex`, `AbortedTxn`), 34 bytes an entry, last offsets strictly ascending:

    version           int16   0
    producer id       int64
    first offset      int64   of the transaction
    last offset       int64   of the transaction: its abort marker, in this segment
    last stable offset int64  of the partition when the marker was written: transactions that begin below it are decided

Brokers grow index files in place and trim them when the segment closes. Zeros that a crash left at the end of an offset
or time index are ignored, as Kafka ignores them. Every other deviation is an error.

Leader epoch checkpoint (Kafka: `LeaderEpochCheckpointFile`), text, one item a line, epochs and offsets ascending:

    0                   version
    <count>
    <epoch> <offset>    `count` times: an epoch and the first offset written in it

Producer snapshot (Kafka: `ProducerStateManager`, message `ProducerSnapshot`), big-endian:

    version             int16    1
    crc                 uint32   CRC-32C of what follows
    count               int32
    `count` times, 46 bytes:
        producer id               int64
        epoch                     int16
        last sequence             int32
        last offset               int64
        offset delta              int32
        timestamp                 int64
        coordinator epoch         int32
        current txn first offset  int64   -1: no transaction is open
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar
from uuid import UUID

import google_crc32c
import numpy as np
import numpy.typing as npt

from tiered_stream.errors import CorruptDataError, UnsupportedDataError, naming
from tiered_stream.locate.segment_columns import Int64s
from tiered_stream.model import AbortedTransaction, RemoteLogSegment
from tiered_stream.options.types import INT_MAX, LONG_MAX
from tiered_stream.process.caches import SingleFlightCache
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher

T = TypeVar("T")

_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_TRANSACTION_ENTRY = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("first", ">i8"), ("last", ">i8"), ("last_stable", ">i8")]
)

_EPOCH_LINE = re.compile(r"(\d{1,10}) (\d{1,19})")
_HEADER = struct.Struct(">hIi")  # version, crc, count
_CRC_COVERS_FROM = 6
_PRODUCER = struct.Struct(">qhiqiqiq")  # the eight fields of a producer's entry
_PRODUCER_SNAPSHOT_VERSION = 1
DEFAULT_CACHE_BYTES = 64 << 20
_ENTRY_OVERHEAD = 512
"""Assumed memory of a cache entry in bytes in addition to its data, so that the number of empty entries is bounded."""
_Indexes = dict[IndexType, bytes]


@dataclass(frozen=True, slots=True, eq=False)
class TimeIndex:
    """Time index of one segment: parallel arrays of `timestamps` (ms), which ascend, and absolute `offsets`.

    The offsets never descend. `base_offset` is the first offset of the segment.
    """

    base_offset: int
    timestamps: Int64s
    offsets: Int64s

    def floor_offset(self, timestamp: int) -> int:
        """Return an offset such that all records in batches before it are older than `timestamp` (ms).

        It is the offset of the last entry whose timestamp is at most `timestamp`, as in Kafka's `TimeIndex.lookup`. If
        there is no such entry, it is `base_offset`.
        """
        entry = int(np.searchsorted(self.timestamps, timestamp, side="right")) - 1
        return int(self.offsets[entry]) if entry >= 0 else self.base_offset


@dataclass(frozen=True, slots=True)
class TransactionIndexEntry:
    """Aborted transaction, and the last stable offset when its abort marker was written (Kafka: `AbortedTxn`)."""

    transaction: AbortedTransaction
    last_stable_offset: int


def parse_time_index(data: bytes, base_offset: int) -> TimeIndex:
    """Parse the bytes of the time index of a segment that begins at `base_offset`.

    Raises:
        CorruptDataError: entries are cut short, out of order or too large.
    """
    entries = without_trailing_zeros(read_entries(data, _TIME_ENTRY, "time index"))
    timestamps, offsets = entries["timestamp"].astype(np.int64), entries["offset"].astype(np.int64)
    check_entries(
        "time index",
        ("an offset below the segment's base offset", offsets < 0),
        ("an offset beyond 64 bits", offsets > LONG_MAX - base_offset),
        ("timestamps that do not ascend", timestamps[1:] <= timestamps[:-1]),
        ("offsets that descend", np.diff(offsets) < 0),
    )
    return TimeIndex(base_offset, timestamps, offsets + base_offset)


def parse_transaction_index(data: bytes, base_offset: int) -> tuple[TransactionIndexEntry, ...]:
    """Parse the bytes of the transaction index of a segment that begins at `base_offset`; entries keep their order.

    Raises:
        CorruptDataError: entries are cut short or out of order, or a transaction ended before the segment begins.
        UnsupportedDataError: the version of an entry is not 0.
    """
    entries = read_entries(data, _TRANSACTION_ENTRY, "transaction index")
    if not len(entries):
        return ()
    if entries["version"].any():
        version = int(entries["version"][np.nonzero(entries["version"])[0][0]])
        raise UnsupportedDataError(f"transaction index: entry version {version}; only version 0 is known")
    first, last = entries["first"].astype(np.int64), entries["last"].astype(np.int64)
    check_entries(
        "transaction index",
        ("last offsets that do not ascend", last[1:] <= last[:-1]),
        (f"a transaction that ended at {last[0]}, before it", last[:1] < base_offset),
        ("a transaction that ends before its start", (first < 0) | (first > last)),
        ("a negative last stable offset", entries["last_stable"] < 0),
    )
    return tuple(
        TransactionIndexEntry(AbortedTransaction(producer_id, first_offset, last_offset), last_stable_offset)
        for _, producer_id, first_offset, last_offset, last_stable_offset in entries.tolist()
    )


def read_entries(data: bytes, entry: np.dtype[np.void], name: str) -> npt.NDArray[np.void]:
    """Return the bytes `data` of an index file as entries of the type `entry`; `name` names the index in the error.

    Raises:
        CorruptDataError: the last entry is cut off.
    """
    if len(data) % entry.itemsize:
        raise CorruptDataError(f"{name}: it has {len(data)} bytes, no multiple of {entry.itemsize}")
    return np.frombuffer(data, dtype=entry)


def without_trailing_zeros(entries: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return the entries up to the last one that has a byte other than zero."""
    written = np.nonzero(entries != np.zeros((), dtype=entries.dtype))[0]
    return entries[: int(written[-1]) + 1 if len(written) else 0]


def check_entries(name: str, *faults: tuple[str, npt.NDArray[np.bool_]]) -> None:
    """Check that no entry of an index file has a fault.

    Args:
        name: name of the index, for the error.
        faults: description of each fault, with a mask of the entries that have it.

    Raises:
        CorruptDataError: an entry has a fault; the message has the description of the first one.
    """
    for fault, entries in faults:
        if entries.any():
            raise CorruptDataError(f"{name}: it has {fault}")


def parse_leader_epoch_checkpoint(data: bytes) -> tuple[tuple[int, int], ...]:
    """Return (epoch, first offset) of every leader epoch up to the segment's end, ascending.

    Raises:
        CorruptDataError: the bytes are not a leader epoch checkpoint, or its epochs or offsets do not ascend or are too
            large.
        UnsupportedDataError: the version is not 0.
    """
    version, *lines = data.decode("ascii", "replace").removesuffix("\n").split("\n")
    if version != "0" and version.isdecimal():
        raise UnsupportedDataError(f"leader epoch checkpoint: version {version[:20]}; only version 0 is known")
    matches = [_EPOCH_LINE.fullmatch(line) for line in lines[1:]]
    entries = tuple((int(match[1]), int(match[2])) for match in matches if match)
    if version != "0" or lines[:1] != [str(len(entries))] or len(entries) < len(matches):
        raise CorruptDataError("leader epoch checkpoint: it is no version, number of entries, epochs and offsets")
    for (epoch, offset), (later_epoch, later_offset) in pairwise(entries):
        if later_epoch <= epoch or later_offset < offset:
            raise CorruptDataError(
                f"leader epoch checkpoint: epoch {later_epoch} from offset {later_offset} after {epoch} from {offset}"
            )
    if entries and (entries[-1][0] > INT_MAX or entries[-1][1] > LONG_MAX):
        raise CorruptDataError(f"leader epoch checkpoint: epoch {entries[-1][0]} from offset {entries[-1][1]}")
    return entries


def open_transactions(data: bytes) -> list[tuple[int, int]]:
    """Parse a producer snapshot; return (producer id, first offset) of each transaction open at the segment's end.

    Raises:
        CorruptDataError: the checksum, the size or the first offset of a transaction is wrong.
        UnsupportedDataError: the version is not 1.
    """
    if len(data) < _HEADER.size:
        raise CorruptDataError(f"producer snapshot: {len(data)} bytes, shorter than its header")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _PRODUCER_SNAPSHOT_VERSION:
        raise UnsupportedDataError(f"producer snapshot: version {version}; only version 1 is known")
    if google_crc32c.value(bytes(data[_CRC_COVERS_FROM:])) != crc:
        raise CorruptDataError("producer snapshot: its checksum does not fit")
    if count < 0 or len(data) != _HEADER.size + count * _PRODUCER.size:
        raise CorruptDataError(f"producer snapshot: {count} entries announced in {len(data)} bytes")
    firsts = [(producer_id, first) for producer_id, *_, first in _PRODUCER.iter_unpack(data[_HEADER.size :])]
    for producer_id, first in firsts:
        if first < -1:
            raise CorruptDataError(f"producer snapshot: producer {producer_id} has a transaction from offset {first}")
    return [(producer_id, first) for producer_id, first in firsts if first != -1]


class IndexCache:
    """Cache of the bytes of segments' indexes, for many threads.

    Threads that want the same indexes of a segment at the same time share one request. An entry has the indexes of one
    segment that were requested together. `max_bytes` is the maximum size of all entries.
    """

    def __init__(self, fetcher: RemoteStorageFetcher, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._fetcher = fetcher
        self._cache: SingleFlightCache[tuple[UUID, frozenset[IndexType]], _Indexes] = SingleFlightCache(
            max_bytes, lambda indexes: _ENTRY_OVERHEAD + sum(map(len, indexes.values()))
        )

    def get(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> _Indexes:
        """Return the bytes of the segment's indexes by type; types that the segment does not have are left out."""
        key = segment.segment_id, frozenset(types)
        return self._cache.get(key, lambda: self._fetcher.fetch_indexes(segment, key[1]))

    def parsed(self, segment: RemoteLogSegment, index_type: IndexType, parse: Callable[[bytes], T]) -> T:
        """Return the result of `parse` for the bytes of the segment's index; an error of `parse` names the segment.

        If the segment does not have the index, `parse` gets an empty `bytes`.
        """
        data = self.get(segment, (index_type,)).get(index_type, b"")
        with naming(segment):
            return parse(data)

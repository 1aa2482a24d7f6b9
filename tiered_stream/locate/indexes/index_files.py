"""Parsers of the time and the transaction indexes that are uploaded with a log segment.

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
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.model import AbortedTransaction

_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_TRANSACTION_ENTRY = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("first", ">i8"), ("last", ">i8"), ("last_stable", ">i8")]
)

Int64s = npt.NDArray[np.int64]


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
        CorruptDataError: entries are cut short or out of order.
    """
    entries = without_trailing_zeros(read_entries(data, _TIME_ENTRY, "time index"))
    timestamps, offsets = entries["timestamp"].astype(np.int64), entries["offset"].astype(np.int64)
    check_entries(
        "time index",
        ("an offset below the segment's base offset", offsets < 0),
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

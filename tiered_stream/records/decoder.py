"""Decoder of the bytes of a partition's log, from tiered segments or from brokers, to Arrow batches.

A batch's CRC-32C does not cover its base offset, and an offset index has no checksum at all. But a segment's metadata
and its offset index both state which offsets the bytes must have (`PartBounds`). Other offsets show that the log or the
index was altered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.data_limits import DEFAULT_LIMITS, Limits
from tiered_stream.errors import CorruptDataError, naming
from tiered_stream.model import AbortedTransaction
from tiered_stream.records import header, kernels
from tiered_stream.records.arrow import RecordBuffers, record_schema
from tiered_stream.records.codecs import Buffer, DecompressedRecords
from tiered_stream.records.header import MAGIC
from tiered_stream.records.legacy import locate_messages
from tiered_stream.records.memory import allocate

MAX_ROWS = 16_384
"""Default maximum number of rows in one Arrow batch. Spark's JVM handles batches of this size well."""
TARGET_BYTES = 7 << 20
"""Bytes of uncompressed records at which a unit ends. A unit consists of the record batches that are decoded together.
A larger batch is a unit of its own.

Larger units save no time, and two or three units are in a worker's memory at once. Two units of 7 MiB fit into the
memory of a response of 16 MiB. Two units of 8 MiB would not, because the last batch of a unit exceeds the target.
"""
LISTED_BATCHES = 1 << 14
"""Maximum number of record batches that one call of `kernels.scan_batches` lists in its table."""
ONE_RECORD = bytes.fromhex(
    "0000000000000000" "0000003a" "ffffffff" "02" "c6fdac91" "0000" "00000000" "0000000000000000" "0000000000000000"
    "ffffffffffffffff" "ffff" "ffffffff" "00000001" "10" "00" "00" "00" "02" "61" "02" "62" "00"
)  # fmt: skip
"""Bytes of a record batch that has one record, at offset 0."""
_FIRST_KEY_SHARE, _KEY_MARGIN = 0.25, 1.25
"""Fraction of the records' bytes that is reserved for keys at first, and the factor by which later fractions exceed the
measured fraction.
"""
_LEAST_KEY_BYTES = 1 << 20
"""Minimum number of bytes that are reserved for keys. Less would save little memory, but could cause one more Arrow
batch.
"""
Table = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class PartBounds:
    """Bounds for the offsets of the record batches in a part of a segment.

    All offsets must lie between `lowest` and `highest`, both included. The first batch must begin at offset `first` or
    before it. The offset after the last batch must lie between `following[0]` and `following[1]`, both included. A
    bound that is None is not checked. The methods raise CorruptDataError for offsets outside the bounds.
    """

    lowest: int
    highest: int
    first: int | None = None
    following: tuple[int, int] | None = None

    def check_first(self, base_offset: int, magic: int) -> None:
        """Check that the first batch, which begins at `base_offset`, is within the bounds `lowest` and `first`.

        `first` is not checked for a batch of magic 0 or 1. Raises CorruptDataError if the check fails.
        """
        if base_offset < self.lowest:
            raise CorruptDataError(f"its first batch begins at offset {base_offset}, before its segment")
        if magic >= MAGIC and self.first is not None and base_offset > self.first:
            raise CorruptDataError(
                f"the batch where offset {self.first} was looked for begins at {base_offset}: log or offset index was "
                "altered"
            )

    def check_next(self, next_offset: int) -> None:
        """Check that a batch, which ends just before `next_offset`, does not end after the bound `highest`.

        Raises CorruptDataError if the check fails.
        """
        if next_offset > self.highest + 1:
            raise CorruptDataError(f"a batch ends at offset {next_offset - 1}, beyond its segment")

    def check_end(self, next_offset: int) -> None:
        """Check that `next_offset`, the offset after the last batch, lies within the bounds `following`.

        Raises CorruptDataError if the check fails.
        """
        if self.following is not None and not self.following[0] <= next_offset <= self.following[1]:
            first, last = self.following
            raise CorruptDataError(
                f"the batches end before offset {next_offset}, the offset index says between {first} and {last}: one "
                "of the two was altered"
            )


class RecordBatchDecoder:
    """Decoder of the log of one partition to Arrow batches. `feed` takes the log's bytes, from the start of a batch on.

    The decoder drops records outside `[start_offset, end_offset)`, control records, and records of `aborted`
    transactions. If `bounds` is set, it checks the offsets of record batches. `columns` are the names of the columns in
    the Arrow batches; None: all columns. An Arrow batch has at most `max_rows` rows.
    """

    def __init__(
        self, topic: str, partition: int, start_offset: int, end_offset: int, *,
        aborted: Sequence[AbortedTransaction] = (), include_headers: bool = False, check_crcs: bool = True,
        bounds: PartBounds | None = None, max_rows: int = MAX_ROWS, limits: Limits = DEFAULT_LIMITS,
        columns: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        self._topic = topic
        self._partition = partition
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._schema = record_schema(include_headers, columns)
        self._limits = limits
        self._check_crcs = check_crcs
        self._bounds = bounds
        self._max_rows = max_rows
        intervals = sorted(
            {(transaction.producer_id, transaction.first_offset, transaction.last_offset) for transaction in aborted}
        )
        self._aborted = np.array(intervals, np.int64).reshape(-1, 3)
        self._state = np.zeros(kernels.STATE_SIZE, np.int64)
        self._pending = bytearray()
        self._key_share = _FIRST_KEY_SHARE

    @property
    def next_offset(self) -> int:
        """Return the offset after the last whole record batch that was passed to `feed`, or 0 if there was none."""
        return int(self._state[kernels.NEXT_OFFSET])

    def feed(self, data: bytes | memoryview) -> Iterator[pa.RecordBatch]:
        """Take the next bytes of the log; yield the records of all record batches that end in `data`, in offset order.

        The next call must continue a record batch that is cut off at the end of `data`.

        Raises:
            CorruptDataError: a batch is malformed, its CRC-32C is wrong, or it lies outside `bounds`. The message names
                partition and offset.
            DataLimitError: a batch exceeds one of the limits. The message names partition and offset.
            UnsupportedDataError: a batch has an unknown codec.
        """
        view = memoryview(data)
        if self._pending:
            # Copy only the bytes that complete the pending batch. The other bytes are decoded where they are.
            missing, checked = self._bytes_missing(view), len(self._pending) > header.MAGIC_AT
            self._pending += view[:missing]
            if missing > len(view) and checked:
                return
            completed, self._pending = self._pending, bytearray()
            yield from self._feed(memoryview(completed).toreadonly())
            del completed
            view = view[missing:]
        if view:
            yield from self._feed(view)

    def _bytes_missing(self, data: memoryview) -> int:
        """Return the number of bytes that the record batch in `_pending` still lacks. `data` are the bytes that follow.

        The result may be larger than `len(data)`. It is `len(data)` if the bytes do not contain the batch's length yet,
        or if the length is invalid.
        """
        head = self._pending[: header.LENGTH_END] + bytes(data[: header.LENGTH_END])
        if len(head) < header.LENGTH_END:
            return len(data)
        size = header.LENGTH_END + int.from_bytes(head[header.LENGTH_AT : header.LENGTH_END], "big", signed=True)
        missing = size - len(self._pending)
        return missing if missing > 0 else len(data)

    def _feed(self, data: memoryview) -> Iterator[pa.RecordBatch]:
        while data:
            size = min(len(data) // kernels.SMALLEST_BATCH + 1, LISTED_BATCHES)
            table: Table = allocate(size, np.int64, kernels.BATCH_COLUMNS)
            raw, is_first = np.frombuffer(data, np.uint8), self.next_offset == 0
            count = kernels.scan_batches(
                raw, self._start_offset, self._end_offset, self._limits.batch.maximum, self._aborted, table,
                self._state,
            )  # fmt: skip
            # Raise now, because a caller could take the valid batches before a malformed batch for all records.
            self._raise_error(data)
            consumed = int(self._state[kernels.CONSUMED])
            if not consumed:
                break
            if self._bounds is not None:
                if is_first:
                    base_offset, _, magic = header.START.unpack_from(data)
                    self._bounds.check_first(base_offset, magic)
                self._bounds.check_next(self.next_offset)
            for legacy, batches in _runs(table[:count], table[:count, kernels.MAGIC] < header.MAGIC):
                yield from self._decode(data, raw, batches, legacy)
            data = data[consumed:]
        self._pending += data

    def finish(self) -> None:
        """Check, after all bytes were passed to `feed`, that they end with a whole record batch.

        Raises:
            CorruptDataError: the last batch is cut off, or ends at an offset that `bounds` does not allow.
        """
        if self._pending:
            at = self.next_offset
            raise CorruptDataError(f"{self._name(at)}: the last {len(self._pending)} bytes are no whole record batch")
        if self._bounds is not None:
            self._bounds.check_end(self.next_offset)

    def _name(self, offset: int) -> str:
        return f"{self._topic}-{self._partition} at offset {offset}"

    def _raise_error(self, data: memoryview) -> None:
        error = int(self._state[kernels.ERROR])
        if error in (kernels.OK, kernels.MORE):
            return
        at = int(self._state[kernels.ERROR_POSITION])
        offset, value = int.from_bytes(data[at : at + 8], "big", signed=True), int(self._state[kernels.ERROR_VALUE])
        with naming(partial(self._name, offset)):
            if error == kernels.TOO_LARGE:
                self._limits.batch.check(value, "the batch's length")
            if error == kernels.TOO_MANY_HEADERS:
                self._limits.record_headers.check(value, "the headers of a record")
            raise CorruptDataError(kernels.ERROR_TEXTS[error])

    def _decode(self, data: memoryview, raw: Buffer, batches: Table, legacy: bool) -> Iterator[pa.RecordBatch]:
        """Yield the records of `batches`, about `TARGET_BYTES` of records at a time.

        `batches` is a table of record batches in `data`, as `kernels.scan_batches` fills it. `raw` is `data` as an
        array. If `legacy` is True, all batches are message sets of magic 0 or 1; otherwise all are of magic 2.
        """
        if self._check_crcs and not legacy:
            kernels.check_crcs(raw, batches, self._state)
            self._raise_error(data)
        while len(batches):
            unpacked = DecompressedRecords(min(8 * len(data), TARGET_BYTES), self._limits.decompressed_batch)
            if legacy:
                located = batches[: self._locate_messages(data, raw, batches, unpacked)]
            else:
                located = batches[: self._locate_records(data, batches, unpacked)]
            self._state[kernels.BATCH] = self._state[kernels.RECORD] = 0
            more = True
            while more:
                yield from self._decode_unit(data, raw, unpacked.data(), located)
                more = self._state[kernels.ERROR] == kernels.MORE
            batches = batches[len(located) :]
            del unpacked

    def _locate_records(self, view: memoryview, batches: Table, unpacked: DecompressedRecords) -> int:
        """Locate the records of the first batches in `batches`; return the number of these batches.

        `batches` is a table of batches in `view`. Compressed batches are decompressed into `unpacked`. The start and
        end of each batch's records are written into the table. Locating stops when the located records have
        `TARGET_BYTES`, or when `unpacked` is full.
        """
        located, missing = 0, TARGET_BYTES
        for packed, run in _runs(batches, batches[:, kernels.ATTRIBUTES] & header.CODEC_MASK != 0):
            if packed:
                count = self._unpack(view, run, unpacked, missing)
            else:
                end = run[0, kernels.RECORDS_START] + missing
                count = min(int(np.searchsorted(run[:, kernels.RECORDS_END], end)) + 1, len(run))
            self._check_counts(run[:count])
            located += count
            missing -= _record_bytes(run[:count])
            if count < len(run) or missing <= 0:
                break
        return located

    def _check_counts(self, located: Table) -> None:
        """Check the record count of each batch in the table `located`, whose records are already located.

        Raises CorruptDataError if a batch has too few bytes for its count, and DataLimitError if a count exceeds
        `limits.batch_records`.
        """
        counts, sizes = located[:, kernels.COUNT], located[:, kernels.RECORDS_END] - located[:, kernels.RECORDS_START]
        wrong = (counts * header.SMALLEST_RECORD > sizes) | (counts > self._limits.batch_records.maximum)
        for at in np.flatnonzero(wrong).tolist():
            with naming(partial(self._name, int(located[at, kernels.BASE_OFFSET]))):
                if counts[at] * header.SMALLEST_RECORD > sizes[at]:
                    raise CorruptDataError("its bytes cannot be the batch's records: there are too few for their count")
                self._limits.batch_records.check(int(counts[at]), "the batch's records")

    def _unpack(self, view: memoryview, batches: Table, unpacked: DecompressedRecords, target_bytes: int) -> int:
        """Decompress batches into `unpacked`, and write the positions of their records into the table `batches`.

        Stops after `target_bytes` of decompressed records, or when `unpacked` has no room for the next batch. Returns
        the number of batches that were decompressed.
        """
        places: list[tuple[int, int, bool]] = []
        offset = -1
        columns = [kernels.POSITION, kernels.SIZE, kernels.ATTRIBUTES, kernels.BASE_OFFSET]
        with naming(lambda: self._name(offset)):
            for position, size, attributes, base_offset in batches[:, columns].tolist():
                offset = base_offset
                packed = view[position + header.HEADER_SIZE : position + size]
                place = unpacked.append(attributes & header.CODEC_MASK, packed)
                if place is None:
                    break
                start, end = place
                places.append((start, end, True))
                target_bytes -= end - start
                if target_bytes <= 0:
                    break
        if places:  # NumPy cannot infer the width of an empty list
            batches[: len(places), kernels.RECORDS_START :] = places
        return len(places)

    def _locate_messages(self, view: memoryview, raw: Buffer, batches: Table, unpacked: DecompressedRecords) -> int:
        """Locate the messages of the first legacy message sets in `batches`; return the number of these sets.

        `batches` is a table of sets in `view`, and `raw` is `view` as an array. Compressed sets are decompressed into
        `unpacked`. The start and end of each set's messages are written into the table. Locating stops after
        `TARGET_BYTES` of messages, or when `unpacked` has no room for the next set.
        """
        total = 0
        for located, batch in enumerate(batches):
            with naming(partial(self._name, int(batch[kernels.BASE_OFFSET]))):
                if not locate_messages(view, raw, batch, unpacked, self._check_crcs, self._limits.batch_records):
                    return located
            total += int(batch[kernels.RECORDS_END] - batch[kernels.RECORDS_START])
            if total >= TARGET_BYTES:
                return located + 1
        return len(batches)

    def _decode_unit(self, data: memoryview, raw: Buffer, unpacked: Buffer, batches: Table) -> Iterator[pa.RecordBatch]:
        """Yield the next records of `batches` as Arrow batches, at most `UNIT_ROWS` records and `UNIT_BYTES` bytes.

        The records are in `raw`, which is `data` as an array, or in `unpacked` if they were compressed. The records
        have at most `UNIT_HEADERS` headers. The first record may exceed the limits. `self._state` has the position of
        the first record, and afterwards the position of the record after the last one.
        """
        rest = batches[self._state[kernels.BATCH] :]
        size = _record_bytes(rest)
        rows = min(int(rest[:, kernels.COUNT].sum()), kernels.UNIT_ROWS)
        max_headers = self._limits.record_headers.maximum if "headers" in self._schema.names else None
        headers = -1 if max_headers is None else min(size // 2, kernels.UNIT_HEADERS + max_headers)
        buffers = RecordBuffers.allocate(rows, size, self._key_size(size), headers)
        rows = kernels.decode_records(
            raw, unpacked, batches, self._start_offset, self._end_offset, buffers.columns(), max_headers, self._state
        )
        self._raise_error(data)
        self._learn_key_share(int(buffers.keys.ends[rows]), rows)
        if rows:
            yield from buffers.record_batches(self._topic, self._partition, rows, self._schema, self._max_rows)

    def _key_size(self, size: int) -> int:
        """Return the number of bytes to reserve for the keys of records that take `size` bytes in total.

        The number comes from the share of key bytes in records decoded before. Room for the longest possible keys would
        take twice the memory.
        """
        return min(size, max(int(self._key_share * size), _LEAST_KEY_BYTES))

    def _learn_key_share(self, key_bytes: int, rows: int) -> None:
        """Set the fraction of bytes to reserve for keys, after `rows` records with `key_bytes` of keys were decoded.

        The fraction becomes 1 if no record was decoded because the first key had no room.
        """
        if rows:
            self._key_share = _KEY_MARGIN * key_bytes / max(int(self._state[kernels.USED]), 1)
        elif self._state[kernels.ERROR] == kernels.MORE:
            self._key_share = 1.0  # not even one key fits


def compile_kernels(more: bytes = b"") -> pa.RecordBatch:
    """Compile the decoder's kernels, or load them from the cache, by decoding a few record batches.

    These are `ONE_RECORD` and the record batches in `more`. The result is the first Arrow batch, without `headers`.
    """
    for include_headers in (True, False):
        decoder = RecordBatchDecoder("", 0, 0, 2, include_headers=include_headers)
        row, *_ = decoder.feed(ONE_RECORD + more)
    return row


def _runs(batches: Table, flags: np.ndarray[Any, np.dtype[np.bool_]]) -> Iterator[tuple[bool, Table]]:
    """Yield (flag, batches) for each run of consecutive batches with equal flags, in order."""
    edges = [0, *(np.flatnonzero(np.diff(flags)) + 1).tolist(), len(batches)]
    for start, end in pairwise(edges):
        if start < end:
            yield bool(flags[start]), batches[start:end]


def _record_bytes(batches: Table) -> int:
    """Return the total size of the records in `batches`, in decompressed bytes."""
    return int((batches[:, kernels.RECORDS_END] - batches[:, kernels.RECORDS_START]).sum())

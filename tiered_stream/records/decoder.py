"""Bytes of a log, as they arrive, to Arrow: the one decoder for tiered objects and broker answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.errors import CorruptDataError, UnsupportedDataError, naming
from tiered_stream.model import AbortedTransaction
from tiered_stream.records import kernels
from tiered_stream.records.arrow import RecordBuffers
from tiered_stream.records.checks import PartCheck
from tiered_stream.records.codecs import MAX_BATCH_BYTES, Buffer, Unpacked
from tiered_stream.records.header import CODEC_MASK, HEADER_SIZE, LENGTH_AT, LENGTH_END, MAGIC, crc_is_right
from tiered_stream.records.memory import allocate

MAX_ROWS = 16_384
"""Rows of one Arrow batch that is yielded, unless the decoder is told otherwise: as many as Spark's JVM takes well."""
TARGET_BYTES = 16 << 20
"""Uncompressed bytes of record batches that are decoded together, unless one alone is larger."""

Table = np.ndarray[Any, np.dtype[np.int64]]


class RecordBatchDecoder:
    """Decodes one partition's log, from the start of a batch on.

    Records outside `[start_offset, end_offset)`, control records, and those of `aborted` transactions are dropped.
    """

    def __init__(
        self, topic: str, partition: int, start_offset: int, end_offset: int, *,
        aborted: Sequence[AbortedTransaction] = (), include_headers: bool = False, check_crcs: bool = True,
        part_check: PartCheck | None = None, max_rows: int = MAX_ROWS,
    ) -> None:  # fmt: skip
        self._topic = topic
        self._partition = partition
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._include_headers = include_headers
        self._check_crcs = check_crcs
        self._part_check = part_check
        self._max_rows = max_rows
        intervals = sorted({(each.producer_id, each.first_offset, each.last_offset) for each in aborted})
        self._aborted = np.array(intervals, np.int64).reshape(-1, 3)
        self._state = np.zeros(kernels.STATE_SIZE, np.int64)
        self._pending = b""

    @property
    def next_offset(self) -> int:
        """The offset after the last whole batch that has been fed, 0 before the first."""
        return int(self._state[kernels.NEXT_OFFSET])

    def feed(self, data: bytes) -> Iterator[pa.RecordBatch]:
        """The records of the batches that `data` completes, in offset order, at most `max_rows` at a time.

        Raises:
            CorruptDataError: a batch is malformed, its CRC-32C is wrong, or it is not what `part_check` knows of the
                bytes; names partition and offset.
            UnsupportedDataError: a batch has an unknown codec.
        """
        view = memoryview(data)
        if self._pending:
            # Only the batch that was incomplete is put together: the rest of the bytes stay where they are.
            missing = self._bytes_missing(view)
            completed, view = memoryview(self._pending + bytes(view[:missing])), view[missing:]
            yield from self._feed(completed)
        if view:
            yield from self._feed(view)

    def _bytes_missing(self, data: memoryview) -> int:
        """How many of the bytes that follow belong to the batch of which the first are pending."""
        head = self._pending[:LENGTH_END] + bytes(data[:LENGTH_END])
        if len(head) < LENGTH_END:
            return len(data)
        size = LENGTH_END + int.from_bytes(head[LENGTH_AT:LENGTH_END], "big", signed=True)
        missing = size - len(self._pending)
        return missing if 0 < missing <= len(data) else len(data)

    def _feed(self, data: memoryview) -> Iterator[pa.RecordBatch]:
        raw = np.frombuffer(data, np.uint8)
        most = len(data) // kernels.SMALLEST_BATCH + 1
        table: Table = allocate(most, np.int64, kernels.BATCH_COLUMNS)
        transactional: Table = allocate(most, np.int64, kernels.TRANSACTIONAL_COLUMNS)
        found = kernels.scan_batches(
            raw, self._start_offset, self._end_offset, MAX_BATCH_BYTES, self._aborted, table, transactional,
            self._state,
        )  # fmt: skip
        # What came before a malformed batch is sound, but must not be taken for all there is.
        self._raise_error(data)
        consumed = int(self._state[kernels.CONSUMED])
        if self._part_check is not None:
            self._part_check.batches(data[:consumed], self.next_offset)
            self._part_check.transactions(transactional[: self._state[kernels.TRANSACTIONAL]])
        self._pending = bytes(data[consumed:])
        for legacy, batches in _by_format(table[:found]):
            yield from self._decode_legacy(data, batches) if legacy else self._decode(data, raw, batches)

    def finish(self) -> None:
        """Say that no more bytes come.

        Raises:
            CorruptDataError: the last batch is cut off, or there should have been more.
        """
        if self._pending:
            at = self.next_offset
            raise CorruptDataError(f"{self._name(at)}: the last {len(self._pending)} bytes are no whole record batch")
        if self._part_check is not None:
            self._part_check.end(self.next_offset, self._state[kernels.GAPS] > 0)

    def _name(self, offset: int) -> str:
        return f"{self._topic}-{self._partition} at offset {offset}"

    def _raise_error(self, data: memoryview) -> None:
        error = int(self._state[kernels.ERROR])
        if error != kernels.OK:
            at = int(self._state[kernels.ERROR_POSITION])
            offset = int.from_bytes(data[at : at + 8], "big", signed=True)
            raise CorruptDataError(f"{self._name(offset)}: {kernels.ERROR_TEXTS[error]}")

    def _decode_legacy(self, data: memoryview, batches: Table) -> Iterator[pa.RecordBatch]:
        # Imported here: such message sets are rare, and kafka-python takes long to import.
        from tiered_stream.records.legacy import decode_legacy

        for position, size, offset in batches[:, [kernels.POSITION, kernels.SIZE, kernels.BASE_OFFSET]].tolist():
            with naming(partial(self._name, offset)):
                rows = decode_legacy(
                    data[position : position + size], self._topic, self._partition, self._start_offset,
                    self._end_offset, include_headers=self._include_headers, check_crc=self._check_crcs,
                )  # fmt: skip
            if rows.num_rows:
                yield rows

    def _decode(self, data: memoryview, raw: Buffer, batches: Table) -> Iterator[pa.RecordBatch]:
        while len(batches):
            unpacked = Unpacked(min(8 * len(data), TARGET_BYTES))
            places = self._places(data, raw, batches, unpacked)
            yield from self._decode_unit(data, raw, unpacked, batches[: len(places)], places)
            batches = batches[len(places) :]

    def _places(self, view: memoryview, raw: Buffer, batches: Table, unpacked: Unpacked) -> list[tuple[int, int, bool]]:
        """Where the records of the next `TARGET_BYTES` of batches lie: start, end, whether in `unpacked`."""
        places: list[tuple[int, int, bool]] = []
        total = 0
        offset = -1
        columns = [kernels.POSITION, kernels.SIZE, kernels.ATTRIBUTES, kernels.BASE_OFFSET]
        try:
            for position, size, attributes, base_offset in batches[:, columns].tolist():
                offset = base_offset
                start, end = position + HEADER_SIZE, position + size
                if self._check_crcs and not crc_is_right(raw[position:end]):
                    raise CorruptDataError("the batch's CRC-32C is wrong")
                codec = attributes & CODEC_MASK
                if codec:
                    start, end = unpacked.append(codec, view[start:end])
                places.append((start, end, codec != 0))
                total += end - start
                if total >= TARGET_BYTES:
                    break
        except (CorruptDataError, UnsupportedDataError) as error:
            raise type(error)(f"{self._name(offset)}: {error}") from error
        return places

    def _decode_unit(
        self, data: memoryview, raw: Buffer, unpacked: Unpacked, batches: Table, places: list[tuple[int, int, bool]]
    ) -> Iterator[pa.RecordBatch]:
        batches[:, kernels.RECORDS_START :] = places
        size = int((batches[:, kernels.RECORDS_END] - batches[:, kernels.RECORDS_START]).sum())
        most = min(int(batches[:, kernels.COUNT].sum()), size // kernels.SMALLEST_RECORD)
        buffers = RecordBuffers.allocate(most, size, self._include_headers)
        rows = kernels.decode_records(
            raw, unpacked.data(), batches, self._start_offset, self._end_offset, buffers.columns(),
            self._include_headers, self._state,
        )  # fmt: skip
        self._raise_error(data)
        if rows:
            yield from buffers.record_batches(self._topic, self._partition, rows, self._include_headers, self._max_rows)


def _by_format(batches: Table) -> Iterator[tuple[bool, Table]]:
    """Consecutive batches of the old formats, and of magic 2, in order."""
    legacy = batches[:, kernels.MAGIC] < MAGIC
    edges = [0, *(np.flatnonzero(np.diff(legacy)) + 1).tolist(), len(batches)]
    for start, end in pairwise(edges):
        if start < end:
            yield bool(legacy[start]), batches[start:end]

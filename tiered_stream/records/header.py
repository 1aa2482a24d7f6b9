"""Header of a record batch (Kafka: `DefaultRecordBatch`), big-endian, 61 bytes before the batch's records:

    0  base offset            int64
    8  batch length           int32   bytes after this field
    12 partition leader epoch int32
    16 magic                  int8    2; 0 and 1 are the old message sets
    17 CRC                    uint32  CRC-32C of everything from the attributes on
    21 attributes             int16   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
    23 last offset delta      int32
    27 base timestamp         int64   milliseconds
    35 max timestamp          int64   the timestamp of all records when bit 3 is set (LogAppendTime)
    43 producer id            int64
    51 producer epoch         int16
    53 base sequence          int32
    57 record count           int32
    61 records, compressed together when a codec is set

Messages of the formats before Kafka 0.11 (magic 0 and 1) have offset, length and magic byte in the same places, but are
smaller. The offset of a compressed set is the offset of its last message (Kafka: `AbstractLegacyRecordBatch`).

Control batches mark the ends of transactions, whose offset intervals `aborted_in_fetched` finds (Kafka: `AbortedTxn`,
`FetchResponse.AbortedTransaction`).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import google_crc32c

from tiered_stream.errors import CorruptDataError
from tiered_stream.model import AbortedTransaction

LENGTH_AT, LENGTH_END, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT = 8, 12, 16, 17, 21, 23
BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT, PRODUCER_ID_AT, COUNT_AT, HEADER_SIZE = 27, 35, 43, 57, 61

CODEC_MASK, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, CONTROL_BIT = 0x07, 0x08, 0x10, 0x20

MAGIC = 2
SMALLEST = {0: 26, 1: 34, MAGIC: HEADER_SIZE}
"""Size of the smallest possible batch in bytes, by magic."""
SMALLEST_RECORD = 7
"""Size of the smallest possible record of magic 2 in bytes: seven fields of one byte each."""

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Structure of the whole header, with all its fields."""
START = struct.Struct(">qi4xb")
"""Structure of the first 17 bytes of a batch: base offset, length and magic. They are the same in magic 0, 1 and 2."""
LAST_OFFSET_DELTA = struct.Struct(f">{LAST_OFFSET_DELTA_AT}xi")


def crc_is_right(batch: Any) -> bool:
    """Return whether a batch of magic 2 (bytes, or an array of bytes) has the CRC-32C that its header states."""
    crc = int.from_bytes(bytes(batch[CRC_AT:ATTRIBUTES_AT]), "big")
    return bool(google_crc32c.value(batch[ATTRIBUTES_AT:]) == crc)


def whole_batches(data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """Yield the position, base offset and magic of each whole batch in `data`, except a last batch that is cut off.

    Raises:
        CorruptDataError: the bytes are not a sequence of batches. The message names the position.
    """
    at = 0
    while len(data) - at >= START.size:
        base_offset, length, magic = START.unpack_from(data, at)
        if base_offset < 0 or LENGTH_END + length < SMALLEST.get(magic, LENGTH_END + length + 1):
            raise CorruptDataError(f"no batch at byte {at}: offset {base_offset}, length {length}, magic {magic}")
        if len(data) - at < LENGTH_END + length:
            return
        yield at, base_offset, magic
        at += LENGTH_END + length


def aborted_in_fetched(
    data: bytes | memoryview, aborted: Collection[tuple[int, int]], end_offset: int
) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions of a Fetch response, with their first and last offsets.

    `data` are the response's record batches; the last batch may be cut off. `aborted` are the transactions that the
    response lists, as (producer id, first offset). A transaction ends at the producer's next marker, which is a control
    batch. If `data` has no such marker, the last offset is `end_offset`.

    Raises:
        CorruptDataError: the bytes are not a sequence of batches.
    """
    if not aborted:
        return ()
    markers: dict[int, list[int]] = {}
    for offset, producer_id in control_batches(data):
        markers.setdefault(producer_id, []).append(offset)
    return tuple(
        AbortedTransaction(producer_id, first, _next_marker(markers.get(producer_id, ()), first, end_offset))
        for producer_id, first in aborted
    )


def _next_marker(markers: Sequence[int], first: int, end_offset: int) -> int:
    """Return the first of the ascending `markers` that is after `first`, or `end_offset` if there is none."""
    at = bisect_right(markers, first)
    return markers[at] if at < len(markers) else end_offset


def control_batches(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield the base offset and producer id of each control batch in `data`, except a last batch that is cut off.

    Raises:
        CorruptDataError: the bytes are not a sequence of batches.
    """
    for at, base_offset, magic in whole_batches(data):
        if magic == MAGIC:
            _, _, _, _, _, attributes, _, _, _, producer_id, *_ = HEADER.unpack_from(data, at)
            if attributes & CONTROL_BIT:
                yield base_offset, producer_id

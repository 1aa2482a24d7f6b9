"""Offsets and values of the few small records of an internal topic, read without the compiled kernels.

To start those takes half a second, in each process that plans a query. `kernels.py` has the layout of records.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka.record.util import decode_varint

from tiered_stream.errors import CorruptDataError, UnsupportedDataError, naming
from tiered_stream.records.codecs import MAX_BATCH_BYTES, Unpacked
from tiered_stream.records.header import CODEC_MASK, CONTROL_BIT, HEADER, LENGTH_END, MAGIC, START, crc_is_right

Value = tuple[int, bytes | None]


def read_values(data: bytes) -> tuple[list[Value], int]:
    """Offset and value of each record in the whole batches at the start of `data`, markers left out.

    Returns:
        them, and the offset after the last whole batch, 0 where there is none.

    Raises:
        CorruptDataError: a batch is malformed, or its CRC-32C is wrong; names its base offset.
        UnsupportedDataError: a batch has a format before Kafka 0.11, or an unknown codec.
    """
    view, at, next_offset = memoryview(data), 0, 0
    found: list[Value] = []
    while len(view) - at >= START.size:
        base_offset, length, magic = START.unpack_from(view, at)
        end = at + LENGTH_END + length
        if not HEADER.size - LENGTH_END <= length <= MAX_BATCH_BYTES:
            raise CorruptDataError(f"the batch at offset {base_offset} says that it has {length} bytes")
        if magic != MAGIC:
            raise UnsupportedDataError(f"the batch at offset {base_offset} is of format {magic}, not 2")
        if end > len(view):
            break
        with naming(f"the batch at offset {base_offset}"):
            batch, next_offset = _batch(view[at:end])
        found += batch
        at = end
    return found, next_offset


def _batch(batch: memoryview) -> tuple[list[Value], int]:
    base_offset, _, _, _, _, attributes, last_delta, _, _, _, _, _, count = HEADER.unpack_from(batch)
    if not crc_is_right(bytes(batch)):
        raise CorruptDataError("its CRC-32C is wrong")
    if base_offset < 0 or last_delta < 0:
        raise CorruptDataError(f"it ends {last_delta} after that")
    next_offset = base_offset + last_delta + 1
    if attributes & CONTROL_BIT:
        return [], next_offset
    records = bytes(batch[HEADER.size :])
    codec = attributes & CODEC_MASK
    if codec:
        unpacked = Unpacked(4 * len(records))
        unpacked.append(codec, memoryview(records))
        records = unpacked.data().tobytes()
    try:
        values = list(_records(records, count))
    except (IndexError, ValueError):
        raise CorruptDataError(f"it is too short for its {count} records") from None
    if any(not 0 <= delta <= last_delta for delta, _ in values):
        raise CorruptDataError("it has a record beyond its end")
    return [(base_offset + delta, value) for delta, value in values], next_offset


def _records(data: bytes, count: int) -> Iterator[Value]:
    """Offset delta and value of each record; IndexError, ValueError where the data is too short, or no record."""
    at = 0
    for _ in range(count):
        size, at = decode_varint(data, at)
        end = at + size
        _, at = decode_varint(data, at + 1)
        delta, at = decode_varint(data, at)
        _, at = _bytes(data, at)
        value, at = _bytes(data, at)
        if not at < end <= len(data):
            raise IndexError
        yield delta, value
        at = end


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = decode_varint(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size

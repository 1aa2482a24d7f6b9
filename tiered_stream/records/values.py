"""Reader of offsets and values in an internal topic, for a few small records, without the compiled kernels.

Loading the kernels takes half a second in each process that plans a query. `kernels.py` has the layout of records.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka.record.util import decode_varint

from tiered_stream.errors import CorruptDataError, UnsupportedDataError, naming
from tiered_stream.limits import DEFAULT_LIMITS, Limits
from tiered_stream.records.codecs import Unpacked
from tiered_stream.records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    LENGTH_END,
    MAGIC,
    SMALLEST_RECORD,
    START,
    crc_is_right,
)

Value = tuple[int, bytes | None]


def read_values(data: bytes | memoryview, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[int, Iterator[Value]]]:
    """Yield, for each whole batch at the start of `data`, the offset after it and an iterator of (offset, value) pairs.

    Read a batch's pairs before asking for the next batch. A control batch has no pairs.

    Raises:
        CorruptDataError: a batch is malformed, or its CRC-32C is wrong; names the batch's base offset.
        DataLimitError: a batch exceeds one of the limits.
        UnsupportedDataError: a batch has a format before Kafka 0.11, or an unknown codec.
    """
    view, at = memoryview(data), 0
    while len(view) - at >= START.size:
        base_offset, length, magic = START.unpack_from(view, at)
        end = at + LENGTH_END + length
        limits.batch.check(length, f"the length of the batch at offset {base_offset}")
        if length < HEADER.size - LENGTH_END:
            raise CorruptDataError(f"the batch at offset {base_offset} says that it has {length} bytes")
        if magic != MAGIC:
            raise UnsupportedDataError(f"the batch at offset {base_offset} is of format {magic}, not 2")
        if end > len(view):
            break
        with naming(f"the batch at offset {base_offset}"):
            next_offset, records, count = _records(view[at:end], limits)
        yield next_offset, _values(records, count, base_offset, next_offset)
        at = end


def _records(batch: memoryview, limits: Limits) -> tuple[int, bytes, int]:
    """Return the offset after a batch, the batch's decompressed records, and the number of records."""
    base_offset, _, _, _, _, attributes, last_delta, _, _, _, _, _, count = HEADER.unpack_from(batch)
    if not crc_is_right(bytes(batch)):
        raise CorruptDataError("its CRC-32C is wrong")
    if base_offset < 0 or last_delta < 0:
        raise CorruptDataError(f"it ends {last_delta} after that")
    next_offset = base_offset + last_delta + 1
    if attributes & CONTROL_BIT:
        return next_offset, b"", 0
    records = bytes(batch[HEADER.size :])
    codec = attributes & CODEC_MASK
    if codec:
        unpacked = Unpacked(4 * len(records), limits.decompressed_batch)
        unpacked.append(codec, memoryview(records))
        records = unpacked.data().tobytes()
    if count * SMALLEST_RECORD > len(records):
        raise CorruptDataError(f"it is too short for its {count} records")
    limits.batch_records.check(count, "its records")
    return next_offset, records, count


def _values(records: bytes, count: int, base_offset: int, next_offset: int) -> Iterator[Value]:
    try:
        for delta, value in _fields(records, count):
            if not 0 <= delta < next_offset - base_offset:
                raise CorruptDataError(f"the batch at offset {base_offset} has a record beyond its end")
            yield base_offset + delta, value
    except (IndexError, ValueError):
        text = f"the batch at offset {base_offset}: it is too short for its {count} records"
        raise CorruptDataError(text) from None


def _fields(data: bytes, count: int) -> Iterator[Value]:
    """Yield offset delta and value of each record.

    Raises IndexError or ValueError if the data is too short or a record is malformed.
    """
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

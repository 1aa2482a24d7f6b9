"""Message sets of the formats before Kafka 0.11 (magic 0 and 1), through kafka-python's reader."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
from kafka.errors import KafkaError
from kafka.record.legacy_records import LegacyRecordBatch

from tiered_stream.errors import CorruptDataError
from tiered_stream.records.arrow import record_schema
from tiered_stream.records.codecs import MAX_BATCH_BYTES, Unpacked

_VALUE_START = {0: 18, 1: 26}
"""Where key length, key, value length and value begin in a message, by magic."""
_LZ4 = 3
_CODEC_MASK = 0x07


def _check_unpacked_size(message: memoryview, magic: int) -> None:
    # kafka-python decompresses without a bound, so the bound is tried first. Its lz4 of magic 0 has a checksum of its
    # own kind that no other library reads; lz4 expands by at most 255.
    codec = message[17] & _CODEC_MASK
    if codec == 0:
        return
    if codec == _LZ4 and magic == 0:
        if len(message) * 255 > MAX_BATCH_BYTES:
            raise CorruptDataError(f"an lz4 message of {len(message)} bytes may decompress to too much")
        return
    at = _VALUE_START[magic]
    (key_size,) = struct.unpack_from(">i", message, at)
    Unpacked(4 * len(message)).append(codec, message[at + 8 + max(key_size, 0) :])


_Row = tuple[int, int, int, bytes | None, bytes | None]
"""Offset, timestamp, timestamp type, key, value."""


def _rows(message: memoryview, magic: int, check_crc: bool) -> Iterator[_Row]:
    _check_unpacked_size(message, magic)
    batch = LegacyRecordBatch(message, magic)
    if check_crc and not batch.validate_crc():
        raise CorruptDataError("the message's CRC is wrong")
    for record in batch:
        timestamp = -1 if record.timestamp is None else record.timestamp
        timestamp_type = -1 if record.timestamp_type is None else record.timestamp_type
        yield record.offset, timestamp, timestamp_type, record.key, record.value


def decode_legacy(
    message: memoryview, topic: str, partition: int, start_offset: int, end_offset: int, *,
    include_headers: bool, check_crc: bool,
) -> pa.RecordBatch:  # fmt: skip
    """The records of one message set with offsets in [start_offset, end_offset).

    Raises:
        CorruptDataError: the bytes are not a message set.
    """
    try:
        rows = [row for row in _rows(message, message[16], check_crc) if start_offset <= row[0] < end_offset]
    except CorruptDataError:
        raise
    except (KafkaError, AssertionError, ValueError, IndexError, struct.error, OSError, EOFError, RuntimeError) as error:
        raise CorruptDataError(f"a message set of magic {message[16]} cannot be read: {error}") from error
    schema = record_schema(include_headers)
    columns = {
        "key": [row[3] for row in rows],
        "value": [row[4] for row in rows],
        "topic": [topic] * len(rows),
        "partition": [partition] * len(rows),
        "offset": [row[0] for row in rows],
        "timestamp": [row[1] * 1000 for row in rows],
        "timestampType": [row[2] for row in rows],
        "headers": [None] * len(rows),
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)

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
from tiered_stream.records.header import CODEC_MASK, MAGIC_AT

_VALUE_START = {0: 18, 1: 26}
"""Where key length, key, value length and value begin in a message, by magic."""
_LZ4 = 3


def _check_unpacked_size(message: memoryview, magic: int) -> None:
    # kafka-python decompresses without a bound, so the bound is tried first. Its lz4 of magic 0 has a checksum of its
    # own kind that no other library reads; lz4 expands by at most 255.
    codec = message[17] & CODEC_MASK
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
        timestamps = (-1 if each is None else each for each in (record.timestamp, record.timestamp_type))
        yield record.offset, *timestamps, record.key, record.value


def decode_legacy(
    message: memoryview, topic: str, partition: int, start_offset: int, end_offset: int, *,
    include_headers: bool, check_crc: bool,
) -> pa.RecordBatch:  # fmt: skip
    """The records of one message set with offsets in [start_offset, end_offset).

    Raises:
        CorruptDataError: the bytes are not a message set.
    """
    try:
        rows = [row for row in _rows(message, message[MAGIC_AT], check_crc) if start_offset <= row[0] < end_offset]
    except CorruptDataError:
        raise
    except (KafkaError, AssertionError, ValueError, IndexError, struct.error, OSError, EOFError, RuntimeError) as error:
        raise CorruptDataError(f"a message set of magic {message[MAGIC_AT]} cannot be read: {error}") from error
    columns = [
        {"key": key, "value": value, "topic": topic, "partition": partition, "offset": offset,
         "timestamp": timestamp * 1000, "timestampType": timestamp_type, "headers": None}
        for offset, timestamp, timestamp_type, key, value in rows
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(columns, schema=record_schema(include_headers))

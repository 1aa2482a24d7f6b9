"""Small bytes that stand for much, as a producer could write them: record batches, message sets of old."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import cramjam
import numpy as np

from tests.records.batches import with_crc

GZIP, ZSTD = 1, 4


def varint(number: int) -> bytes:
    number, encoded = number << 1, b""
    while number > 127:
        encoded += bytes((number & 127 | 128,))
        number >>= 7
    return encoded + bytes((number,))


def batch(records: bytes, count: int, codec: int = ZSTD) -> bytes:
    """A batch from offset 0 on whose records are given as bytes, zstd or plain."""
    packed = bytes(cramjam.zstd.compress(records)) if codec else records
    last = count - 1
    return with_crc(
        struct.pack(">qiibIhiqqqhii", 0, 49 + len(packed), 0, 2, 0, codec, last, 0, 0, -1, -1, -1, count) + packed
    )


def record(value: bytes = b"", header: bytes = b"", headers: int = 0) -> bytes:
    body = b"\0\0\0\x01" + varint(len(value)) + value + varint(headers) + header * headers
    return varint(len(body)) + body


def many_headers(count: int, header: bytes = b"\x01\x01") -> bytes:
    """One record; each header is a null key and a null value unless others are given."""
    return batch(record(header=header, headers=count), 1)


def many_records(count: int) -> bytes:
    """All at offset 0."""
    return batch(b"\x0c\0\0\0\x01\x01\0" * count, count)


def large_record(size: int) -> bytes:
    return batch(record(bytes(size)), 1)


def message(magic: int, value: bytes, codec: int = 0, offset: int = 0, timestamp: int = 0) -> bytes:
    """A message of the old formats, its key null."""
    stamp = struct.pack(">q", timestamp) if magic else b""
    body = struct.pack(">bb", magic, codec) + stamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def message_set(magic: int, inner: bytes, last_offset: int, compress: Callable[[bytes], bytes] | None = None) -> bytes:
    """Messages compressed together, by gzip unless told otherwise."""
    packed = bytes((compress or cramjam.gzip.compress)(inner))
    return message(magic, packed, GZIP, last_offset)


def many_messages(count: int) -> bytes:
    one = np.frombuffer(message(1, b""), np.uint8)
    messages = np.tile(one, (count, 1))
    messages[:, :8] = np.arange(count, dtype=">i8").view(np.uint8).reshape(count, 8)
    return message_set(1, messages.tobytes(), count - 1)

"""Message sets from before Kafka 0.11 (Kafka: `AbstractLegacyRecordBatch`, `LegacyRecord`), big-endian:

    0  offset         int64   of the last message, if this is a compressed set
    8  size           int32   bytes after this field
    12 CRC            uint32  CRC-32 of everything from the magic byte on
    16 magic          int8    0 or 1
    17 attributes     int8    bits 0-2 codec, 3 timestamp type (magic 1)
    18 timestamp      int64   milliseconds; in magic 1 only
    then key length int32, key, value length int32, value; a length of -1 is null

The value of a message with a codec is a message set: messages without a codec, one after another, compressed together.
In magic 1 the offsets of these messages are relative, and the set's offset is the offset of its last message.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import xxhash

from tiered_stream.data_limits import Limit
from tiered_stream.errors import CorruptDataError
from tiered_stream.records import header, kernels
from tiered_stream.records.codecs import Buffer, DecompressedRecords
from tiered_stream.records.compiled import Int, kernel
from tiered_stream.records.intrinsics import load_int32, load_int64

_CRC_AT, _ATTRIBUTES_AT = 12, 17
_SMALLEST = (header.SMALLEST[0], header.SMALLEST[1])
_LZ4 = 3
_SIZE = struct.Struct(">i")


def locate_messages(
    view: memoryview,
    raw: Buffer,
    batch: np.ndarray[Any, Any],
    unpacked: DecompressedRecords,
    check_crc: bool,
    max_messages: Limit,
) -> bool:
    """Check one message set, and write where its messages are, and how many, into `batch`, its row in the table.

    `view` and `raw` are the log's bytes, as a memoryview and as an array. If the set is compressed, its messages are
    decompressed into `unpacked`. Returns True, or False without changing `batch` if `unpacked` has no room for the
    messages.

    Raises:
        CorruptDataError: the bytes are not a message set, or the CRC is wrong and `check_crc` is True.
        DataLimitError: the set decompresses to more than the limit, or has more than `max_messages` messages.
        UnsupportedDataError: the set has an unknown codec.
    """
    start, end = int(batch[kernels.POSITION]), int(batch[kernels.POSITION] + batch[kernels.SIZE])
    message, magic = view[start:end], int(batch[kernels.MAGIC])
    if len(message) < _SMALLEST[magic]:
        raise CorruptDataError(f"a message of {len(message)} bytes cannot be")
    if check_crc and zlib.crc32(message[header.MAGIC_AT :]) != int.from_bytes(
        message[_CRC_AT : header.MAGIC_AT], "big"
    ):
        raise CorruptDataError("the message's CRC is wrong")
    attributes = message[_ATTRIBUTES_AT]
    codec, data = attributes & header.CODEC_MASK, raw
    if codec:
        place = unpacked.append(codec, _compressed(message, magic, codec))
        if place is None:
            return False
        (start, end), data = place, unpacked.data()
    count, first, last = _measure(data, start, end, codec != 0)
    offset = int(batch[kernels.BASE_OFFSET])
    added = offset - last if magic == 1 else 0
    if count == 0 or added < 0 or first + added < batch[kernels.LOWEST_OFFSET] or last + added > offset:
        raise CorruptDataError("its messages do not fit into the set, or their offsets not between those around it")
    max_messages.check(count, "the messages of a set")
    batch[kernels.RECORDS_START :] = start, end, codec != 0
    batch[kernels.ATTRIBUTES], batch[kernels.COUNT], batch[kernels.ADDED_OFFSET] = attributes, count, added
    timestamp = message[kernels.MESSAGE_TIMESTAMP_AT : kernels.MESSAGE_KEY_AT[1]]
    batch[kernels.SET_TIMESTAMP] = int.from_bytes(timestamp, "big", signed=True) if magic else -1
    return True


def _compressed(message: memoryview, magic: int, codec: int) -> memoryview:
    """Return the compressed bytes of a message set, which are the value of `message`.

    For lz4 in magic 0, the checksum of the lz4 header is corrected. Raises CorruptDataError if the key or the value
    does not fit into the message.
    """
    at = kernels.MESSAGE_KEY_AT[magic]
    (key_size,) = _SIZE.unpack_from(message, at)
    at += _SIZE.size + max(key_size, 0)
    if at + _SIZE.size > len(message):
        raise CorruptDataError("the message's key does not fit into it")
    (size,) = _SIZE.unpack_from(message, at)
    value = message[at + _SIZE.size :]
    if not 0 <= size <= len(value):
        raise CorruptDataError(f"the message's value cannot have {size} bytes")
    return _with_right_checksum(value[:size]) if codec == _LZ4 and magic == 0 else value[:size]


def _with_right_checksum(frame: memoryview) -> memoryview:
    """Return the lz4 frame with the right checksum in its header.

    In magic 0, Kafka also included the frame's magic number in the header's checksum, which is wrong (KIP-57).
    """
    at = 14 if len(frame) > 4 and frame[4] & 8 else 6  # a content size comes before the checksum
    checksum = xxhash.xxh32_intdigest(frame[4:at]) >> 8 & 0xFF
    return memoryview(bytes(frame[:at]) + bytes((checksum,)) + frame[at + 1 :])


@kernel
def _measure(data: Any, start: Int, end: Int, compressed: bool) -> Any:
    """Return the number of messages in `data[start:end]`, and the offsets of the first and the last message.

    The number is 0 if the bytes are not whole messages with ascending offsets. It is also 0 if `compressed` is True,
    and one of the messages is compressed again.
    """
    at, count, first, last = np.int64(start), np.int64(0), np.int64(0), np.int64(-1)
    while at < end:
        if end - at < _SMALLEST[0] or data[at + header.MAGIC_AT] > 1:
            return np.int64(0), first, last
        size = header.LENGTH_END + load_int32(data, at + header.LENGTH_AT)
        offset = load_int64(data, at)
        nested = compressed and (data[at + _ATTRIBUTES_AT] & header.CODEC_MASK) != 0
        if nested or offset <= last or size < _SMALLEST[data[at + header.MAGIC_AT]] or size > end - at:
            return np.int64(0), first, last
        if count == 0:
            first = offset
        last = offset
        count += 1
        at += size
    return count, first, last

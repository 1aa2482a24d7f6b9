"""Compiled reader of `__remote_log_metadata` that returns only values that may be about wanted topics.

A value begins with three varints of one byte each: frame version, record type and version. Then come the topic's name
(compact string) and id (16 bytes), the partition (int32) and tagged fields.

Values of snapshot records are left out. Any other value is left out only if all of these fields are valid and the
topic's id is not wanted. Values with invalid fields are returned, so that the caller decides about them. Batches that
are compressed, have headers or are invalid are read by `values.read_values`.

Importing this module takes half a second, so `read_values` is faster for a few thousand records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from tiered_stream.limits import DEFAULT_LIMITS, Limits
from tiered_stream.records import header
from tiered_stream.records.compiled import Int, kernel
from tiered_stream.records.intrinsics import load_int32, load_int64
from tiered_stream.records.kernels import MAX_OFFSET, crc_is_right, varint
from tiered_stream.records.values import Value, read_values

_SNAPSHOT_RECORD = 3
_ID_BYTES = 16
_LISTED_VALUES = 1 << 14


@kernel
def _is_wanted(data: Any, at: Int, stop: Int, topic_ids: Any) -> Any:
    """Return whether the value between `at` and `stop` may be about one of the topics `topic_ids`.

    `topic_ids` are sorted rows of two int64: the upper and the lower half of an id.
    """
    if stop - at < 4 or data[at] > 127 or data[at + 1] > _SNAPSHOT_RECORD or data[at + 2] > 127:
        return True
    if data[at + 1] == _SNAPSHOT_RECORD:
        return False
    size = np.int64(data[at + 3]) - 1
    at += 4
    if not 0 < size < 127 or stop - at < size + _ID_BYTES + 5:
        return True
    for index in range(at, at + size):
        if data[index] > 127:
            return True
    at += size
    high, low, partition = load_int64(data, at), load_int64(data, at + 8), load_int32(data, at + _ID_BYTES)
    if (high == 0 and low == 0) or partition < 0 or data[at + _ID_BYTES + 4] != 0:
        return True
    first, last = 0, topic_ids.shape[0]
    while first < last:
        middle = (first + last) // 2
        if topic_ids[middle, 0] < high or (topic_ids[middle, 0] == high and topic_ids[middle, 1] < low):
            first = middle + 1
        else:
            last = middle
    return first < topic_ids.shape[0] and topic_ids[first, 0] == high and topic_ids[first, 1] == low


@kernel
def _short_varint(data: Any, at: Int, stop: Int) -> Any:
    """Read a varint of at most five bytes; return its value, and the position after it (-1: it is invalid or longer).

    If `at` is negative, the position is -1, too.
    """
    value, end = varint(data, at, stop) if at >= 0 else (np.int64(0), np.int64(-1))
    return value, end if end - at <= 5 else np.int64(-1)


@kernel
def _scan_batch(data: Any, at: Int, end: Int, topic_ids: Any, places: Any, count: Int) -> Int:
    """Append a row to `places`, which has `count` rows, for each value of a batch that may be about the topics.

    A row of `places` is (offset of the record, position of its value, size of its value). Returns the new number of
    rows, or -1 if the batch must be read by `read_values`.
    """
    base_offset, last_delta = load_int64(data, at), load_int32(data, at + header.LAST_OFFSET_DELTA_AT)
    attributes, records = data[at + header.ATTRIBUTES_AT + 1], load_int32(data, at + header.COUNT_AT)
    if not 0 <= base_offset <= MAX_OFFSET or last_delta < 0 or not crc_is_right(data, at, end):
        return np.int64(-1)
    if attributes & header.CONTROL_BIT:
        return np.int64(count)
    if attributes & header.CODEC_MASK or count + records > places.shape[0]:
        return np.int64(-1)
    at += header.HEADER_SIZE
    for _ in range(records):
        size, at = _short_varint(data, at, end)
        # kafka-python, by which `read_values` reads, reads the attributes as a varint.
        if at < 0 or size < 1 or size > end - at or data[at] > 127:
            return np.int64(-1)
        stop = at + size
        _, at = _short_varint(data, at + 1, stop)
        delta, at = _short_varint(data, at, stop)
        size, at = _short_varint(data, at, stop)
        if at < 0 or not 0 <= delta <= last_delta or size > stop - at:
            return np.int64(-1)
        size, at = _short_varint(data, at + max(size, 0), stop)
        if at < 0 or at + max(size, 0) != stop - 1 or data[stop - 1] != 0:  # it has headers
            return np.int64(-1)
        if size >= 0 and _is_wanted(data, at, at + size, topic_ids):
            places[count, 0], places[count, 1], places[count, 2] = base_offset + delta, at, size
            count += 1
        at = stop
    return np.int64(count if at == end else -1)


@kernel
def _scan(data: Any, at: Int, topic_ids: Any, max_batch: Int, places: Any) -> Any:
    """Scan whole batches from `at` on; write a row into `places` for each value that may be about the topics.

    The scan stops at a batch that is cut off or must be read by `read_values`. Returns the position and the offset
    after the scanned batches, and the number of rows in `places`. If no batch was scanned, the offset is 0.
    """
    at, next_offset, count = np.int64(at), np.int64(0), np.int64(0)
    while data.shape[0] - at >= header.HEADER_SIZE:
        length = load_int32(data, at + header.LENGTH_AT)
        end = at + header.LENGTH_END + length
        smallest = header.HEADER_SIZE - header.LENGTH_END
        if not smallest <= length <= max_batch or end > data.shape[0] or data[at + header.MAGIC_AT] != header.MAGIC:
            break
        more = _scan_batch(data, at, end, topic_ids, places, count)
        if more < 0:
            break
        next_offset = load_int64(data, at) + load_int32(data, at + header.LAST_OFFSET_DELTA_AT) + 1
        at, count = end, more
    return at, next_offset, count


def scan_values(
    data: bytes | memoryview, topic_ids: Collection[bytes], limits: Limits = DEFAULT_LIMITS
) -> Iterator[tuple[int, Iterator[Value]]]:
    """Yield, for several batches at a time, the offset after them and an iterator of (offset, value) pairs.

    Values that are surely about other topics than `topic_ids` are left out, except in batches that `read_values` must
    read.
    """
    pairs = sorted(np.frombuffer(topic_id, ">i8").tolist() for topic_id in topic_ids)
    sorted_ids = np.array(pairs, np.int64).reshape(-1, 2)
    raw, places, at = np.frombuffer(data, np.uint8), np.empty((_LISTED_VALUES, 3), np.int64), 0
    while True:
        end, next_offset, count = _scan(raw, at, sorted_ids, limits.batch.maximum, places)
        if end > at:
            listed = places[:count].tolist()
            yield next_offset, ((offset, bytes(data[place : place + size])) for offset, place, size in listed)
        first = next(read_values(memoryview(data)[end:], limits), None)
        if first is None:
            return
        yield first
        at = end + header.LENGTH_END + int.from_bytes(data[end + header.LENGTH_AT : end + header.LENGTH_END], "big")

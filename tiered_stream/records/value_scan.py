"""Compiled reader of `__remote_log_metadata` that decodes usual records about wanted topics, and skips other topics.

A value begins with three varints of one byte each: frame version, record type and version. Then come the topic's name
(compact string) and id (16 bytes), the partition (int32) and tagged fields. The module
`locate.metadata_topic.remote_log_metadata` describes the rest.

A value is skipped if it is a snapshot record, or if all of these fields are valid and the topic's id is not wanted. A
usual value is decoded to numbers (`UsualRecords`). A value is usual if it is a valid record of a segment, or of a
segment's update, in a known version, and its topic has the known name. It must have no tagged field, except a segment's
flag for an empty transaction index. Any other value is returned as bytes. Batches that are compressed, have headers or
are invalid are read by `values.read_values`.

Importing this module takes half a second, so `read_values` is faster for a few thousand records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered_stream.data_limits import DEFAULT_LIMITS, Limits
from tiered_stream.records import header
from tiered_stream.records.compiled import Int, inlined, kernel
from tiered_stream.records.intrinsics import load_int32, load_int64
from tiered_stream.records.kernels import MAX_OFFSET, crc_is_right, varint
from tiered_stream.records.values import Value, read_values

_SEGMENT, _UPDATE, _SNAPSHOT_RECORD = 0, 1, 3
_LAST_VERSION = 1
_STATES = 4
_ID_BYTES = 16
_EPOCH_BYTES = 13
"""Number of bytes of a leader epoch (int32), its start offset (int64), and an empty section of tagged fields."""
_SEGMENT_BYTES, _UPDATE_BYTES = 36, 12
"""Number of bytes after the segment's id: in a segment's record up to the leader epochs, and in an update up to the
custom metadata.
"""
_LISTED_VALUES = 1 << 14
_NOT_WANTED, _UNUSUAL = -2, -1
_OFFSET, _PLACE, _SIZE, _TOPIC, _FIELDS = 0, 1, 2, 3, 4
"""Columns of the table that `_scan` fills: record's offset, value's position and size, topic's index, first field."""
(
    _HIGH, _LOW, _BASE, _END, _BYTES, _TIMESTAMP, _EPOCHS_AT, _CUSTOM_AT, _EPOCHS, _CUSTOM, _PARTITION, _STATE,
    _NO_TRANSACTIONS, _COLUMNS,
) = range(_FIELDS, _FIELDS + 14)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class UsualRecords:
    """Several decoded records of `__remote_log_metadata`, as parallel arrays with one entry for each record.

    `offsets` has the records' offsets, and `topics` the indexes of their topics in `topic_ids`. `fields` has one column
    for each field of `locate.segment_columns.SEGMENT`. Here, the field `slot` is the partition's number. The field
    `state` is the segment's state, plus 4 if the record is an update. Positions of leader epochs and of custom metadata
    are positions in `data`.
    """

    topic_ids: Sequence[bytes]
    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    topics: npt.NDArray[np.int64]
    fields: npt.NDArray[np.int64]


@inlined
def _size(data: Any, at: Int, stop: Int) -> Any:
    """Read an unsigned varint of one or two bytes at `at`; return its value and the position after it.

    The position is -1 if the varint is longer or does not end before `stop`, or if `at` is negative.
    """
    if 0 <= at < stop and data[at] < 128:
        return np.int64(data[at]), at + 1
    if 0 <= at < stop - 1 and data[at + 1] < 128:
        return np.int64(data[at] & 127) | np.int64(data[at + 1]) << 7, at + 2
    return np.int64(0), np.int64(-1)


@kernel
def _read_epochs(data: Any, at: Int, stop: Int, row: Any) -> Int:
    """Read a segment's leader epochs, and then its size, from `at` on into `row`; return the position after the size.

    The result is -1 if there is no epoch, or if the epochs do not end before `stop`, are out of order, or have tagged
    fields.
    """
    count, at = _size(data, at, stop)
    count -= 1
    if at < 0 or count < 1 or count * _EPOCH_BYTES + 4 > stop - at:
        return np.int64(-1)
    row[_EPOCHS_AT], row[_EPOCHS] = at, count
    epoch, start = np.int64(-1), np.int64(0)
    for _ in range(count):
        next_epoch, next_start = load_int32(data, at), load_int64(data, at + 4)
        if next_epoch <= epoch or next_start < start or data[at + _EPOCH_BYTES - 1] != 0:
            return np.int64(-1)
        epoch, start, at = next_epoch, next_start, at + _EPOCH_BYTES
    row[_BYTES] = load_int32(data, at)
    return np.int64(at + 4)


@kernel
def _is_usual(data: Any, at: Int, stop: Int, row: Any, head: Int) -> Any:
    """Read the fields of the value between `head` and `stop` into `row`; return whether the value is usual.

    A value is usual if it is a valid record of a segment or of an update, in a known version. It must have no tagged
    field, except a segment's flag for an empty transaction index. The fields begin at `at`, with the segment's id.
    `row` is the value's row in the table of listed values; if the result is false, its fields have no meaning.
    """
    is_update = data[head + 1] == _UPDATE
    fixed = _ID_BYTES + 1 + (_UPDATE_BYTES if is_update else _SEGMENT_BYTES)
    if (
        data[head] != 1
        or data[head + 1] > _UPDATE
        or data[head + 2] > _LAST_VERSION
        or stop - at < fixed
        or data[at + _ID_BYTES] != 0
    ):
        return False
    row[_HIGH], row[_LOW] = load_int64(data, at), load_int64(data, at + 8)
    row[_EPOCHS_AT] = row[_EPOCHS] = row[_BASE] = row[_BYTES] = row[_NO_TRANSACTIONS] = 0
    row[_END] = row[_TIMESTAMP] = -1
    at += _ID_BYTES + 1
    if not is_update:
        row[_BASE], row[_END], row[_TIMESTAMP] = (
            load_int64(data, at),
            load_int64(data, at + 8),
            load_int64(data, at + 20),
        )
    at = at + _UPDATE_BYTES if is_update else _read_epochs(data, at + _SEGMENT_BYTES, stop, row)
    size, at = _size(data, at, stop)
    if at < 0 or size > stop - at:
        return False
    row[_CUSTOM_AT], row[_CUSTOM] = at, size - 1
    at += max(size - 1, 0)
    if stop - at < 2 or data[at] >= _STATES:
        return False
    row[_STATE] = np.int64(data[at]) + (_STATES if is_update else 0)
    return _is_possible(row, is_update) and _are_usual_tags(data, at + 1, stop, row, is_update)


@inlined
def _is_possible(row: Any, is_update: Any) -> Any:
    has_offsets = is_update or 0 <= row[_BASE] <= row[_END] < MAX_OFFSET
    return has_offsets and row[_BYTES] >= 0 and (row[_HIGH] != 0 or row[_LOW] != 0)


@inlined
def _are_usual_tags(data: Any, at: Int, stop: Int, row: Any, is_update: Any) -> Any:
    """Return whether the bytes from `at` to `stop` are the tagged fields of a usual value, and nothing else.

    An update must have no tagged field. A segment may have one tagged field, which says whether its transaction index
    is empty; this flag is written into `row`.
    """
    if is_update or stop - at != 4:
        return stop - at == 1 and data[at] == 0
    row[_NO_TRANSACTIONS] = data[at + 3]
    return data[at] == 1 and data[at + 1] == 0 and data[at + 2] == 1 and data[at + 3] < 2


@inlined
def _topic_index(topic_ids: Any, high: Int, low: Int) -> Int:
    """Return the index of a topic id in `topic_ids`, or `_NOT_WANTED` if the id is not there.

    `high` and `low` are the upper and lower 64 bits of the id. `topic_ids` has the upper and lower 64 bits of an id in
    each row, and its rows are sorted.
    """
    first, last = np.int64(0), np.int64(topic_ids.shape[0])
    while first < last:
        middle = (first + last) // 2
        if topic_ids[middle, 0] < high or (topic_ids[middle, 0] == high and topic_ids[middle, 1] < low):
            first = middle + 1
        else:
            last = middle
    found = first < topic_ids.shape[0] and topic_ids[first, 0] == high and topic_ids[first, 1] == low
    return first if found else np.int64(_NOT_WANTED)


@inlined
def _is_ascii(data: Any, at: Int, stop: Int) -> Any:
    bits = np.uint8(0)
    for index in range(at, stop):
        bits |= data[index]
    return bits < 128


@inlined
def _is_name(data: Any, at: Int, size: Int, names: Any, topic: Int) -> Any:
    differing = np.uint8(0)
    for index in range(size):
        differing |= data[at + index] ^ names[topic, index]
    return differing == 0


@kernel
def _read_value(data: Any, at: Int, stop: Int, topic_ids: Any, names: Any, row: Any) -> Int:
    """Read the value between `at` and `stop` into `row`; return its topic's index, `_UNUSUAL` or `_NOT_WANTED`.

    The index is the topic's index in `topic_ids`; the value is then usual (`_is_usual`). `_UNUSUAL` means that the
    value may be about a topic in `topic_ids`, but is not usual, so the caller must decode it. `_NOT_WANTED` means that
    the value is a snapshot record, or about another topic. `names` has a row for each topic in `topic_ids`: the encoded
    length of the topic's name (a byte), the name, and zeros.
    """
    if stop - at < 4 or data[at] > 127 or data[at + 1] > _SNAPSHOT_RECORD or data[at + 2] > 127:
        return np.int64(_UNUSUAL)
    if data[at + 1] == _SNAPSHOT_RECORD:
        return np.int64(_NOT_WANTED)
    head, at = at, at + 3
    size = np.int64(data[at])
    after = at + size + _ID_BYTES + 5
    if not 1 < size < 128 or after > stop:
        return np.int64(_UNUSUAL)
    high, low = load_int64(data, at + size), load_int64(data, at + size + 8)
    partition = load_int32(data, at + size + _ID_BYTES)
    if (high == 0 and low == 0) or partition < 0 or data[after - 1] != 0:
        return np.int64(_UNUSUAL)
    topic = _topic_index(topic_ids, high, low)
    if topic < 0:
        return topic if _is_ascii(data, at, at + size) else np.int64(_UNUSUAL)
    row[_PARTITION] = partition
    is_usual = _is_name(data, at, size, names, topic) and _is_usual(data, after, stop, row, head)
    return topic if is_usual else np.int64(_UNUSUAL)


@kernel
def _short_varint(data: Any, at: Int, stop: Int) -> Any:
    """Read a varint of at most five bytes at `at`; return its value and the position after it.

    The position is -1 if the varint is invalid or longer, or if `at` is negative.
    """
    value, end = varint(data, at, stop) if at >= 0 else (np.int64(0), np.int64(-1))
    return value, end if end - at <= 5 else np.int64(-1)


@kernel
def _scan_batch(data: Any, at: Int, end: Int, topic_ids: Any, names: Any, listed: Any, count: Int) -> Int:
    """Append a row to `listed` for each value of a batch that may be about a wanted topic.

    The wanted topics are `topic_ids`. The batch is `data[at:end]`, and `listed` has `count` rows before the call.
    `names` has the same form as in `_read_value`. Returns the new number of rows, or -1 if `read_values` must read the
    batch.
    """
    base_offset, last_delta = load_int64(data, at), load_int32(data, at + header.LAST_OFFSET_DELTA_AT)
    attributes, records = data[at + header.ATTRIBUTES_AT + 1], load_int32(data, at + header.COUNT_AT)
    if not 0 <= base_offset <= MAX_OFFSET or last_delta < 0 or not crc_is_right(data, at, end):
        return np.int64(-1)
    if attributes & header.CONTROL_BIT:
        return np.int64(count)
    if attributes & header.CODEC_MASK or count + records > listed.shape[0]:
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
        if size >= 0:
            topic = _read_value(data, at, at + size, topic_ids, names, listed[count])
            if topic != _NOT_WANTED:
                listed[count, _OFFSET], listed[count, _PLACE], listed[count, _SIZE] = base_offset + delta, at, size
                listed[count, _TOPIC] = topic
                count += 1
        at = stop
    return np.int64(count if at == end else -1)


@kernel
def _scan(data: Any, at: Int, topic_ids: Any, names: Any, max_batch: Int, listed: Any) -> Any:
    """Scan whole batches from `at` on; write a row into `listed` for each value that may be about a wanted topic.

    The wanted topics are `topic_ids`. The scan stops at a batch that is cut off, is longer than `max_batch` bytes, or
    must be read by `read_values`. Returns the position and the offset after the scanned batches, and the number of rows
    in `listed`. If no batch was scanned, the offset is 0. `names` has the same form as in `_read_value`.
    """
    at, next_offset, count = np.int64(at), np.int64(0), np.int64(0)
    while data.shape[0] - at >= header.HEADER_SIZE:
        length = load_int32(data, at + header.LENGTH_AT)
        end = at + header.LENGTH_END + length
        smallest = header.HEADER_SIZE - header.LENGTH_END
        if not smallest <= length <= max_batch or end > data.shape[0] or data[at + header.MAGIC_AT] != header.MAGIC:
            break
        more = _scan_batch(data, at, end, topic_ids, names, listed, count)
        if more < 0:
            break
        next_offset = load_int64(data, at) + load_int32(data, at + header.LAST_OFFSET_DELTA_AT) + 1
        at, count = end, more
    return at, next_offset, count


def scan_values(
    data: bytes | memoryview, topics: Mapping[bytes, str], limits: Limits = DEFAULT_LIMITS
) -> Iterator[tuple[int, Iterator[Value | UsualRecords]]]:
    """Yield, for several batches at a time, the offset after them and an iterator of their values, in order.

    `data` are record batches of `__remote_log_metadata`, and `topics` the names of the wanted topics by id. The
    iterator yields `UsualRecords` for values that could be decoded in one step, and an (offset, value) pair for each
    other value. Values that are certainly about other topics are left out, except in batches that have to be decoded
    record by record (`read_values`). The caller must use up an iterator's items before it requests the next iterator,
    because their memory is used again.

    Raises:
        CorruptDataError: a batch is malformed, or its CRC-32C is wrong.
        DataLimitError: a batch exceeds one of the limits.
        UnsupportedDataError: a batch has a format before Kafka 0.11, or an unknown codec.
    """
    sorted_ids = sorted(topics, key=lambda topic_id: np.frombuffer(topic_id, ">i8").tolist())
    halves = np.frombuffer(b"".join(sorted_ids), ">i8").astype(np.int64).reshape(-1, 2)
    # A name of more bytes is left to the caller: the row of an empty name is equal to no record's name.
    encoded = [name if len(name) < 127 else b"" for name in (topics[topic_id].encode() for topic_id in sorted_ids)]
    names = np.zeros((len(encoded), 128), np.uint8)
    for row, name in zip(names, encoded, strict=True):
        row[: len(name) + 1] = np.frombuffer(bytes((len(name) + 1,)) + name, np.uint8)
    raw, listed, at = np.frombuffer(data, np.uint8), np.empty((_LISTED_VALUES, _COLUMNS), np.int64), 0
    while True:
        end, next_offset, count = _scan(raw, at, halves, names, limits.batch.maximum, listed)
        if end > at:
            yield next_offset, _values(raw, listed[:count], sorted_ids)
        first = next(read_values(memoryview(data)[end:], limits), None)
        if first is None:
            return
        yield first
        at = end + header.LENGTH_END + int.from_bytes(data[end + header.LENGTH_AT : end + header.LENGTH_END], "big")


def _values(
    data: npt.NDArray[np.uint8], listed: npt.NDArray[np.int64], topic_ids: Sequence[bytes]
) -> Iterator[Value | UsualRecords]:
    start = 0
    for at in [*np.flatnonzero(listed[:, _TOPIC] == _UNUSUAL).tolist(), len(listed)]:
        if start < at:
            rows = listed[start:at]
            yield UsualRecords(topic_ids, data, rows[:, _OFFSET], rows[:, _TOPIC], rows[:, _FIELDS:])
        if at < len(listed):
            offset, place, size = listed[at, : _SIZE + 1].tolist()
            yield offset, data[place : place + size].tobytes()
        start = at + 1

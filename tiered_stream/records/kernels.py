"""The compiled half of the decoder: record batches (magic 2) from bytes into Arrow's buffers.

`header.py` has the layout of a batch's header. A record (Kafka: `DefaultRecord`), varints being zigzag, a length of -1
null:

    length varint, attributes int8, timestamp delta varlong, offset delta varint, key length varint, key,
    value length varint, value, header count varint, then by header: key length varint, key, value length varint, value

Every length and count is checked against the bytes that are there before it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cgutils
from numba.core import types as numba_types
from numba.extending import intrinsic

from tiered_stream.records import header
from tiered_stream.records.compiled import kernel

Int = Any
"""An int64, or a Python integer, which compiled code does not tell apart."""

SMALLEST_RECORD = 7
SMALLEST_BATCH = min(header.SMALLEST.values())

# Columns of the table that `scan_batches` fills, a row for each batch that has records to give.
POSITION, SIZE, BASE_OFFSET, ATTRIBUTES, LAST_OFFSET_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, COUNT, MAGIC = range(9)
# Columns that the caller adds: where the records lie, in which of the two sources.
RECORDS_START, RECORDS_END, UNPACKED = range(9, 12)
BATCH_COLUMNS = 12

# Columns of the second table that `scan_batches` fills, a row for each transactional batch of the wanted offsets.
OFFSET, PRODUCER_ID, KIND, COVERED = range(4)
TRANSACTIONAL_COLUMNS = 4
# What such a batch is, by its KIND: records, or a marker (Kafka: `ControlRecordType`).
RECORDS, COMMIT_MARKER, ABORT_MARKER, OTHER_MARKER = range(4)

# Answers of `scan_batches` and `decode_records` in `state[ERROR]`.
OK, BAD_LENGTH, BAD_MAGIC, BAD_COUNT, BAD_ORDER, BAD_RECORD, BAD_OFFSET, BAD_TIMESTAMP, BAD_HEADERS = range(9)
ERROR_TEXTS = {
    BAD_LENGTH: "the batch's length is impossible",
    BAD_MAGIC: "the batch's magic byte is none of 0, 1, 2",
    BAD_COUNT: "the batch's record count or last offset delta is impossible",
    BAD_ORDER: "the batch's offsets do not follow those of the batch before",
    BAD_RECORD: "a record does not fit into its batch",
    BAD_OFFSET: "a record's offset lies outside its batch",
    BAD_TIMESTAMP: "a record's timestamp does not fit into microseconds",
    BAD_HEADERS: "a record's headers do not fit into it",
}

# What the kernels leave behind.
ERROR, ERROR_POSITION, CONSUMED, NEXT_OFFSET, TRANSACTIONAL, GAPS = range(6)
STATE_SIZE = 6

MAX_MILLISECONDS = (2**63 - 1) // 1000
MAX_OFFSET = 2**62


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _copy(typing_context: Any, to: Any, to_position: Any, source: Any, position: Any, size: Any) -> Any:
    """memcpy between byte arrays: one call, where a slice assignment would be a loop that takes seconds to compile."""
    signature = numba_types.void(to, to_position, source, position, size)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to_type, _, source_type, _, _ = signature.args
        to_array = context.make_array(to_type)(context, builder, arguments[0])
        source_array = context.make_array(source_type)(context, builder, arguments[2])
        target = cgutils.pointer_add(builder, to_array.data, arguments[1])
        origin = cgutils.pointer_add(builder, source_array.data, arguments[3])
        cgutils.raw_memcpy(builder, target, origin, arguments[4], 1)
        return context.get_dummy_value()

    return signature, generate


@kernel
def _int16(data: Any, at: Int) -> Any:
    return np.int64(np.int16(data[at]) << 8 | np.int16(data[at + 1]))


@kernel
def _int32(data: Any, at: Int) -> Any:
    value = np.uint32(data[at]) << 24 | np.uint32(data[at + 1]) << 16 | np.uint32(data[at + 2]) << 8
    return np.int64(np.int32(value | np.uint32(data[at + 3])))


@kernel
def _int64(data: Any, at: Int) -> Any:
    value = np.uint64(0)
    for index in range(at, at + 8):
        value = value << np.uint64(8) | np.uint64(data[index])
    return np.int64(value)


@kernel
def _varint(data: Any, at: Int, stop: Int) -> Any:
    """A zigzag varint of at most 10 bytes: its value and the position after it, -1 when it does not end in time."""
    if at < stop and data[at] < 128:
        byte = np.int64(data[at])
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < stop and shift < 64:
        part = np.uint64(data[at])
        at += 1
        value |= (part & np.uint64(0x7F)) << shift
        if part < 128:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@kernel
def _is_aborted(producer_id: Int, offset: Int, aborted: Any) -> Any:
    """Whether an interval (producer id, first, last) of the sorted, per producer disjoint `aborted` holds `offset`."""
    low, high = 0, aborted.shape[0]
    while low < high:
        middle = (low + high) // 2
        other = aborted[middle, 0]
        if other < producer_id or (other == producer_id and aborted[middle, 1] <= offset):
            low = middle + 1
        else:
            high = middle
    return low > 0 and aborted[low - 1, 0] == producer_id and offset <= aborted[low - 1, 2]


@kernel
def _frame(data: Any, at: Int, max_batch_size: Int, state: Any) -> Int:
    """The size of the batch at `at`, 0 when it is not whole, -1 with an error in `state`."""
    base_offset, length = _int64(data, at), _int32(data, at + header.LENGTH_AT)
    magic = np.int64(data[at + header.MAGIC_AT])
    smallest = header.HEADER_SIZE if magic == 2 else SMALLEST_BATCH
    if magic > 2:
        state[ERROR] = BAD_MAGIC
    elif length < smallest - header.LENGTH_END or length > max_batch_size:
        state[ERROR] = BAD_LENGTH
    elif data.shape[0] - at < header.LENGTH_END + length:
        return np.int64(0)
    elif base_offset < state[NEXT_OFFSET] or base_offset > MAX_OFFSET:
        state[ERROR] = BAD_ORDER
    elif magic == 2 and not (
        0 <= _int32(data, at + header.COUNT_AT) <= _int32(data, at + header.LAST_OFFSET_DELTA_AT) + 1
    ):
        state[ERROR] = BAD_COUNT
    else:
        return header.LENGTH_END + length
    state[ERROR_POSITION] = at
    return np.int64(-1)


@kernel
def _marker(data: Any, at: Int, stop: Int) -> Int:
    """Which marker the control batch at `at` is: its one record's key is a version (int16) and a type (int16)."""
    at += header.HEADER_SIZE
    _, at = _varint(data, at, stop)
    if at >= 0:
        _, at = _varint(data, at + 1, stop)
    if at >= 0:
        _, at = _varint(data, at, stop)
    size = np.int64(0)
    if at >= 0:
        size, at = _varint(data, at, stop)
    if at < 0 or size < 4 or stop - at < 4:
        return np.int64(OTHER_MARKER)
    kind = _int16(data, at + 2)
    return np.int64(ABORT_MARKER if kind == 0 else COMMIT_MARKER if kind == 1 else OTHER_MARKER)


@kernel
def scan_batches(
    data: Any,
    start_offset: Int,
    end_offset: Int,
    max_batch_size: Int,
    aborted: Any,
    batches: Any,
    transactional: Any,
    state: Any,
) -> Int:
    """List the whole batches in `data` that have records to give; how many.

    Left out are control batches, batches outside [start_offset, end_offset), and transactional ones that `aborted`
    names. `state[NEXT_OFFSET]` is the lowest base offset that may come, and moves on; `state[CONSUMED]` is where the
    first batch begins that is not whole; `state[TRANSACTIONAL]` says how many rows of `transactional` were filled;
    `state[GAPS]` counts the batches that do not begin where the one before ended.
    """
    at, found, listed = np.int64(0), 0, 0
    state[ERROR] = OK
    while data.shape[0] - at > header.MAGIC_AT:
        size = _frame(data, at, max_batch_size, state)
        if size <= 0:
            break
        batch = batches[found]
        batch[POSITION], batch[SIZE], batch[BASE_OFFSET] = at, size, _int64(data, at)
        batch[MAGIC] = data[at + header.MAGIC_AT]
        state[GAPS] += 0 < state[NEXT_OFFSET] != batch[BASE_OFFSET]
        if batch[MAGIC] < 2:
            # An old message set has the offset of its last message, so its first cannot be told from here.
            state[NEXT_OFFSET] = batch[BASE_OFFSET] + 1
            wanted = batch[BASE_OFFSET] >= start_offset
        else:
            batch[ATTRIBUTES] = _int16(data, at + header.ATTRIBUTES_AT)
            batch[LAST_OFFSET_DELTA] = _int32(data, at + header.LAST_OFFSET_DELTA_AT)
            batch[BASE_TIMESTAMP] = _int64(data, at + header.BASE_TIMESTAMP_AT)
            batch[MAX_TIMESTAMP] = _int64(data, at + header.MAX_TIMESTAMP_AT)
            batch[COUNT] = _int32(data, at + header.COUNT_AT)
            last_offset = batch[BASE_OFFSET] + batch[LAST_OFFSET_DELTA]
            state[NEXT_OFFSET] = last_offset + 1
            wanted = batch[BASE_OFFSET] < end_offset and last_offset >= start_offset
            covered, control = False, (batch[ATTRIBUTES] & header.CONTROL_BIT) != 0
            if wanted and batch[ATTRIBUTES] & header.TRANSACTIONAL_BIT:
                producer_id = _int64(data, at + header.PRODUCER_ID_AT)
                if aborted.shape[0] > 0:
                    covered = _is_aborted(producer_id, batch[BASE_OFFSET], aborted)
                row = transactional[listed]
                row[OFFSET], row[PRODUCER_ID], row[COVERED] = batch[BASE_OFFSET], producer_id, covered
                row[KIND] = _marker(data, at, at + size) if control else RECORDS
                listed += 1
            wanted = wanted and batch[COUNT] > 0 and not covered and not control
        found += wanted
        at += size
    state[CONSUMED], state[TRANSACTIONAL] = at, listed
    return found


@kernel
def _append(column: Any, index: Int, data: Any, at: Int, stop: Int) -> Int:
    """Append the length-prefixed bytes at `at` to a column; the position after them, -1 when they do not fit.

    A column is (ends, bytes, validity bits, [number of nulls]): Arrow's buffers, `ends[index]` written before.
    """
    ends, values, bits, nulls = column
    size, at = _varint(data, at, stop)
    if at < 0 or size < -1 or size > stop - at:
        return np.int64(-1)
    begin = np.int64(ends[index])
    if size < 0:
        nulls[0] += 1
        ends[index + 1] = begin
        return at
    _copy(values, begin, data, at, size)
    bits[index >> 3] |= np.uint8(1 << (index & 7))
    ends[index + 1] = begin + size
    return at + size


@kernel
def _append_headers(column: Any, row: Int, data: Any, at: Int, stop: Int) -> Int:
    """Append a record's headers; the position after them, -1 when they do not fit.

    A column of headers is (list ends, validity bits, [number of nulls], key column, value column).
    """
    ends, bits, nulls, keys, values = column
    number, at = _varint(data, at, stop)
    if at < 0 or number < 0 or number > (stop - at) // 2:
        return np.int64(-1)
    first = np.int64(ends[row])
    for index in range(first, first + number):
        at = _append(keys, index, data, at, stop)
        if at >= 0:
            at = _append(values, index, data, at, stop)
        if at < 0:
            return np.int64(-1)
    if number > 0:
        bits[row >> 3] |= np.uint8(1 << (row & 7))
    else:
        nulls[0] += 1
    ends[row + 1] = first + number
    return at


@kernel
def _append_record(batch: Any, data: Any, at: Int, stop: Int, row: Int, columns: Any, with_headers: bool) -> Int:
    """Append the record between `at` and `stop`, from its key on; an error or OK."""
    _, _, _, keys, values, headers = columns
    at = _append(keys, row, data, at, stop)
    if at >= 0:
        at = _append(values, row, data, at, stop)
    if at < 0:
        return BAD_RECORD
    if with_headers and _append_headers(headers, row, data, at, stop) != stop:
        return BAD_HEADERS
    return OK


@kernel
def _decode_batch(
    batch: Any, data: Any, start_offset: Int, end_offset: Int, columns: Any, row: Int, with_headers: bool
) -> Any:
    """Append a batch's records with offsets in [start_offset, end_offset): the next row, and an error or OK."""
    offsets, timestamps, timestamp_types = columns[0], columns[1], columns[2]
    at, batch_end = batch[RECORDS_START], batch[RECORDS_END]
    appended = np.int64(batch[ATTRIBUTES] & header.TIMESTAMP_TYPE_BIT != 0)
    for _ in range(batch[COUNT]):
        length, at = _varint(data, at, batch_end)
        if at < 0 or length < SMALLEST_RECORD - 1 or length > batch_end - at:
            return row, BAD_RECORD
        stop = at + length
        timestamp_delta, at = _varint(data, at + 1, stop)
        offset_delta, at = _varint(data, at, stop) if at >= 0 else (np.int64(-1), at)
        if at < 0 or offset_delta < 0 or offset_delta > batch[LAST_OFFSET_DELTA]:
            return row, BAD_OFFSET
        offset = batch[BASE_OFFSET] + offset_delta
        if start_offset <= offset < end_offset:
            timestamp = batch[MAX_TIMESTAMP] if appended else batch[BASE_TIMESTAMP] + timestamp_delta
            if timestamp > MAX_MILLISECONDS or timestamp < -MAX_MILLISECONDS:
                return row, BAD_TIMESTAMP
            error = _append_record(batch, data, at, stop, row, columns, with_headers)
            if error != OK:
                return row, error
            offsets[row] = offset
            timestamps[row] = timestamp * 1000
            timestamp_types[row] = appended
            row += 1
        at = stop
    return row, (OK if at == batch_end else BAD_RECORD)


@kernel
def decode_records(
    raw: Any, unpacked: Any, batches: Any, start_offset: Int, end_offset: Int, columns: Any, with_headers: bool,
    state: Any,
) -> Int:  # fmt: skip
    """Write the records of `batches` with offsets in [start_offset, end_offset) into Arrow's buffers; how many.

    `columns` is (offsets, timestamps in microseconds, timestamp types, keys, values, headers); all bits are zero and
    the first end of each column is 0 on entry. On an error `state` names it and the batch.
    """
    row, error = np.int64(0), OK
    for index in range(batches.shape[0]):
        batch = batches[index]
        data = unpacked if batch[UNPACKED] else raw
        row, error = _decode_batch(batch, data, start_offset, end_offset, columns, row, with_headers)
        if error != OK:
            state[ERROR_POSITION] = batch[POSITION]
            break
    state[ERROR] = error
    return row

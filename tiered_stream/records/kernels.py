"""Compiled functions for `decoder.py`, which write the records of batches into Arrow's buffers.

`legacy.py` describes messages before Kafka 0.11 (magic 0 and 1), and `header.py` the header of a batch of magic 2. This
is the layout of a record of magic 2 (Kafka: `DefaultRecord`); varints are zigzag, and a length of -1 means null:

    length varint, attributes int8, timestamp delta varlong, offset delta varint, key length varint, key,
    value length varint, value, header count varint, then by header: key length varint, key, value length varint, value

Every length and count is checked against the available bytes before it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiered_stream.records import header
from tiered_stream.records.compiled import Int, inlined, kernel
from tiered_stream.records.intrinsics import copy_bytes, crc32c, load_int16, load_int32, load_int64

SMALLEST_BATCH = min(header.SMALLEST.values())

# Columns of the table that `scan_batches` fills, which has a row for each batch with records to return.
POSITION, SIZE, BASE_OFFSET, ATTRIBUTES, LAST_OFFSET_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, COUNT, MAGIC = range(9)
# Columns that have other values for a legacy message set: the lowest offset that the set may hold (the offset that it
# states is the offset of its last message), the number to add to the offsets of its messages, and its timestamp.
LOWEST_OFFSET, ADDED_OFFSET, SET_TIMESTAMP = LAST_OFFSET_DELTA, MAX_TIMESTAMP, BASE_TIMESTAMP
# Columns with the positions at which the batch's records begin and end. UNPACKED is 1 if these are positions in
# `unpacked`, and 0 if they are positions in the raw data. For compressed batches and legacy message sets, the caller
# fills these columns.
RECORDS_START, RECORDS_END, UNPACKED = range(9, 12)
BATCH_COLUMNS = 12

# Results of the kernels in `state[ERROR]`. MORE means that the remaining records did not fit into the buffers.
OK, BAD_LENGTH, BAD_MAGIC, BAD_COUNT, BAD_ORDER, BAD_RECORD, BAD_OFFSET, BAD_TIMESTAMP, BAD_HEADERS = range(9)
BAD_CRC, TOO_LARGE, TOO_MANY_HEADERS, MORE = range(9, 13)
ERROR_TEXTS = {
    BAD_LENGTH: "the batch's length is impossible",
    BAD_MAGIC: "the batch's magic byte is none of 0, 1, 2",
    BAD_COUNT: "the batch's record count or last offset delta is impossible",
    BAD_ORDER: "the batch's offsets do not follow the offsets of the batch before",
    BAD_RECORD: "a record does not fit into its batch",
    BAD_OFFSET: "a record's offset lies outside its batch",
    BAD_TIMESTAMP: "a record's timestamp does not fit into microseconds",
    BAD_HEADERS: "a record's headers do not fit into it",
    BAD_CRC: "the batch's CRC-32C is wrong",
}

# Indexes in `state` of the results that kernels return.
ERROR, ERROR_POSITION, ERROR_VALUE, CONSUMED, NEXT_OFFSET = range(5)
# Indexes in `state` of the next record to decode: the index of its batch, the position of its first byte, and its index
# in the batch. USED is the number of bytes of the unit's records so far.
BATCH, AT, RECORD, USED = range(5, 9)
STATE_SIZE = 9

# Result in place of a position: the column has not enough room for the bytes.
NO_ROOM = -2

# Maximum rows, bytes and headers of one unit. Only the first record of a unit may exceed them.
UNIT_ROWS, UNIT_BYTES, UNIT_HEADERS = 1 << 18, 32 << 20, 1 << 18
LARGEST_RECORD = 2**31 - 1

MESSAGE_TIMESTAMP_AT, MESSAGE_KEY_AT = 18, (18, 26)
"""Position of the timestamp in a legacy message of magic 1, and positions of the key length by magic."""

MAX_MILLISECONDS = (2**63 - 1) // 1000
MAX_OFFSET = 2**62


@kernel
def varint(data: Any, at: Int, stop: Int) -> Any:
    """Read a zigzag varint of at most 10 bytes; return its value and the position after it.

    The position is -1 if the varint does not end before `stop` or within 10 bytes.
    """
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
    """Return whether a producer's transaction that contains `offset` was aborted.

    The rows of `aborted` are (producer id, first offset, last offset), sorted. The intervals of a producer do not
    overlap.
    """
    low, high = 0, aborted.shape[0]
    while low < high:
        middle = (low + high) // 2
        other = aborted[middle, 0]
        if other < producer_id or (other == producer_id and aborted[middle, 1] <= offset):
            low = middle + 1
        else:
            high = middle
    return low > 0 and aborted[low - 1, 0] == producer_id and offset <= aborted[low - 1, 2]


@inlined
def _frame(data: Any, at: Int, max_batch_size: Int, state: Any) -> Int:
    """Return the size in bytes of the batch at position `at` of `data`, or 0 if `data` ends within the batch.

    If the batch is malformed, or larger than `max_batch_size` bytes, the result is -1, and the error and its position
    are written into `state`.
    """
    base_offset, length = load_int64(data, at), load_int32(data, at + header.LENGTH_AT)
    magic = np.int64(data[at + header.MAGIC_AT])
    smallest = header.HEADER_SIZE if magic == 2 else SMALLEST_BATCH
    if magic > 2:
        state[ERROR] = BAD_MAGIC
    elif length < smallest - header.LENGTH_END:
        state[ERROR] = BAD_LENGTH
    elif length > max_batch_size:
        state[ERROR], state[ERROR_VALUE] = TOO_LARGE, length
    elif data.shape[0] - at < header.LENGTH_END + length:
        return np.int64(0)
    elif base_offset < state[NEXT_OFFSET] or base_offset > MAX_OFFSET:
        state[ERROR] = BAD_ORDER
    elif magic == 2 and not (
        0 <= load_int32(data, at + header.COUNT_AT) <= load_int32(data, at + header.LAST_OFFSET_DELTA_AT) + 1
    ):
        state[ERROR] = BAD_COUNT
    else:
        return header.LENGTH_END + length
    state[ERROR_POSITION] = at
    return np.int64(-1)


@kernel
def scan_batches(
    data: Any, start_offset: Int, end_offset: Int, max_batch_size: Int, aborted: Any, batches: Any, state: Any
) -> Int:
    """Fill the table `batches` with the batches in `data` that have wanted records; return their number.

    The table does not get control batches, batches without records, batches outside [start_offset, end_offset), and
    transactional batches that `aborted` covers.

    Scanning stops at a batch that is cut off or malformed, and when the table is full. `state[ERROR]` is OK or the
    error of the malformed batch. `state[NEXT_OFFSET]` is the lowest base offset that the next batch may have.
    `state[CONSUMED]` is the position after the last batch that was scanned.
    """
    at, count = np.int64(0), 0
    state[ERROR] = OK
    while data.shape[0] - at > header.MAGIC_AT and count < batches.shape[0]:
        size = _frame(data, at, max_batch_size, state)
        if size <= 0:
            break
        batch = batches[count]
        batch[POSITION], batch[SIZE], batch[BASE_OFFSET] = at, size, load_int64(data, at)
        batch[MAGIC] = data[at + header.MAGIC_AT]
        if batch[MAGIC] < 2:
            # A legacy message set states only the offset of its last message, so its first offset is unknown here.
            batch[LOWEST_OFFSET], state[NEXT_OFFSET] = state[NEXT_OFFSET], batch[BASE_OFFSET] + 1
            is_listed = batch[BASE_OFFSET] >= start_offset and batch[LOWEST_OFFSET] < end_offset
        else:
            batch[ATTRIBUTES] = load_int16(data, at + header.ATTRIBUTES_AT)
            batch[LAST_OFFSET_DELTA] = load_int32(data, at + header.LAST_OFFSET_DELTA_AT)
            batch[BASE_TIMESTAMP] = load_int64(data, at + header.BASE_TIMESTAMP_AT)
            batch[MAX_TIMESTAMP] = load_int64(data, at + header.MAX_TIMESTAMP_AT)
            batch[COUNT] = load_int32(data, at + header.COUNT_AT)
            batch[RECORDS_START], batch[RECORDS_END], batch[UNPACKED] = at + header.HEADER_SIZE, at + size, 0
            last_offset = batch[BASE_OFFSET] + batch[LAST_OFFSET_DELTA]
            state[NEXT_OFFSET] = last_offset + 1
            is_listed = batch[BASE_OFFSET] < end_offset and last_offset >= start_offset and batch[COUNT] > 0
            is_listed = is_listed and batch[ATTRIBUTES] & header.CONTROL_BIT == 0
            if is_listed and batch[ATTRIBUTES] & header.TRANSACTIONAL_BIT and aborted.shape[0] > 0:
                is_listed = not _is_aborted(load_int64(data, at + header.PRODUCER_ID_AT), batch[BASE_OFFSET], aborted)
        count += is_listed
        at += size
    state[CONSUMED] = at
    return count


@kernel
def crc_is_right(data: Any, at: Int, end: Int) -> Any:
    """Return whether the batch in `data[at:end]`, of magic 2, has the CRC-32C that its header states."""
    crc = load_int32(data, at + header.CRC_AT) & 0xFFFFFFFF
    return crc == crc32c(data, at + header.ATTRIBUTES_AT, end)


@kernel
def check_crcs(data: Any, batches: Any, state: Any) -> None:
    """Check the CRC-32C of each batch in the table `batches`, which are all of magic 2.

    `state[ERROR]` becomes OK or BAD_CRC. After BAD_CRC, `state[ERROR_POSITION]` is the first wrong batch's position.
    """
    state[ERROR] = OK
    for index in range(batches.shape[0]):
        at = batches[index, POSITION]
        if not crc_is_right(data, at, at + batches[index, SIZE]):
            state[ERROR], state[ERROR_POSITION] = BAD_CRC, at
            break


@inlined
def append_bytes(column: Any, index: Int, data: Any, at: Int, size: Int, stop: Int) -> Int:
    """Append the `size` bytes at `at` to a column as value `index`, or null if `size` is -1.

    Returns the position after the bytes. Appends nothing and returns -1 if the bytes end after `stop`, `at` is negative
    or `size` is below -1. Appends nothing and returns NO_ROOM if the column has no room for the bytes.

    A column is Arrow's buffers: (ends, bytes, validity bits, [number of nulls]). `ends[index]` must already be the
    start of the new value.
    """
    ends, values, bits, nulls = column
    if at < 0 or size < -1 or size > stop - at:
        return np.int64(-1)
    begin = np.int64(ends[index])
    if size < 0:
        nulls[0] += 1
        ends[index + 1] = begin
        return at
    if size > values.shape[0] - begin:
        return np.int64(NO_ROOM)
    copy_bytes(values, begin, data, at, size)
    bits[index >> 3] |= np.uint8(1 << (index & 7))
    ends[index + 1] = begin + size
    return at + size


@kernel
def _append(column: Any, index: Int, data: Any, at: Int, stop: Int) -> Int:
    """Read a varint length at `at`, and append the bytes after it to the column as value `index` (length -1: null).

    Returns the position after the bytes. Returns -1 if the bytes do not end before `stop`, and NO_ROOM if the column
    has no room for them.
    """
    size, at = varint(data, at, stop)
    return append_bytes(column, index, data, at, size, stop)


@kernel
def _append_headers(column: Any, row: Int, data: Any, at: Int, stop: Int) -> Int:
    """Append a record's headers, which begin at `at`, to `column` as value `row`; return the position after them.

    The result is -1 if the headers do not fit into the record, which ends at `stop`. `column` is (list ends, validity
    bits, [number of nulls], key column, value column).
    """
    ends, bits, nulls, keys, values = column
    number, at = varint(data, at, stop)
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
def _append_record(data: Any, at: Int, stop: Int, row: Int, columns: Any, max_headers: Int, state: Any) -> Int:
    """Append key, value and headers of a record as row `row`; return OK, MORE if the key has no room, or an error code.

    The record's key begins at `at`, and the record ends at `stop`. If `max_headers` is None, headers are skipped. If
    the record has more headers, the result is TOO_MANY_HEADERS, and `state[ERROR_VALUE]` is their number.
    """
    _, _, _, keys, values, headers = columns
    at = _append(keys, row, data, at, stop)
    if at == NO_ROOM:
        return MORE
    if at >= 0:
        at = _append(values, row, data, at, stop)
    if at < 0:
        return BAD_RECORD
    if max_headers is not None:
        number, _ = varint(data, at, stop)
        if max_headers < number <= (stop - at) // 2:
            state[ERROR_VALUE] = number
            return TOO_MANY_HEADERS
        if _append_headers(headers, row, data, at, stop) != stop:
            return BAD_HEADERS
    return OK


@inlined
def _decode_batch(
    batch: Any, data: Any, start_offset: Int, end_offset: Int, columns: Any, row: Int, max_headers: Int, state: Any
) -> Any:
    """Append a batch's records with offsets in [start_offset, end_offset), from row `row` of `columns` on.

    `batch` is the batch's row in the table of batches. Decoding begins at the record whose index is `state[RECORD]`.
    Returns the row after the last record, and OK, MORE or an error code. MORE means that the buffers are full or the
    next key has no room; `state` then has the position of the next record. If `max_headers` is None, headers are
    skipped.
    """
    offsets, timestamps, timestamp_types = columns[0], columns[1], columns[2]
    at, batch_end = batch[RECORDS_START] if state[RECORD] == 0 else state[AT], batch[RECORDS_END]
    appended, used = np.int64(batch[ATTRIBUTES] & header.TIMESTAMP_TYPE_BIT != 0), state[USED]
    for record in range(state[RECORD], batch[COUNT]):
        begin = at
        length, at = varint(data, at, batch_end)
        if at < 0 or length < header.SMALLEST_RECORD - 1 or length > min(batch_end - at, LARGEST_RECORD):
            return row, BAD_RECORD
        stop = at + length
        timestamp_delta, at = varint(data, at + 1, stop)
        offset_delta, at = varint(data, at, stop) if at >= 0 else (np.int64(-1), at)
        if at < 0 or offset_delta < 0 or offset_delta > batch[LAST_OFFSET_DELTA]:
            return row, BAD_OFFSET
        offset = batch[BASE_OFFSET] + offset_delta
        if start_offset <= offset < end_offset:
            full = row == offsets.shape[0] or (used + length > UNIT_BYTES and row > 0)
            if max_headers is not None:
                full = full or columns[5][0][row] >= UNIT_HEADERS
            if full:
                state[AT], state[RECORD], state[USED] = begin, record, used
                return row, MORE
            timestamp = batch[MAX_TIMESTAMP] if appended else batch[BASE_TIMESTAMP] + timestamp_delta
            if timestamp > MAX_MILLISECONDS or timestamp < -MAX_MILLISECONDS:
                return row, BAD_TIMESTAMP
            error = _append_record(data, at, stop, row, columns, max_headers, state)
            if error != OK:
                state[AT], state[RECORD], state[USED] = begin, record, used
                return row, error
            offsets[row] = offset
            timestamps[row] = timestamp * 1000
            timestamp_types[row] = appended
            used += length
            row += 1
        at = stop
    state[RECORD], state[USED] = 0, used
    return row, (OK if at == batch_end else BAD_RECORD)


@kernel
def _append_sized(column: Any, row: Int, data: Any, at: Int, stop: Int) -> Int:
    """Read an int32 length at `at`, and append the bytes after it to the column as value `row` (length -1: null).

    Returns the position after the bytes. Returns -1 if the bytes do not end before `stop`, and NO_ROOM if the column
    has no room for them.
    """
    if at < 0 or stop - at < 4:
        return np.int64(-1)
    return append_bytes(column, row, data, at + 4, load_int32(data, at), stop)


@kernel
def _decode_set(
    batch: Any, data: Any, start_offset: Int, end_offset: Int, columns: Any, row: Int, max_headers: Int, state: Any
) -> Any:
    """Append a legacy set's messages with offsets in [start_offset, end_offset), from row `row` of `columns` on.

    `batch` is the set's row in the table of batches. Decoding begins at the message whose index is `state[RECORD]`.
    Returns the row after the last message, and OK, MORE or an error code. MORE means that the buffers are full or the
    next key has no room; `state` then has the position of the next message. `legacy.locate_messages` must have checked
    the sizes of the messages.
    """
    offsets, timestamps, timestamp_types, keys, values, headers = columns
    at = batch[RECORDS_START] if state[RECORD] == 0 else state[AT]
    appended = batch[MAGIC] == 1 and (batch[ATTRIBUTES] & header.TIMESTAMP_TYPE_BIT) != 0
    used = state[USED]
    for number in range(state[RECORD], batch[COUNT]):
        stop = at + header.LENGTH_END + load_int32(data, at + header.LENGTH_AT)
        offset = load_int64(data, at) + batch[ADDED_OFFSET]
        if start_offset <= offset < end_offset:
            full = row == offsets.shape[0] or (used + stop - at > UNIT_BYTES and row > 0)
            if full:
                state[AT], state[RECORD], state[USED] = at, number, used
                return row, MORE
            timestamp, kind, magic = np.int64(-1), np.int64(-1), data[at + header.MAGIC_AT]
            if magic == 1:
                timestamp = batch[SET_TIMESTAMP] if appended else load_int64(data, at + MESSAGE_TIMESTAMP_AT)
                kind = np.int64(appended)
            if timestamp > MAX_MILLISECONDS or timestamp < -MAX_MILLISECONDS:
                return row, BAD_TIMESTAMP
            end = _append_sized(keys, row, data, at + MESSAGE_KEY_AT[magic], stop)
            if end == NO_ROOM:
                state[AT], state[RECORD], state[USED] = at, number, used
                return row, MORE
            if _append_sized(values, row, data, end, stop) < 0:
                return row, BAD_RECORD
            used += stop - at
            offsets[row], timestamps[row], timestamp_types[row] = offset, timestamp * 1000, kind
            if max_headers is not None:
                headers[0][row + 1] = 0
                headers[2][0] += 1
            row += 1
        at = stop
    state[RECORD], state[USED] = 0, used
    return row, OK


@kernel
def decode_records(
    raw: Any, unpacked: Any, batches: Any, start_offset: Int, end_offset: Int, columns: Any, max_headers: Int,
    state: Any,
) -> Int:  # fmt: skip
    """Write records of `batches` with offsets in [start_offset, end_offset) into Arrow's buffers; return their number.

    `batches` is the table of batches, whose records are in `unpacked` if they were compressed, and otherwise in `raw`.
    Decoding begins at the record in `state[BATCH]` and `state[RECORD]`. Afterwards, `state[ERROR]` is OK if all records
    are written, or MORE if the buffers are full or the next key has no room. Any other value is an error, and
    `state[ERROR_POSITION]` is the batch's position.

    `columns` is (offsets, timestamps in microseconds, timestamp types, keys, values, headers). On entry, all validity
    bits must be zero, and the first end of each column must be 0. Values and headers must have room for all records. If
    `max_headers` is None, headers are left out. Messages of magic 0 and 1 count as records.
    """
    row, error, state[USED] = np.int64(0), OK, 0
    for index in range(state[BATCH], batches.shape[0]):
        batch = batches[index]
        data = unpacked if batch[UNPACKED] else raw
        if batch[MAGIC] < 2:
            row, error = _decode_set(batch, data, start_offset, end_offset, columns, row, max_headers, state)
        else:
            row, error = _decode_batch(batch, data, start_offset, end_offset, columns, row, max_headers, state)
        if error != OK:
            state[BATCH], state[ERROR_POSITION] = index, batch[POSITION]
            break
    state[ERROR] = error
    return row

"""Compiled half of the Avro decoder, which runs a program (`avro_decoder.py`) to read values into columns.

A value must end at the end of its bytes. Every length and count is checked against the available bytes before it is
used. List items that take no bytes, such as nulls, are counted, and their number is limited. If a function that returns
a position fails, it returns a negated error code in place of the position, or NO_ROOM if the columns are full.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiered_stream.formats.columns import column_kernels as slots
from tiered_stream.records.compiled import Int, inlined, kernel

# Operations that read a number or bytes. STRUCT and NULL read no bytes: they write a struct or a null.
BOOL, LONG, NUMBER, FLOAT, DOUBLE, BYTES, FIXED, DECIMAL, ENUM, STRUCT, NULL = range(11)
# Operations that decide which operation runs next: LIST starts a list, NEXT follows an item, UNION reads a branch's
# number, JUMP continues at another operation, FAIL rejects a branch that cannot be read, DEFAULT continues with the
# bytes of a default, RESUME returns to the value's bytes after the default, DONE ends the value.
LIST, NEXT, UNION, JUMP, FAIL, DEFAULT, RESUME, DONE = range(11, 19)

# Columns of the operations. A, B and C mean, by operation:
#   LONG          A: whether an int is written. B: factor.
#   NUMBER        A: whether an int is written. B: whether the column is of floats.
#   BYTES         A: whether the bytes are text. B: whether they are a number.
#   FIXED         A: size. B: whether the bytes are a number.
#   DECIMAL       A: precision. B: size, or -1 if the length is written before the bytes.
#   ENUM, UNION   A: position in the table. B: number of entries.
#   LIST          A: operation after the list. B: whether each item takes bytes. C: node of a map's keys, or -1.
#   JUMP          A: operation to continue with.
#   FAIL          A: index of the error text in `AvroProgram.mismatches`.
#   DEFAULT       A: position of the default's bytes in the texts. B: number of these bytes.
OPERATION, NODE, A, B, C = range(5)

# Columns of the stack, which has a row for each list that is being read: the index of the list's LIST operation, the
# number of items that are left in the block, the block's end (-1: not stated), and the first slot of a map's keys.
AT, LEFT, BLOCK_END, FIRST = range(4)
STACK_COLUMNS = 4

# Error codes. The first two are negated results of `unsigned_varint`.
END_OF_VALUE, BAD_NUMBER, BAD_BOOL, BAD_SIZE, BAD_COUNT, BAD_BLOCK, BAD_BRANCH, BAD_SYMBOL, BAD_TEXT = range(1, 10)
BAD_DECIMAL, BAD_TIMESTAMP, DUPLICATE_KEY, TRAILING, LONG_NUMBER, MISMATCH = range(10, 16)
MAX_NUMBER_BYTES = 400
"""Maximum number of bytes of a decimal that becomes a text or a DOUBLE.

The time to write its digits grows with the square of the number of bytes.
"""
MAX_EMPTY_ITEMS = 1 << 16
"""Maximum number of list items that take no bytes, such as nulls, in one Avro value."""
ERROR_TEXTS = {
    END_OF_VALUE: "the bytes end within it",
    BAD_NUMBER: "a number is longer than its type",
    BAD_BOOL: "a boolean is neither 0 nor 1",
    BAD_SIZE: "a length is negative, or more than the bytes that are left",
    BAD_COUNT: (
        "a list has more items than the bytes that are left can hold, or items without bytes, of which a value has at "
        f"most {MAX_EMPTY_ITEMS:,}"
    ),
    BAD_BLOCK: "a block of items is not as long as it says",
    BAD_BRANCH: "the union has no such branch",
    BAD_SYMBOL: "the enum has no such symbol, and no default",
    BAD_TEXT: "a string is not UTF-8",
    BAD_DECIMAL: "a decimal has more digits than its precision, which is at most 38",
    BAD_TIMESTAMP: "a timestamp does not fit into microseconds",
    DUPLICATE_KEY: "a map has a key twice, or more than a million keys",
    TRAILING: "there are bytes after its end",
    LONG_NUMBER: f"a decimal has more than {MAX_NUMBER_BYTES} bytes",
}


@inlined
def _after(result: Int, at: Int) -> Int:
    """Return the position `at` if `result` is DONE, because a value was appended to a column; otherwise `result`."""
    return at if result == slots.DONE else result


@inlined
def _integer(data: Any, at: Int, stop: Int, is_int: Int) -> Any:
    """Read the Avro int (if `is_int`) or long at the position `at` of `data`; return its value and the next position.

    If the number does not end before `stop`, or does not fit its type, a negated error code is returned in place of the
    position.
    """
    start = at
    bits, at = slots.unsigned_varint(data, at, stop)
    value = slots.from_zigzag(bits)
    if is_int and at >= 0 and (at - start > 5 or value != np.int64(np.int32(value))):
        return value, np.int64(-BAD_NUMBER)
    return value, at


@inlined
def _long(data: Any, at: Int, stop: Int, operation: Any, columns: Any) -> Int:
    value, at = _integer(data, at, stop, operation[A])
    node = operation[NODE]
    if at < 0 or node < 0:
        return at
    if operation[B] != 1:
        if value > (2**63 - 1) // 1000 or value < -((2**63 - 1) // 1000):
            return np.int64(-BAD_TIMESTAMP)
        value *= operation[B]
    return _after(slots.append_long(columns, node, value), at)


@inlined
def _double(data: Any, at: Int, stop: Int, operation: Any, columns: Any) -> Int:
    """Append the float, double or integer at `data[at]` to a floating-point column; return the position after it.

    `operation` names the written type and the column (-1: the number is skipped). If the number is malformed, a negated
    error code is returned in place of the position; if the column is full, NO_ROOM.
    """
    kind, node, value = operation[OPERATION], operation[NODE], 0.0
    if kind == NUMBER:
        number, at = _integer(data, at, stop, operation[A])
        if at < 0:
            return at
        value = np.float64(np.float32(number)) if operation[B] else np.float64(number)
    else:
        size = 4 if kind == FLOAT else 8
        if stop - at < size:
            return np.int64(-END_OF_VALUE)
        value = slots.load_float(data, at) if kind == FLOAT else slots.load_double(data, at)
        at += size
    return at if node < 0 else _after(slots.append_double(columns, node, value), at)


@inlined
def _sized(data: Any, at: Int, stop: Int, size: Int) -> Any:
    """Return the start and the end of the `size` bytes at the position `at`, or a negated error code in place of both.

    If `size` is -1, the number of bytes is read first, at `at`. The bytes must not go beyond the position `stop`.
    """
    if size < 0:
        size, at = _integer(data, at, stop, 0)
        if at < 0:
            return at, at
    if size < 0 or size > stop - at:
        return np.int64(-BAD_SIZE), np.int64(-BAD_SIZE)
    return at, at + size


@inlined
def _bytes(data: Any, at: Int, stop: Int, operation: Any, columns: Any) -> Int:
    fixed, node = operation[OPERATION] == FIXED, operation[NODE]
    at, end = _sized(data, at, stop, operation[A] if fixed else -1)
    if end < 0 or node < 0:
        return end
    if operation[B] and end - at > MAX_NUMBER_BYTES:
        return np.int64(-LONG_NUMBER)
    if not fixed and operation[A] and not slots.is_utf8(data, at, end):
        return np.int64(-BAD_TEXT)
    return _after(slots.append_bytes(columns, node, data, at, end - at), end)


@kernel
def _decimal(data: Any, at: Int, stop: Int, operation: Any, powers: Any, columns: Any) -> Int:
    """Append the decimal at `data[at]` to a column; return the position after it, a negated error code or NO_ROOM.

    A decimal is a big-endian two's complement number of any length. `operation` names its length, its precision and the
    column (-1: the decimal is skipped). `powers` has the powers of ten, each as its upper and lower 64 bits.
    """
    at, end = _sized(data, at, stop, operation[B])
    node = operation[NODE]
    if end < 0 or node < 0:
        return end
    sign = np.uint64(0xFFFFFFFFFFFFFFFF) if at < end and data[at] & 0x80 else np.uint64(0)
    high, low = sign, sign
    for index in range(at, end):
        if end - index > 16:
            if np.uint64(data[index]) != sign & np.uint64(0xFF):
                return np.int64(-BAD_DECIMAL)
            continue
        high = high << np.uint64(8) | low >> np.uint64(56)
        low = low << np.uint64(8) | np.uint64(data[index])
    if end - at >= 16 and (high ^ sign) >> np.uint64(63):
        return np.int64(-BAD_DECIMAL)
    upper, lower = high ^ sign, low ^ sign
    if sign:  # a negative number's complement is its absolute value minus one
        lower += np.uint64(1)
        upper += np.uint64(lower == 0)
    power = powers[operation[A]]
    if upper > power[0] or (upper == power[0] and lower >= power[1]):
        return np.int64(-BAD_DECIMAL)
    return _after(slots.append_decimal(columns, node, np.int64(high), low), end)


@inlined
def _enum(data: Any, at: Int, stop: Int, operation: Any, table: Any, texts: Any, columns: Any) -> Int:
    symbol, at = _integer(data, at, stop, 1)
    node = operation[NODE]
    if at < 0:
        return at
    if symbol < 0 or symbol >= operation[B]:
        return np.int64(-BAD_SYMBOL)
    row = operation[A] + 2 * symbol
    if node < 0:
        return at
    if table[row] < 0:
        return np.int64(-BAD_SYMBOL)
    return _after(slots.append_bytes(columns, node, texts, table[row], table[row + 1]), at)


@kernel
def _block(data: Any, at: Int, stop: Int, takes_bytes: Int, frame: Any, empty: Int) -> Int:
    """Read the head of a list's next block at the position `at`; return the next position, or a negated error code.

    A block is a number of items, perhaps the size of the items, and the items. `frame` is the list's row in the stack
    of open lists. `frame[LEFT]` becomes the number of items, which is 0 after the last block. `frame[BLOCK_END]`
    becomes the position of the block's end, or -1 if the block does not state its size.

    If each item takes bytes (`takes_bytes`), the number of items is limited by the bytes up to `stop`. Otherwise it is
    limited by MAX_EMPTY_ITEMS, and `empty` is the number of items without any bytes that the value has so far.
    """
    if frame[BLOCK_END] >= 0 and frame[BLOCK_END] != at:
        return np.int64(-BAD_BLOCK)
    count, at = _integer(data, at, stop, 0)
    frame[BLOCK_END] = -1
    if at < 0:
        return at
    if count < 0:
        size, at = _integer(data, at, stop, 0)
        if at < 0:
            return at
        if size < 0 or size > stop - at:
            return np.int64(-BAD_BLOCK)
        frame[BLOCK_END] = at + size
        count = -count
    # The smallest int64 stays negative when it is negated.
    if count < 0 or count > (stop - at if takes_bytes else MAX_EMPTY_ITEMS - empty):
        return np.int64(-BAD_COUNT)
    frame[LEFT] = count
    return at


@kernel
def _close_list(operation: Any, columns: Any, first: Int, key_table: Any) -> Int:
    """Append a list or a map to its column; return DONE, NO_ROOM or a negated error code.

    The items are already in the column's child. `operation` is the LIST operation, which names the column (-1: nothing
    is appended). For a map, `first` is the index of its first key. The keys of a map must differ, and `key_table` is
    working memory for this check.
    """
    if operation[NODE] < 0:
        return np.int64(slots.DONE)
    if operation[C] >= 0 and slots.has_duplicate_key(columns, operation[C], first, key_table):
        return np.int64(-DUPLICATE_KEY)
    return slots.append_list(columns, operation[NODE])


@kernel
def _list(data: Any, at: Int, stop: Int, index: Int, operations: Any, columns: Any, stack: Any, key_table: Any) -> Any:
    """Run the operation `index`, which is LIST or NEXT. LIST begins a list, and NEXT continues a list after an item.

    Returns the position after the bytes that were read at `at` (or a negated error code or NO_ROOM), and the index of
    the next operation. `stack` has a row for each open list. Its first row has the number of open lists, and the number
    of list items without any bytes that the value has so far.
    """
    depth = stack[0, AT]
    if operations[index, OPERATION] == LIST:
        depth += 1
        key = operations[index, C]
        stack[depth, AT], stack[depth, LEFT], stack[depth, BLOCK_END] = index, 0, -1
        stack[depth, FIRST] = columns[0][key, slots.SLOTS] if key >= 0 else 0
    else:
        stack[depth, LEFT] -= 1
    stack[0, AT] = depth
    frame = stack[depth]
    opened = frame[AT]
    listed = operations[opened]
    if frame[LEFT] == 0:
        at = _block(data, at, stop, listed[B], frame, stack[0, LEFT])
        if at < 0:
            return at, index
        if listed[B] == 0:
            stack[0, LEFT] += frame[LEFT]
        if frame[LEFT] == 0:
            stack[0, AT] = depth - 1
            return _after(_close_list(listed, columns, frame[FIRST], key_table), at), listed[A]
    return at, opened + 1


@inlined
def _branch(data: Any, at: Int, stop: Int, operation: Any, table: Any) -> Any:
    """Read the number of a union's branch at `data[at]`; return the next position, and the next operation's index.

    `table` has the index of each branch's first operation, from the position that the UNION operation `operation` names
    on. If the number is malformed or no branch has it, a negated error code is returned in place of the position.
    """
    branch, at = _integer(data, at, stop, 0)
    if at < 0:
        return at, np.int64(0)
    if branch < 0 or branch >= operation[B]:
        return np.int64(-BAD_BRANCH), np.int64(0)
    return at, np.int64(table[operation[A] + branch])


@inlined
def _bool(data: Any, at: Int, stop: Int, node: Int, columns: Any) -> Int:
    if at >= stop or data[at] > 1:
        return np.int64(-END_OF_VALUE if at >= stop else -BAD_BOOL)
    return at + 1 if node < 0 else _after(slots.append_bool(columns, node, data[at] == 1), at + 1)


@inlined
def _simple(data: Any, at: Int, stop: Int, operation: Any, program: Any, columns: Any) -> Int:
    """Run an operation that reads one value or writes a struct or a null; return the position after the value's bytes.

    The value is at `data[at]`. It is appended to the column that `operation` names (-1: the value is skipped).
    `program` is (operations, table, texts, powers of ten). If the operation fails, a negated error code is returned in
    place of the position; if the columns are full, NO_ROOM.
    """
    _, table, texts, powers = program
    kind, node = operation[OPERATION], operation[NODE]
    if kind == BOOL:
        return _bool(data, at, stop, node, columns)
    if kind == LONG:
        return _long(data, at, stop, operation, columns)
    if kind <= DOUBLE:
        return _double(data, at, stop, operation, columns)
    if kind <= FIXED:
        return _bytes(data, at, stop, operation, columns)
    if kind == ENUM:
        return _enum(data, at, stop, operation, table, texts, columns)
    if kind == DECIMAL:
        return _decimal(data, at, stop, operation, powers, columns)
    if node < 0:
        return at
    return _after(slots.append_struct(columns, node) if kind == STRUCT else slots.append_null(columns, node), at)


@kernel
def _value(data: Any, at: Int, stop: Int, program: Any, columns: Any, stack: Any, key_table: Any) -> Int:
    """Read the Avro value in `data[at:stop]` into the columns; return 0, NO_ROOM if they are full, or an error number.

    The error number is the error code plus 256 times the index of the operation that failed. `program` is (operations,
    table, texts, powers of ten). `stack` and `key_table` are working memory.
    """
    operations, table, texts, _ = program
    source, end, resume_at = data, stop, at
    index = next_index = np.int64(0)
    stack[0, AT] = stack[0, LEFT] = 0
    while at >= 0:
        index = next_index
        operation = operations[index]
        kind = operation[OPERATION]
        next_index = index + 1
        if kind < LIST:
            at = _simple(source, at, end, operation, program, columns)
        elif kind <= NEXT:
            at, next_index = _list(source, at, end, index, operations, columns, stack, key_table)
        elif kind == UNION:
            at, next_index = _branch(source, at, end, operation, table)
        elif kind == JUMP:
            next_index = operation[A]
        elif kind == FAIL:
            at = np.int64(-MISMATCH)
        elif kind == DEFAULT:
            resume_at, at = at, operation[A]
            source, end = texts, at + operation[B]
        elif kind == RESUME:
            source, end, at = data, stop, resume_at
        elif at == stop:
            return np.int64(0)
        else:
            at = np.int64(-TRAILING)
    return at if at == slots.NO_ROOM else 256 * index - at


@kernel
def decode_values(slices: Any, program: Any, first: Int, columns: Any, room: Any, errors: Any) -> Int:
    """Append Avro values from row `first` on until the columns are full; return the row after the last appended row.

    `slices` is (bytes, starts of values, ends of values, whether values are not null). `program` is (operations, table,
    texts, powers of ten), and `room` is (stack, key table). A value that cannot be decoded becomes null. `errors[row]`
    then becomes the error code plus 256 times the index of the operation that failed; otherwise it is 0.
    """
    data, starts, stops, valid = slices
    stack, key_table = room
    for row in range(first, starts.shape[0]):
        result = np.int64(slots.NULL_VALUE)
        if valid[row]:
            result = _value(data, np.int64(starts[row]), np.int64(stops[row]), program, columns, stack, key_table)
        if not slots.end_row(columns, row, first, result, errors):
            return np.int64(row)
    return np.int64(starts.shape[0])

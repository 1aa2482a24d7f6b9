"""Compiled half of the protobuf decoder, which writes messages from their bytes into columns.

A message's fields come in any order, and the last value of a field counts. So a message is scanned once, to mark the
position of each field's value, and is then written field by field. A second scan finds the values of a repeated field.

Google's library decodes messages that are "not plain", one by one. A message is not plain if it has, for example:

- malformed bytes, and texts that are not UTF-8
- groups, and a message in several pieces
- enum numbers without a name
- a map with a duplicate key
- no value for a field that is required or has a default
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiered_stream.formats.columns import column_kernels as slots
from tiered_stream.records.compiled import Int, inlined, kernel
from tiered_stream.records.intrinsics import load_uint32_le, load_uint64_le

# Codecs, by which a field's value is read.
INT32, INT64, SINT32, SINT64, BOOL, ENUM, FIXED32, FIXED64, FLOAT, DOUBLE, TEXT, BYTES, TIME, MESSAGE, EMPTY = range(15)
# How often a field occurs. ENTRY is a field of a map's entry: the field must occur, and the entry must not have unknown
# fields.
ONCE, ENTRY, REPEATED, MAP = range(4)

# Columns of the fields. The fields of a message follow each other, sorted by number.
#   IS_NEEDED whether a message without the field is not plain; otherwise the field becomes null
#   A, B      for an enum, first row and number of rows of its numbers in the table; for a map, A: codec of its keys;
#             for a time, A: whether its fields have the numbers and types of Google's own messages
#   SIZE      bytes of a number of fixed size, otherwise 0
NUMBER, CODEC, WIRE, NODE, OCCURRENCE, ONEOF, PRESENCE, IS_NEEDED, MESSAGE_INDEX, A, B, SIZE = range(12)
FIELD_COLUMNS = 12
# Columns of the messages: first field, field after the last, and the node of the message's struct.
FIRST, LAST, STRUCT_NODE = range(3)
# Columns of the marks, which have a row for each field: the positions at which its value begins and ends.
AT, STOP = range(2)
MARK_COLUMNS = 2
# Columns of the stack, which has a row for each message that is being written. CURSOR is the position at which the
# search for the next message of a repeated field begins.
MESSAGE_OF, BEGIN, END, FIELD, CURSOR, LIST_FIRST = range(6)
STACK_COLUMNS = 6

NOT_PLAIN = 1
"""Result of a kernel for a message that Google's library must decode."""
LONGEST_TAG = 5
"""Maximum number of bytes in a tag or a length prefix. Google's library decodes a message with a longer one."""
VARINT, EIGHT, SIZED, FOUR = 0, 1, 2, 5
"""Numbers of the wire types that kernels decode. The other wire types are groups, which Google's library decodes."""
MAX_SECONDS = 9_000_000_000_000
"""Maximum seconds of a time that kernels decode; its microseconds fit into an int64."""


@inlined
def _tag(data: Any, at: Int, stop: Int) -> Any:
    """Read the tag at `data[at]`; return (field number, wire type, start of the value, end of the value).

    The end is -1 if the tag or the value is malformed, or if Google's library must decode the message.
    """
    tag, begin = slots.unsigned_varint(data, at, stop)
    number, wire = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
    is_plain = begin >= 0 and begin - at <= LONGEST_TAG and 1 <= number < 1 << 29
    at = begin
    if not is_plain:
        return number, wire, np.int64(-1), np.int64(-1)
    end = np.int64(-1)
    if wire == VARINT:
        _, end = slots.unsigned_varint(data, at, stop)
    elif wire == SIZED:
        size, at = slots.unsigned_varint(data, at, stop)
        if at >= 0 and at - begin <= LONGEST_TAG and size <= np.uint64(stop - at):
            end = at + np.int64(size)
    elif wire == EIGHT:
        end = at + 8
    elif wire == FOUR:
        end = at + 4
    return number, wire, at, (end if end <= stop else np.int64(-1))


@inlined
def _find_row(table: Any, first: Int, last: Int, number: Int) -> Int:
    """Return the index of the row of `table` whose first column is `number`, or -1 if there is none.

    Only rows from `first` to `last` (exclusive) are searched. They must be sorted by their first column.
    """
    low, high = np.int64(first), np.int64(last)
    while low < high:
        middle = (low + high) // 2
        if table[middle, NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < last and table[low, NUMBER] == number else np.int64(-1)


@kernel
def _mark(marks: Any, fields: Any, first: Int, last: Int, field: Int, begin: Int, end: Int, wire: Int) -> Any:
    """Write the start (`begin`) and the end of a field's value into `marks`; return whether the message is plain.

    If it is not plain, Google's library must decode it. `field` is the index of the field's row in `fields`. The rows
    of the message's fields are from `first` to `last` (exclusive). `wire` is the wire type of the value. For a repeated
    field, `begin` is the position of a tag, and only the position of the first tag is written.
    """
    row = fields[field]
    if wire != row[WIRE] and not (wire == SIZED and row[OCCURRENCE] == REPEATED and row[CODEC] < TEXT):
        # Google's library treats a field with another wire type as an unknown field.
        return row[OCCURRENCE] != ENTRY
    if row[OCCURRENCE] >= REPEATED:
        if marks[field, AT] < 0:
            marks[field, AT] = begin
        return True
    # The library also checks values that a later value replaces, such as a text that is not UTF-8.
    if row[CODEC] >= TEXT and (marks[field, AT] >= 0 or (row[CODEC] == EMPTY and end > begin)):
        return False
    if row[ONEOF] >= 0:
        for other in range(first, last):
            if fields[other, ONEOF] == row[ONEOF] and marks[other, AT] >= 0:
                if fields[other, CODEC] >= TEXT:
                    return False
                marks[other, AT] = -1
    marks[field, AT], marks[field, STOP] = begin, end
    return True


@kernel
def _mark_fields(data: Any, at: Int, stop: Int, fields: Any, first: Int, last: Int, marks: Any) -> Any:
    """Write the start and the end of each field's value in the message `data[at:stop]` into `marks`.

    Return False if Google's library must decode the message. The rows of the message's fields in `fields` are from
    `first` to `last` (exclusive). The start is -1 for a field that the message lacks. For a repeated field, the start
    is the position of its first tag.
    """
    for field in range(first, last):
        marks[field, AT] = -1
    hint = first
    while at < stop:
        number, wire, begin, end = _tag(data, at, stop)
        if end < 0:
            return False
        field = hint
        if hint >= last or fields[hint, NUMBER] != number:
            field = _find_row(fields, first, last, number)
        if field >= 0:
            # The mark of a repeated field is at the tag, because the second scan begins there.
            repeated = fields[field, OCCURRENCE] >= REPEATED
            if not _mark(marks, fields, first, last, field, at if repeated else begin, end, wire):
                return False
            hint = field if repeated else field + 1
        elif first < last and fields[first, OCCURRENCE] == ENTRY:
            return False
        at = end
    return True


@inlined
def _integer(value: Any, codec: Int) -> Int:
    """Return the signed integer that the uint64 `value` encodes in a field with the codec `codec`."""
    if codec == SINT32:
        low = np.int64(np.uint32(value))
        return (low >> 1) ^ -(low & 1)
    if codec == SINT64:
        return slots.from_zigzag(value)
    if codec == INT64 or codec >= FIXED64:
        return np.int64(value)
    return np.int64(np.int32(np.uint32(value & np.uint64(0xFFFFFFFF))))


@kernel
def _symbol(columns: Any, row: Any, number: Int, table: Any, texts: Any) -> Int:
    at = _find_row(table, row[A], row[A] + row[B], number)
    if at < 0:
        return np.int64(NOT_PLAIN)
    return slots.append_bytes(columns, row[NODE], texts, table[at, 1], table[at, 2])


@kernel
def _time(data: Any, at: Int, stop: Int, row: Any, columns: Any) -> Int:
    """Append the `Timestamp` or `Duration` in `data[at:stop]` in microseconds; return DONE, NOT_PLAIN or NO_ROOM.

    `row` is the field's row in the table of fields. NO_ROOM means that the columns are full. NOT_PLAIN means that
    Google's library must decode the message. The time has an unknown field or the same field twice then, or its seconds
    exceed MAX_SECONDS, or its message type has other field numbers or types than Google's.
    """
    seconds, nanos, seen = np.int64(0), np.int64(0), np.int64(0)
    if row[A] == 0 and at < stop:
        return np.int64(NOT_PLAIN)
    while at < stop:
        number, wire, begin, at = _tag(data, at, stop)
        if at < 0 or wire != VARINT or number > 2 or seen & number:
            return np.int64(NOT_PLAIN)
        value, _ = slots.unsigned_varint(data, begin, stop)
        seen |= number
        if number == 1:
            seconds = np.int64(value)
        else:
            nanos = _integer(value, INT32)
    if seconds > MAX_SECONDS or seconds < -MAX_SECONDS:
        return np.int64(NOT_PLAIN)
    micros = nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
    return slots.append_long(columns, row[NODE], seconds * 1_000_000 + micros)


@kernel
def _sized_value(data: Any, at: Int, stop: Int, row: Any, columns: Any) -> Int:
    """Append the text, bytes or time in `data[at:stop]` to the field's column; return DONE, NOT_PLAIN or NO_ROOM.

    `row` is the field's row in the table of fields. An empty text, or no bytes, becomes null if the field has no
    presence. NOT_PLAIN means that Google's library must decode the message, and NO_ROOM that the columns are full.
    """
    codec, node = row[CODEC], row[NODE]
    if codec == TIME:
        return _time(data, at, stop, row, columns)
    if at == stop and row[OCCURRENCE] == ONCE and not row[PRESENCE]:
        return slots.append_null(columns, node)
    if codec == TEXT and not slots.is_utf8(data, at, stop):
        return np.int64(NOT_PLAIN)
    return slots.append_bytes(columns, node, data, at, stop - at)


@kernel
def _number(data: Any, at: Int, stop: Int, row: Any, columns: Any, table: Any, texts: Any) -> Int:
    """Append the number, boolean or enum in `data[at:stop]` to the field's column; return DONE, NOT_PLAIN or NO_ROOM.

    `row` is the field's row in the table of fields. Zero, also as an enum's number, and false become null if the field
    has no presence. Otherwise, an enum becomes its name: `table` has the numbers and the places of the names in
    `texts`. NOT_PLAIN means that the enum has no such number, so Google's library must decode the message. NO_ROOM
    means that the columns are full.
    """
    codec, node = row[CODEC], row[NODE]
    bits = np.uint64(0)
    if codec <= ENUM:
        bits, _ = slots.unsigned_varint(data, at, stop)
    else:
        bits = load_uint64_le(data, at) if stop - at == 8 else load_uint32_le(data, at)
    value = np.int64(bits != 0) if codec == BOOL else _integer(bits, INT64 if codec == DOUBLE else codec)
    if value == 0 and row[OCCURRENCE] == ONCE and not row[PRESENCE]:
        return slots.append_null(columns, node)
    if codec == ENUM:
        return _symbol(columns, row, value, table, texts)
    if codec == BOOL:
        return slots.append_bool(columns, node, value != 0)
    if codec == FLOAT:
        return slots.append_double(columns, node, slots.load_float(data, at))
    if codec == DOUBLE:
        return slots.append_double(columns, node, slots.load_double(data, at))
    return slots.append_long(columns, node, value)


@inlined
def _value(data: Any, at: Int, stop: Int, row: Any, columns: Any, table: Any, texts: Any) -> Int:
    if row[CODEC] <= DOUBLE:
        return _number(data, at, stop, row, columns, table, texts)
    return _sized_value(data, at, stop, row, columns)


@kernel
def _packed(data: Any, at: Int, stop: Int, row: Any, columns: Any, table: Any, texts: Any) -> Int:
    """Append all numbers in the packed value `data[at:stop]` to the field's column; return DONE, NOT_PLAIN or NO_ROOM.

    `row` is the field's row in the table of fields. `table` and `texts` have the names of enums. NOT_PLAIN means that
    Google's library must decode the message, and NO_ROOM that the columns are full.
    """
    size = row[SIZE]
    while at < stop:
        end = at + size
        if size == 0:
            _, end = slots.unsigned_varint(data, at, stop)
        if end < 0 or end > stop:
            return np.int64(NOT_PLAIN)
        error = _number(data, at, end, row, columns, table, texts)
        if error != slots.DONE:
            return error
        at = end
    return np.int64(slots.DONE)


@kernel
def _list(data: Any, at: Int, stop: Int, row: Any, columns: Any, table: Any, texts: Any) -> Int:
    """Append the list of all values of a repeated field; return DONE, NOT_PLAIN or NO_ROOM.

    `at` is the position of the field's first tag, and the message ends at `stop`. If the message lacks the field, `at`
    is -1 and the list is empty. `row` is the field's row in the table of fields. `table` and `texts` have the names of
    enums. NOT_PLAIN means that Google's library must decode the message, and NO_ROOM that the columns are full.
    """
    while 0 <= at < stop:
        number, wire, begin, end = _tag(data, at, stop)
        if number == row[NUMBER]:
            error = np.int64(slots.DONE)
            if wire == row[WIRE]:
                error = _value(data, begin, end, row, columns, table, texts)
            elif wire == SIZED and row[CODEC] < TEXT:
                error = _packed(data, begin, end, row, columns, table, texts)
            if error != slots.DONE:
                return error
        at = end
    return slots.append_list(columns, row[NODE] - 1)


@kernel
def _simple(data: Any, frame: Any, field: Int, row: Any, marks: Any, columns: Any, table: Any, texts: Any) -> Int:
    """Append the value of a field that has no message as its value; return DONE, NOT_PLAIN or NO_ROOM.

    `row` is row `field` of the table of fields, and `frame` is the row of the surrounding message in the stack of open
    messages. `marks` has the positions of the field's value. `table` and `texts` have the names of enums. NOT_PLAIN
    means that Google's library must decode the message, and NO_ROOM that the columns are full.
    """
    at = marks[field, AT]
    if row[CODEC] == EMPTY and (at >= 0 or not row[IS_NEEDED]):
        return np.int64(slots.DONE)
    if row[OCCURRENCE] == REPEATED:
        return _list(data, at, frame[END], row, columns, table, texts)
    if at >= 0:
        return _value(data, at, marks[field, STOP], row, columns, table, texts)
    if row[IS_NEEDED]:
        return np.int64(NOT_PLAIN)
    return slots.append_null(columns, row[NODE])


@kernel
def _close_list(row: Any, first: Int, columns: Any, key_table: Any) -> Int:
    """Append one list or map to a field's column. Its items are already in the column's child, from index `first` on.

    Args:
        row: the field's row in the table of fields.
        key_table: working memory for the comparison of a map's keys.

    Returns:
        NOT_PLAIN if the field is a map with several entries, and two keys are equal or the keys are not texts. Nothing
            is appended then, because Google's library must decode the message. NO_ROOM if the column is full. DONE if
            the list or map was appended.
    """
    node = row[NODE] - 1
    # A map with several keys that are not texts is left to the library.
    several = row[OCCURRENCE] == MAP and columns[0][row[NODE], slots.SLOTS] - first > 1
    if several and (row[A] != TEXT or slots.has_duplicate_key(columns, row[NODE] + 1, first, key_table)):
        return np.int64(NOT_PLAIN)
    return slots.append_list(columns, node)


@inlined
def _push(stack: Any, depth: Int, message: Int, begin: Int, end: Int) -> None:
    frame = stack[depth]
    frame[MESSAGE_OF], frame[BEGIN], frame[END], frame[FIELD], frame[CURSOR] = message, begin, end, -1, -1


@kernel
def _next_message(data: Any, frame: Any, row: Any, field: Int, marks: Any, columns: Any) -> Any:
    """Return the start and the end of the next message that is a value of a field; the start is -1 after the last one.

    `row` is row `field` of the table of fields, and `marks` has the positions of the field's value. `frame` is the row
    of the surrounding message in the stack of open messages. The call advances CURSOR and FIELD in `frame`.
    """
    if row[OCCURRENCE] < REPEATED:
        frame[FIELD] = field + 1
        return marks[field, AT], marks[field, STOP]
    if frame[CURSOR] < 0:
        frame[CURSOR] = marks[field, AT] if marks[field, AT] >= 0 else frame[END]
        frame[LIST_FIRST] = columns[0][row[NODE], slots.SLOTS]
    while frame[CURSOR] < frame[END]:
        number, wire, begin, end = _tag(data, frame[CURSOR], frame[END])
        frame[CURSOR] = end
        if number == row[NUMBER] and wire == SIZED:
            return begin, end
    frame[FIELD], frame[CURSOR] = field + 1, -1
    return np.int64(-1), np.int64(-1)


@kernel
def _message(data: Any, at: Int, stop: Int, program: Any, columns: Any, room: Any) -> Int:
    """Write the message `data[at:stop]` into the columns; return DONE, NOT_PLAIN or NO_ROOM.

    `program` is (messages, fields, table, texts), and `room` is (marks, stack, key table). NOT_PLAIN means that
    Google's library must decode the message, and NO_ROOM that the columns are full.
    """
    messages, fields, table, texts = program
    marks, stack, key_table = room
    depth = np.int64(0)
    _push(stack, 0, 0, at, stop)
    while depth >= 0:
        frame = stack[depth]
        message = messages[frame[MESSAGE_OF]]
        field = frame[FIELD]
        if field < 0:
            if not _mark_fields(data, frame[BEGIN], frame[END], fields, message[FIRST], message[LAST], marks):
                return np.int64(NOT_PLAIN)
            if slots.append_struct(columns, message[STRUCT_NODE]) != slots.DONE:
                return np.int64(slots.NO_ROOM)
            frame[FIELD] = message[FIRST]
        elif field == message[LAST]:
            depth -= 1
        else:
            row, error = fields[field], np.int64(slots.DONE)
            if row[CODEC] != MESSAGE or (row[OCCURRENCE] < REPEATED and marks[field, AT] < 0):
                error = _simple(data, frame, field, row, marks, columns, table, texts)
                frame[FIELD] = field + 1
            else:
                begin, end = _next_message(data, frame, row, field, marks, columns)
                if begin >= 0:
                    depth += 1
                    _push(stack, depth, row[MESSAGE_INDEX], begin, end)
                else:
                    error = _close_list(row, frame[LIST_FIRST], columns, key_table)
            if error != slots.DONE:
                return error
    return np.int64(slots.DONE)


@kernel
def decode_messages(slices: Any, program: Any, first: Int, columns: Any, room: Any, errors: Any) -> Int:
    """Append messages from row `first` on until the columns are full; return the row after the last appended row.

    `slices` is (bytes, starts of values, ends of values, whether values are not null). `program` is (messages, fields,
    table, texts), and `room` is (marks, stack, key table). A message that Google's library must decode becomes null,
    and `errors[row]` becomes NOT_PLAIN for it.
    """
    data, starts, stops, valid = slices
    for row in range(first, starts.shape[0]):
        result = np.int64(slots.NULL_VALUE)
        if valid[row]:
            result = _message(data, np.int64(starts[row]), np.int64(stops[row]), program, columns, room)
        if not slots.end_row(columns, row, first, result, errors):
            return np.int64(row)
    return np.int64(starts.shape[0])

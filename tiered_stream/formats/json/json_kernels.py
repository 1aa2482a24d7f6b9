"""Compiled half of the JSON decoder, which writes the documents whose meaning is certain into columns.

A container is an object, a map or an array. A document is read once, without recursion: `stack` has a row for each open
container. The fields of objects usually have the same order in all documents, so `plan` remembers this order. A key is
first compared with the field that was at its place in an earlier document (`FOLLOWS`, `BEGINS`). If this field has the
key as its name, no other field is compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiered_stream.formats.columns import column_kernels as slots
from tiered_stream.formats.json import json_text_kernels as text
from tiered_stream.records.compiled import Int, inlined, kernel

# Forms of a column, by the JSON values that it holds.
OTHER, BOOLEAN, INTEGER, DOUBLE, FLOAT, DECIMAL, STRING, DATE, TIMESTAMP, LOCAL_TIMESTAMP, OBJECT, MAP, ARRAY = range(
    13
)

# Columns of `plan`, which has a row for each node.
#   FORM           the column's form
#   OPENING        first byte of a container, -1 for other nodes
#   NAME_AT, _SIZE place of a field's name in `names`, with its quotes
#   FOLLOWS        field that followed this field in an earlier document; -1: none yet
#   BEGINS         first field of this object in an earlier document; -1: none yet
#   FIELDS         number of an object's fields
#   SCALE          scale of a decimal; for a timestamp 1 if texts without a zone are in UTC, the session's time zone
#   LIMIT          least unscaled value that is too large for a decimal
FORM, OPENING, NAME_AT, NAME_SIZE, FOLLOWS, BEGINS, FIELDS, SCALE, LIMIT = range(9)

# Columns of `stack`: the container's node (-1: no column holds the container), the field of the container's last key,
# the number of its keys that have a field, and the byte that closes the container.
NODE, PREVIOUS, FOUND, CLOSING = range(4)
STACK_SHAPE = (text.MAX_NESTING, 4)

_MAX_SECONDS = 9_000_000_000_000


@inlined
def _append_decimal(columns: Any, plan: Any, node: Int, mantissa: Int, exponent: Int, negative: Any) -> Int:
    shift = exponent + plan[node, SCALE]
    if mantissa == 0:
        shift = np.int64(0)
    if shift < 0 or shift > 18:
        return text.DOUBTFUL
    for _ in range(shift):
        if mantissa > 10**17:
            return text.DOUBTFUL
        mantissa *= 10
    if mantissa >= plan[node, LIMIT]:
        return text.DOUBTFUL
    value = -mantissa if negative else mantissa
    return slots.append_decimal(columns, node, value >> 63, np.uint64(value))


@inlined
def _append_number(columns: Any, plan: Any, data: Any, at: Int, stop: Int, node: Int) -> Int:
    """Append the number at `data[at]` to column `node` of `columns`; return the position after the number.

    `plan` has the type of each node's column, and the document ends at the position `stop`. Returns DOUBTFUL if it is
    not certain which value the column must get, and NO_ROOM if the columns are full.
    """
    begin, form = at, plan[node, FORM]
    mantissa, exponent, negative, integer, at = text.read_number(data, at, stop)
    if at < 0:
        return at
    result = text.DOUBTFUL
    if form in (INTEGER, TIMESTAMP) and integer:
        value = -mantissa if negative else mantissa
        if form == INTEGER and columns[0][node, slots.LOW] <= value <= columns[0][node, slots.HIGH]:
            result = slots.append_long(columns, node, value)
        elif form == TIMESTAMP and mantissa < _MAX_SECONDS:
            result = slots.append_long(columns, node, value * 1000000)
    elif form in (DOUBLE, FLOAT):
        real, certain = (
            text.nearest_double(mantissa, exponent) if form == DOUBLE else text.nearest_float(mantissa, exponent)
        )
        if certain:
            # Jackson reads the integer -0 as 0, but keeps the sign of the number -0.0.
            real = -real if negative and not (integer and mantissa == 0) else real
            result = slots.append_double(columns, node, real)
    elif form == DECIMAL:
        result = _append_decimal(columns, plan, node, mantissa, exponent, negative)
    elif form == STRING and integer and not (negative and mantissa == 0):
        result = slots.append_bytes(columns, node, data, begin, at - begin)
    return at if result == slots.DONE else np.int64(result)


@inlined
def _append_text(columns: Any, plan: Any, data: Any, at: Int, end: Int, node: Int) -> Int:
    """Append the string `data[at:end]` to column `node` of `columns`, as a value of its type; return DONE if appended.

    `plan` has the type of each node's column. Returns DOUBTFUL if it is not certain which value the column must get,
    and NO_ROOM if the columns are full.
    """
    form = plan[node, FORM]
    if form == STRING:
        return slots.append_bytes(columns, node, data, at, end - at)
    if form == DATE:
        days, after = text.read_date(data, at, end)
        if after == end:
            return slots.append_long(columns, node, days)
    elif form in (TIMESTAMP, LOCAL_TIMESTAMP):
        zoned = form == TIMESTAMP
        time, certain = text.read_timestamp(data, at, end, zoned, not zoned or plan[node, SCALE] == 1)
        if certain:
            return slots.append_long(columns, node, time)
    return text.DOUBTFUL


@inlined
def _append_scalar(columns: Any, plan: Any, data: Any, at: Int, stop: Int, node: Int) -> Int:
    """Append the string, number or literal at `data[at]` to column `node` of `columns`; return the position after it.

    `plan` has the type of each node's column, and the document ends at the position `stop`. Returns DOUBTFUL if it is
    not certain which value the column must get, and NO_ROOM if the columns are full.
    """
    byte, result = data[at], text.DOUBTFUL
    if byte == 34:
        end = text.string_end(data, at + 1, stop)
        if end < 0:
            return end
        result = _append_text(columns, plan, data, at + 1, end, node)
        return end + 1 if result == slots.DONE else np.int64(result)
    if byte == 45 or 48 <= byte <= 57:
        return _append_number(columns, plan, data, at, stop, node)
    end = text.literal_end(data, at, stop)
    if end < 0:
        return end
    if byte == 110:
        result = slots.append_null(columns, node)
    elif plan[node, FORM] == BOOLEAN:
        result = slots.append_bool(columns, node, byte == 116)
    return end if result == slots.DONE else np.int64(result)


@inlined
def _find_field(columns: Any, plan: Any, names: Any, data: Any, at: Int, stop: Int, top: Any) -> Any:
    """Return the column of the field whose key is at `data[at]` (-1: no such field), and the position after the key.

    `names` has the names of all fields, and `plan` has the place of each column's name in `names`. `top` is the
    object's row in the stack of open containers; the call sets the object's last field in it. The position is DOUBTFUL
    if the key is malformed or escaped, or if the object had this key before.
    """
    nodes, node, previous = columns[0], top[NODE], top[PREVIOUS]
    hint = BEGINS if previous == node else FOLLOWS
    field, size = plan[previous, hint], np.int64(0)
    if field >= 0:
        size = plan[field, NAME_SIZE]
    if field < 0 or not text.is_text(data, at, stop, names, plan[field, NAME_AT], size):
        end = text.string_end(data, at + 1, stop)
        if data[at] != 34 or end < 0:
            return np.int64(-1), np.int64(text.DOUBTFUL)
        size, field = end + 1 - at, node + 1
        while field < nodes[node, slots.END]:
            if plan[field, NAME_SIZE] == size and text.is_text(data, at, stop, names, plan[field, NAME_AT], size):
                break
            field = nodes[field, slots.END]
        if field >= nodes[node, slots.END]:
            return np.int64(-1), at + size
        plan[previous, hint] = field
    if nodes[field, slots.SLOTS] >= nodes[node, slots.SLOTS]:
        return field, np.int64(text.DOUBTFUL)  # the object had this key before
    top[PREVIOUS] = field
    top[FOUND] += 1
    return field, at + size


@inlined
def _find_value(columns: Any, plan: Any, names: Any, data: Any, at: Int, stop: Int, top: Any) -> Any:
    """Return the column of a container's next value (-1: no column holds the value), and the position of the value.

    `top` is the container's row in the stack of open containers. In an object or a map, the key at `data[at]` is read
    first, and a map's key is also appended. The position is DOUBTFUL if the key is malformed, escaped or a duplicate,
    and NO_ROOM if the columns are full.
    """
    node = top[NODE]
    if top[CLOSING] == 93:
        return (node + 1 if node >= 0 else node), at
    if node >= 0 and plan[node, FORM] == OBJECT:
        child, at = _find_field(columns, plan, names, data, at, stop, top)
    else:
        end = text.string_end(data, at + 1, stop)
        if data[at] != 34 or end < 0:
            return node, np.int64(text.DOUBTFUL)
        child = np.int64(-1)
        if node >= 0:
            child = node + 3
            result = slots.append_struct(columns, node + 1)
            if result == slots.DONE:
                result = slots.append_bytes(columns, node + 2, data, at + 1, end - at - 1)
            if result != slots.DONE:
                return node, result
        at = end + 1
    return child, text.skip_colon(data, at, stop) if at >= 0 else at


@inlined
def _begin_container(columns: Any, plan: Any, node: Int, opening: Int, top: Any) -> Int:
    top[NODE], top[PREVIOUS], top[FOUND], top[CLOSING] = node, node, 0, opening + 2
    return slots.append_struct(columns, node) if node >= 0 and plan[node, FORM] == OBJECT else slots.DONE


@inlined
def _end_container(columns: Any, plan: Any, top: Any) -> Int:
    nodes, node = columns[0], top[NODE]
    if node < 0:
        return slots.DONE
    if plan[node, FORM] != OBJECT:
        return slots.append_list(columns, node)
    if top[FOUND] < plan[node, FIELDS]:
        field = node + 1
        while field < nodes[node, slots.END]:
            is_missing = nodes[field, slots.SLOTS] < nodes[node, slots.SLOTS]
            if is_missing and slots.append_null(columns, field) != slots.DONE:
                return slots.NO_ROOM
            field = nodes[field, slots.END]
    return slots.DONE


@inlined
def _end_containers(columns: Any, plan: Any, data: Any, at: Int, stop: Int, stack: Any, depth: Int) -> Any:
    """End the containers that are closed at `data[at]`, after a value; return the depth and the next position.

    The depth is the index in `stack` of the innermost open container, before the call (`depth`) and after it. It is -1
    if no container is open. The next position is the start of the next value or key, or the position after the
    document. DOUBTFUL in place of the position means malformed JSON, and NO_ROOM means that the columns are full.
    """
    while depth >= 0:
        at = text.skip_blanks(data, at, stop)
        if at >= stop:
            return depth, np.int64(text.DOUBTFUL)
        if data[at] == 44:
            return depth, text.skip_blanks(data, at + 1, stop)
        if data[at] != stack[depth, CLOSING]:
            return depth, np.int64(text.DOUBTFUL)
        result = _end_container(columns, plan, stack[depth])
        if result != slots.DONE:
            return depth, np.int64(result)
        at, depth = at + 1, depth - 1
    return depth, at


@inlined
def _append_value(columns: Any, plan: Any, data: Any, at: Int, stop: Int, child: Int, stack: Any, depth: Int) -> Any:
    """Append the value at `data[at]` to column `child` of `columns`; return the depth and the next position.

    The depth is the index in `stack` of the innermost open container, before the call (`depth`) and after it. It is -1
    if no container is open. The next position is the start of the next value or key, or the position after the
    document. DOUBTFUL in place of the position means that a value is not certain, and NO_ROOM that columns are full.

    If the value is a container that is not empty, the call only begins it: its first value or key is at the next
    position. Containers that end after the value are ended. If `child` is -1, the value is checked and not appended.
    """
    byte = data[at]
    if (byte == 123 or byte == 91) if child < 0 else byte == plan[child, OPENING]:
        if depth + 1 == text.MAX_NESTING:
            return depth, np.int64(text.DOUBTFUL)
        depth += 1
        result = _begin_container(columns, plan, child, byte, stack[depth])
        if result != slots.DONE:
            return depth, np.int64(result)
        at = text.skip_blanks(data, at + 1, stop)
        if at < stop and data[at] != byte + 2:
            return depth, at
    elif child < 0:
        at = text.skip_scalar(data, at, stop)
    elif depth >= 0:
        at = _append_scalar(columns, plan, data, at, stop, child)
    else:
        at = np.int64(text.DOUBTFUL)
    return _end_containers(columns, plan, data, at, stop, stack, depth) if at >= 0 else (depth, at)


@kernel
def _append_document(columns: Any, plan: Any, names: Any, data: Any, at: Int, stop: Int, stack: Any) -> Int:
    """Append the document `data[at:stop]` to all columns; return DONE, DOUBTFUL or NO_ROOM.

    `plan` and `names` describe the columns, and `stack` is working memory. DOUBTFUL means that the meaning of a value
    is not certain, and NO_ROOM that the columns are full.
    """
    depth, child = np.int64(-1), np.int64(0)
    at = text.skip_blanks(data, at, stop)
    while 0 <= at < stop:
        depth, at = _append_value(columns, plan, data, at, stop, child, stack, depth)
        if at >= 0 and depth < 0:
            return slots.DONE if text.skip_blanks(data, at, stop) == stop else text.DOUBTFUL
        if 0 <= at < stop:
            child, at = _find_value(columns, plan, names, data, at, stop, stack[depth])
    return at if at < 0 else text.DOUBTFUL


@kernel
def append_documents(slices: Any, program: Any, first: Int, columns: Any, room: Any, errors: Any) -> Int:
    """Append JSON documents from row `first` on until the columns are full; return the row after the last appended row.

    `slices` is (bytes, starts of values, ends of values, whether values are not null). `program` is (plan, names), and
    `room` is (stack,). A document whose meaning is not certain becomes null, and `errors[row]` becomes DOUBTFUL for it.
    """
    data, starts, stops, valid = slices
    plan, names = program
    stack = room[0]
    for row in range(first, starts.shape[0]):
        result = np.int64(slots.NULL_VALUE)
        if valid[row]:
            result = _append_document(columns, plan, names, data, np.int64(starts[row]), np.int64(stops[row]), stack)
        if not slots.end_row(columns, row, first, result, errors):
            return np.int64(row)
    return np.int64(starts.shape[0])

"""Compiled half of the JSON decoder, which writes the documents whose meaning is certain into columns.

A document is read once, without recursion: `stack` has a row for each open container. A key is first compared with the
field whose key followed the same key in an earlier document (`plan[..., FOLLOWS]`). If this field has the key, no other
field is compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiered_stream.formats.columns.column_kernels import (
    END,
    HIGH,
    LOW,
    NULL_VALUE,
    SLOTS,
    append_bool,
    append_bytes,
    append_decimal,
    append_double,
    append_list,
    append_long,
    append_null,
    append_struct,
    end_row,
)
from tiered_stream.formats.json.json_text_kernels import (
    DOUBTFUL,
    FULL,
    MAX_NESTING,
    is_text,
    literal_end,
    nearest_double,
    nearest_float,
    read_date,
    read_number,
    read_timestamp,
    skip_blanks,
    skip_colon,
    skip_scalar,
    string_end,
)
from tiered_stream.records.compiled import Int, inlined, kernel

# Forms of a column, by the JSON values that it holds.
OTHER, BOOLEAN, INTEGER, DOUBLE, FLOAT, DECIMAL, STRING, DATE, TIMESTAMP, LOCAL_TIMESTAMP, OBJECT, MAP, ARRAY = range(
    13
)

# Columns of `plan`, which has a row for each node.
#   FORM           the column's form
#   OPENING        first byte of a container, -1 for other nodes
#   NAME_AT, _SIZE place of a field's name in `names`, with its quotes
#   FOLLOWS        field that followed this field in an earlier document; for an object, its first field; -1: none yet
#   FIELDS         number of an object's fields
#   SCALE          scale of a decimal; for a timestamp 1 if texts without a zone are in UTC, the session's time zone
#   LIMIT          least unscaled value that is too large for a decimal
FORM, OPENING, NAME_AT, NAME_SIZE, FOLLOWS, FIELDS, SCALE, LIMIT = range(8)
PLAN_COLUMNS = 8

# Columns of `stack`: the container's node (-1: no column holds the container), the field of the container's last key,
# the number of its keys that have a field, and the byte that closes the container.
NODE, PREVIOUS, FOUND, CLOSING = range(4)
STACK_SHAPE = (MAX_NESTING, 4)

OK = 0
_MAX_SECONDS = 9_000_000_000_000


@inlined
def _append_decimal(columns: Any, plan: Any, node: Int, mantissa: Int, exponent: Int, negative: Any) -> Int:
    shift = exponent + plan[node, SCALE]
    if mantissa == 0:
        shift = np.int64(0)
    if shift < 0 or shift > 18:
        return DOUBTFUL
    for _ in range(shift):
        if mantissa > 10**17:
            return DOUBTFUL
        mantissa *= 10
    if mantissa >= plan[node, LIMIT]:
        return DOUBTFUL
    value = -mantissa if negative else mantissa
    return OK if append_decimal(columns, node, value >> 63, np.uint64(value)) else FULL


@inlined
def _append_number(columns: Any, plan: Any, data: Any, at: Int, stop: Int, node: Int) -> Int:
    """Append the number at `at` to `node`; return the position after the number.

    Returns DOUBTFUL if it is not certain which value the column must get, and FULL if there is no room.
    """
    begin, form = at, plan[node, FORM]
    mantissa, exponent, negative, integer, at = read_number(data, at, stop)
    if at < 0:
        return at
    result = DOUBTFUL
    if form in (INTEGER, TIMESTAMP) and integer:
        value = -mantissa if negative else mantissa
        if form == INTEGER and columns[0][node, LOW] <= value <= columns[0][node, HIGH]:
            result = OK if append_long(columns, node, value) else FULL
        elif form == TIMESTAMP and mantissa < _MAX_SECONDS:
            result = OK if append_long(columns, node, value * 1000000) else FULL
    elif form in (DOUBLE, FLOAT):
        real, certain = nearest_double(mantissa, exponent) if form == DOUBLE else nearest_float(mantissa, exponent)
        if certain:
            # Jackson reads the integer -0 as 0, but keeps the sign of the number -0.0.
            real = -real if negative and not (integer and mantissa == 0) else real
            result = OK if append_double(columns, node, real) else FULL
    elif form == DECIMAL:
        result = _append_decimal(columns, plan, node, mantissa, exponent, negative)
    elif form == STRING and integer and not (negative and mantissa == 0):
        result = OK if append_bytes(columns, node, data, begin, at - begin) else FULL
    return at if result == OK else np.int64(result)


@inlined
def _append_text(columns: Any, plan: Any, data: Any, at: Int, end: Int, node: Int) -> Int:
    """Append the string in `data[at:end]` to `node`, as a value of the column's type; return OK, DOUBTFUL or FULL."""
    form = plan[node, FORM]
    if form == STRING:
        return OK if append_bytes(columns, node, data, at, end - at) else FULL
    if form == DATE:
        days, after = read_date(data, at, end)
        if after == end:
            return OK if append_long(columns, node, days) else FULL
    elif form in (TIMESTAMP, LOCAL_TIMESTAMP):
        zoned = form == TIMESTAMP
        time, certain = read_timestamp(data, at, end, zoned, not zoned or plan[node, SCALE] == 1)
        if certain:
            return OK if append_long(columns, node, time) else FULL
    return DOUBTFUL


@inlined
def _append_scalar(columns: Any, plan: Any, data: Any, at: Int, stop: Int, node: Int) -> Int:
    """Append the value at `at`, which is not a container, to `node`; return the next position, DOUBTFUL or FULL."""
    byte, result = data[at], DOUBTFUL
    if byte == 34:
        end = string_end(data, at + 1, stop)
        if end < 0:
            return end
        result = _append_text(columns, plan, data, at + 1, end, node)
        return end + 1 if result == OK else np.int64(result)
    if byte == 45 or 48 <= byte <= 57:
        return _append_number(columns, plan, data, at, stop, node)
    end = literal_end(data, at, stop)
    if end < 0:
        return end
    if byte == 110:
        result = OK if append_null(columns, node) else FULL
    elif plan[node, FORM] == BOOLEAN:
        result = OK if append_bool(columns, node, byte == 116) else FULL
    return end if result == OK else np.int64(result)


@inlined
def _find_field(columns: Any, plan: Any, names: Any, data: Any, at: Int, stop: Int, top: Any) -> Any:
    """Return the field of the key at `at`, -1 if no field has this name, and the position after the key.

    `top` is the row of the object in `stack`, in which the field becomes the object's last field. The position is
    DOUBTFUL if the key is malformed or escaped, or if the object had this key before.
    """
    nodes, node, previous = columns[0], top[NODE], top[PREVIOUS]
    field, size = plan[previous, FOLLOWS], np.int64(0)
    if field >= 0:
        size = plan[field, NAME_SIZE]
    if field < 0 or not is_text(data, at, stop, names, plan[field, NAME_AT], size):
        end = string_end(data, at + 1, stop)
        if data[at] != 34 or end < 0:
            return np.int64(-1), np.int64(DOUBTFUL)
        size, field = end + 1 - at, node + 1
        while field < nodes[node, END]:
            if plan[field, NAME_SIZE] == size and is_text(data, at, stop, names, plan[field, NAME_AT], size):
                break
            field = nodes[field, END]
        if field >= nodes[node, END]:
            return np.int64(-1), at + size
        plan[previous, FOLLOWS] = field
    if nodes[field, SLOTS] >= nodes[node, SLOTS]:
        return field, np.int64(DOUBTFUL)  # the object had this key before
    top[PREVIOUS] = field
    top[FOUND] += 1
    return field, at + size


@inlined
def _find_value(columns: Any, plan: Any, names: Any, data: Any, at: Int, stop: Int, top: Any) -> Any:
    """Return the node of a container's next value (-1: no column holds the value), and the position of the value.

    `top` is the row of the container in `stack`. In an object or a map, the key at `at` is read first; a map's key is
    also appended. The position is DOUBTFUL if the key is not certain, and FULL if there is no room for the key.
    """
    node = top[NODE]
    if top[CLOSING] == 93:
        return (node + 1 if node >= 0 else node), at
    if node >= 0 and plan[node, FORM] == OBJECT:
        child, at = _find_field(columns, plan, names, data, at, stop, top)
    else:
        end = string_end(data, at + 1, stop)
        if data[at] != 34 or end < 0:
            return node, np.int64(DOUBTFUL)
        child = np.int64(-1)
        if node >= 0:
            child = node + 3
            if not append_struct(columns, node + 1) or not append_bytes(columns, node + 2, data, at + 1, end - at - 1):
                return node, np.int64(FULL)
        at = end + 1
    return child, skip_colon(data, at, stop) if at >= 0 else at


@inlined
def _begin_container(columns: Any, plan: Any, node: Int, opening: Int, top: Any) -> Int:
    top[NODE], top[PREVIOUS], top[FOUND], top[CLOSING] = node, node, 0, opening + 2
    return OK if node < 0 or plan[node, FORM] != OBJECT or append_struct(columns, node) else FULL


@inlined
def _end_container(columns: Any, plan: Any, top: Any) -> Int:
    nodes, node = columns[0], top[NODE]
    if node < 0:
        return OK
    if plan[node, FORM] != OBJECT:
        return OK if append_list(columns, node) else FULL
    if top[FOUND] < plan[node, FIELDS]:
        field = node + 1
        while field < nodes[node, END]:
            if nodes[field, SLOTS] < nodes[node, SLOTS] and not append_null(columns, field):
                return FULL
            field = nodes[field, END]
    return OK


@inlined
def _end_containers(columns: Any, plan: Any, data: Any, at: Int, stop: Int, stack: Any, depth: Int) -> Any:
    """End the containers that are closed at `at`, after a value; return the innermost open container, and a position.

    The container is an index of `stack`, -1 if none is open. The position is the start of the next value or key, or
    DOUBTFUL or FULL. If no container is open, it is the position after the document.
    """
    while depth >= 0:
        at = skip_blanks(data, at, stop)
        if at >= stop:
            return depth, np.int64(DOUBTFUL)
        if data[at] == 44:
            return depth, skip_blanks(data, at + 1, stop)
        if data[at] != stack[depth, CLOSING]:
            return depth, np.int64(DOUBTFUL)
        result = _end_container(columns, plan, stack[depth])
        if result != OK:
            return depth, np.int64(result)
        at, depth = at + 1, depth - 1
    return depth, at


@inlined
def _append_value(columns: Any, plan: Any, data: Any, at: Int, stop: Int, child: Int, stack: Any, depth: Int) -> Any:
    """Append the value at `at` to the node `child`; return what `_end_containers` returns.

    A container that is not empty is only begun: its first value or key is at the returned position. If `child` is -1,
    the value is checked and not appended.
    """
    byte = data[at]
    if (byte == 123 or byte == 91) if child < 0 else byte == plan[child, OPENING]:
        if depth + 1 == MAX_NESTING:
            return depth, np.int64(DOUBTFUL)
        depth += 1
        result = _begin_container(columns, plan, child, byte, stack[depth])
        if result != OK:
            return depth, np.int64(result)
        at = skip_blanks(data, at + 1, stop)
        if at < stop and data[at] != byte + 2:
            return depth, at
    elif child < 0:
        at = skip_scalar(data, at, stop)
    elif depth >= 0:
        at = _append_scalar(columns, plan, data, at, stop, child)
    else:
        at = np.int64(DOUBTFUL)
    return _end_containers(columns, plan, data, at, stop, stack, depth) if at >= 0 else (depth, at)


@kernel
def _append_document(columns: Any, plan: Any, names: Any, data: Any, at: Int, stop: Int, stack: Any) -> Int:
    """Append the document between `at` and `stop` to all columns; return OK, DOUBTFUL or FULL."""
    depth, child = np.int64(-1), np.int64(0)
    at = skip_blanks(data, at, stop)
    while 0 <= at < stop:
        depth, at = _append_value(columns, plan, data, at, stop, child, stack, depth)
        if at >= 0 and depth < 0:
            return OK if skip_blanks(data, at, stop) == stop else DOUBTFUL
        if 0 <= at < stop:
            child, at = _find_value(columns, plan, names, data, at, stop, stack[depth])
    return at if at < 0 else DOUBTFUL


@kernel
def append_documents(slices: Any, program: Any, first: Int, columns: Any, room: Any, errors: Any) -> Int:
    """Append values from row `first` on, until the columns have no room; return the row after the last appended row.

    `slices` is (bytes, starts of values, ends of values, whether values are not null). `program` is (plan, names), and
    `room` is (stack,). A value whose meaning is not certain becomes null, and its entry in `errors` becomes DOUBTFUL.
    """
    data, starts, stops, valid = slices
    plan, names = program
    stack = room[0]
    for row in range(first, starts.shape[0]):
        result = np.int64(NULL_VALUE)
        if valid[row]:
            result = _append_document(columns, plan, names, data, np.int64(starts[row]), np.int64(stops[row]), stack)
        if not end_row(columns, row, first, result, errors):
            return np.int64(row)
    return np.int64(starts.shape[0])

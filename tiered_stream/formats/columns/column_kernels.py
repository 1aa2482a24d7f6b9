"""Kernels (functions that numba compiles) by which decoders write columns of any nesting into memory that Arrow uses.

A column's type is a table of nodes in preorder: the column, which is node 0, and all columns nested in it. A node's
first child is the next node, and its next sibling is at `nodes[node, END]`. A LIST has one child. A map is a LIST whose
child is a STRUCT of key and value, as in Arrow.

`columns` is (nodes, bytes, ints, longs): the table, and one piece of memory seen as uint8, int32 and int64. Each node
has slots, one for each of its values, and `append_...` writes the next slot of the node with the index `node`. These
functions return DONE, or NO_ROOM if the node is full. A kernel writes one row after the other:

    a STRUCT's slot, then one slot of each of its children (in any order);
    a LIST's elements, each a slot of its child, then the slot of the LIST itself, which holds all elements since the
    LIST's last slot;
    `append_null` for a null or a missing value: for a STRUCT it also writes the slots below.

`end_row` ends a row. A row with an error becomes a null row. If there was no room for the row, the row is removed and
the kernel returns. `ColumnBuilder` then allocates new columns and calls the kernel again.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tiered_stream.records.compiled import Int, inlined, kernel
from tiered_stream.records.intrinsics import copy_bytes, load_uint32_le, load_uint64_le, xxh64
from tiered_stream.records.memory import allocate

# Kinds of nodes. A slot holds nothing, 1 byte, 8 bytes (LONG, DOUBLE), 16 bytes, any number of bytes, or further nodes.
NULL, BOOL, LONG, DOUBLE, DECIMAL, BYTES, STRUCT, LIST = range(8)

# Columns of `nodes`. LOW and HIGH are the lowest and the highest integer of a LONG's type (8 to 64 bits).
KIND, PARENT, END, LOW, HIGH = range(5)
# Number of slots, maximum number of slots, maximum bytes of a BYTES node, and whether either maximum was too low.
SLOTS, MAX_SLOTS, MAX_BYTES, LACKS = range(5, 9)
# Positions in memory of a node's validity (one byte for each slot), its values (in units of their size) and its bytes.
VALID_AT, VALUES_AT, BYTES_AT = range(9, 12)
NODE_COLUMNS = 12

# Results of a value that are not the error of a format: it is written, the columns have no room, or the value is null.
DONE, NO_ROOM, NULL_VALUE = 0, -100, -101


@inlined
def _next_slot(nodes: Any, memory: Any, node: Int) -> Any:
    """Add a slot, the place of one value, to column `node`; return its index, or -1 if the column is full.

    The slot is not null. `nodes` and `memory` are the first two parts of `columns` in other functions.
    """
    slot = nodes[node, SLOTS]
    if slot >= nodes[node, MAX_SLOTS]:
        nodes[node, LACKS] = 1
        return -1
    memory[nodes[node, VALID_AT] + slot] = 1
    nodes[node, SLOTS] = slot + 1
    return slot


@inlined
def append_long(columns: Any, node: Int, value: Int) -> Int:
    """Append an integer, or a date or timestamp as an integer, to column `node` of `columns`; return DONE or NO_ROOM.

    A date is in days, and a timestamp in the unit of the column. The value must be within LOW and HIGH, the limits of
    the column's type. NO_ROOM means that the column is full.
    """
    nodes, memory, _, longs = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return NO_ROOM
    longs[nodes[node, VALUES_AT] + slot] = value
    return DONE


@inlined
def append_double(columns: Any, node: Int, value: Any) -> Int:
    """Append a double to column `node` of `columns`; return DONE, or NO_ROOM if the column is full.

    For a float column, a float must hold the value exactly.
    """
    return append_long(columns, node, np.float64(value).view(np.int64))


@inlined
def append_bool(columns: Any, node: Int, value: Any) -> Int:
    nodes, memory, _, _ = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return NO_ROOM
    memory[nodes[node, VALUES_AT] + slot] = 1 if value else 0
    return DONE


@inlined
def append_decimal(columns: Any, node: Int, high: Int, low: Any) -> Int:
    """Append a decimal to column `node` of `columns`; return DONE, or NO_ROOM if the column is full.

    `high` and `low` are the upper and lower 64 bits of its unscaled value. The caller must check the precision.
    """
    nodes, memory, _, longs = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return NO_ROOM
    at = nodes[node, VALUES_AT] + 2 * slot
    longs[at], longs[at + 1] = np.int64(low), high
    return DONE


@inlined
def append_bytes(columns: Any, node: Int, data: Any, at: Int, size: Int) -> Int:
    """Append the `size` bytes at `data[at]` to column `node` of `columns`; return DONE, or NO_ROOM if it is full.

    The caller must check that `data` has these bytes and, for a string column, that they are UTF-8.
    """
    nodes, memory, ints, _ = columns
    ends = nodes[node, VALUES_AT] + nodes[node, SLOTS]
    begin = np.int64(ints[ends])
    if size > nodes[node, MAX_BYTES] - begin:
        nodes[node, LACKS] = 1
        return NO_ROOM
    if _next_slot(nodes, memory, node) < 0:
        return NO_ROOM
    copy_bytes(memory, nodes[node, BYTES_AT] + begin, data, at, size)
    ints[ends + 1] = begin + size
    return DONE


@inlined
def append_struct(columns: Any, node: Int) -> Int:
    nodes, memory, _, _ = columns
    return DONE if _next_slot(nodes, memory, node) >= 0 else NO_ROOM


@inlined
def append_list(columns: Any, node: Int) -> Int:
    """Append a list or a map to column `node` of `columns`; return DONE, or NO_ROOM if the column is full.

    Its items are the elements that were appended to the column's child since its last list or map.
    """
    nodes, memory, ints, _ = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return NO_ROOM
    ints[nodes[node, VALUES_AT] + slot + 1] = nodes[node + 1, SLOTS]
    return DONE


@kernel
def append_null(columns: Any, node: Int) -> Int:
    """Append a null to column `node` of `columns`; return DONE, or NO_ROOM if a column is full.

    If the column is a struct, its children at any depth get a null, too. The child of a list gets nothing. The caller
    must not have appended elements to this child since the last list.
    """
    nodes, valid, ints, longs = columns
    at, end = node, nodes[node, END]
    while at < end:
        kind, slot = nodes[at, KIND], nodes[at, SLOTS]
        if slot >= nodes[at, MAX_SLOTS]:
            nodes[at, LACKS] = 1
            return NO_ROOM
        valid[nodes[at, VALID_AT] + slot] = 0
        values = nodes[at, VALUES_AT]
        if kind in (BYTES, LIST):
            ints[values + slot + 1] = ints[values + slot]
        elif kind in (LONG, DOUBLE):
            longs[values + slot] = 0
        elif kind == DECIMAL:
            longs[values + 2 * slot] = longs[values + 2 * slot + 1] = 0
        nodes[at, SLOTS] = slot + 1
        at = nodes[at, END] if kind == LIST else at + 1
    return DONE


@kernel
def truncate(columns: Any, rows: Int) -> None:
    """Remove all rows after the first `rows` rows from `columns`."""
    nodes, _, ints, _ = columns
    nodes[0, SLOTS] = rows
    for node in range(1, nodes.shape[0]):
        parent = nodes[node, PARENT]
        slots = nodes[parent, SLOTS]
        if nodes[parent, KIND] == LIST:
            slots = np.int64(ints[nodes[parent, VALUES_AT] + slots])
        nodes[node, SLOTS] = slots


@inlined
def end_row(columns: Any, row: Int, first: Int, result: Int, errors: Any) -> Any:
    """End the row `row` after an attempt to append it; return whether the columns had room for the row.

    `result` is DONE if the row was appended. With NO_ROOM, the row is removed. With NULL_VALUE or an error number of
    the format, the row becomes null. `errors[row]` becomes the error number, otherwise 0. `first` is the row with which
    the columns begin.
    """
    errors[row] = 0
    if result == DONE:
        return True
    truncate(columns, row - first)
    if result == NO_ROOM or append_null(columns, 0) == NO_ROOM:
        truncate(columns, row - first)
        return False
    errors[row] = 0 if result == NULL_VALUE else result
    return True


_MAX_MAP_KEYS = 1 << 20


def key_hash_table(maps: bool) -> np.ndarray[Any, Any]:
    """Return an int64 array of working memory, which `has_duplicate_key` takes as `key_table`.

    The array has space for a hash table of map keys, and a random seed as its last number. If `maps` is False, because
    no column has maps, the array has only the seed.
    """
    room = allocate((2 * _MAX_MAP_KEYS if maps else 0) + 1, np.int64)
    # A secret seed keeps senders from choosing keys that collide in the hash table.
    room[-1] = int.from_bytes(os.urandom(7))
    return room


@kernel
def character_end(data: Any, at: Int, stop: Int) -> Int:
    """Return the position after the UTF-8 character of two to four bytes at `data[at]` (Unicode, table 3-7).

    Returns -1 if `data[at:stop]` does not begin with a valid character of two or more bytes.
    """
    first = data[at]
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first < 0xC2 or first > 0xF4 or size > stop - at:
        return np.int64(-1)
    second = data[at + 1]
    low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
    if second < low or second > high:
        return np.int64(-1)
    for more in range(at + 2, at + size):
        if data[more] & 0xC0 != 0x80:
            return np.int64(-1)
    return at + size


@inlined
def is_utf8(data: Any, at: Int, stop: Int) -> Any:
    """Return whether `data[at:stop]` is UTF-8. Surrogates and overlong forms are not UTF-8."""
    while 0 <= at < stop:
        at = at + 1 if data[at] < 128 else character_end(data, at, stop)
    return at >= 0


@inlined
def unsigned_varint(data: Any, at: Int, stop: Int) -> Any:
    """Read a varint of at most 64 bits at `data[at]`; return its value as a uint64, and the position after it.

    The position is -1 if the varint does not end before `stop`, and -2 if it has more than 64 bits.
    """
    value, shift = np.uint64(0), np.uint64(0)
    while at < stop:
        part = np.uint64(data[at])
        at += 1
        if shift == 63 and part > 1:
            return value, np.int64(-2)
        value |= (part & np.uint64(0x7F)) << shift
        if part < 128:
            return value, np.int64(at)
        shift += np.uint64(7)
    return value, np.int64(-1)


@inlined
def from_zigzag(value: Any) -> Int:
    """Return the signed integer that a uint64 encodes in zigzag form."""
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@inlined
def load_double(data: Any, at: Int) -> Any:
    """Return the little-endian double in the 8 bytes at `data[at]`."""
    return np.uint64(load_uint64_le(data, at)).view(np.float64)


@inlined
def load_float(data: Any, at: Int) -> Any:
    """Return the little-endian float in the 4 bytes at `data[at]`, as a double."""
    return np.float64(np.uint32(load_uint32_le(data, at)).view(np.float32))


@kernel
def _key(columns: Any, node: Int, slot: Int) -> Any:
    """Return the position and the size, both in bytes, of the map key with the index `slot` in column `node`.

    The position is within the memory of `columns`.
    """
    nodes, _, ints, _ = columns
    ends = nodes[node, VALUES_AT] + slot
    return nodes[node, BYTES_AT] + ints[ends], np.int64(ints[ends + 1] - ints[ends])


@kernel
def _are_equal(memory: Any, one: Int, other: Int, size: Int) -> Any:
    index = 0
    while index < size and memory[one + index] == memory[other + index]:
        index += 1
    return index == size


@kernel
def has_duplicate_key(columns: Any, node: Int, first: Int, key_table: Any) -> Any:
    """Return whether a map has two equal keys. Its keys are all values of column `node` from the index `first` on.

    Returns True, too, if there are more than 2**20 keys, which are not compared. `key_table` is the array that
    `key_hash_table` returns.
    """
    last, size = columns[0][node, SLOTS], 4
    if last - first < 2:
        return False
    while size < 2 * (last - first):
        size *= 2
    if size >= key_table.shape[0]:
        return True
    for entry in range(size):
        key_table[entry] = -1
    for slot in range(first, last):
        at, length = _key(columns, node, slot)
        seed = np.uint64(key_table[key_table.shape[0] - 1])
        place = np.int64(xxh64(columns[1], at, at + length, seed)) & (size - 1)
        while key_table[place] >= 0:
            other, theirs = _key(columns, node, key_table[place])
            if theirs == length and _are_equal(columns[1], at, other, length):
                return True
            place = (place + 1) & (size - 1)
        key_table[place] = slot
    return False

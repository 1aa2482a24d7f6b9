"""Kernels by which compiled decoders write columns of any nesting into one piece of memory that Arrow takes over.

A schema is a table of its nodes in preorder. The root struct is node 0, a node's first child is the next node, and its
next sibling is at `nodes[node, END]`. A LIST has one child. A map is a LIST whose child is a STRUCT of key and value,
as in Arrow.

`columns` is (nodes, bytes, ints, longs): the table, and one memory seen as uint8, int32 and int64.
Each node has slots, and `append_...` writes the node's next slot. Every function returns False if there is no room. A
kernel writes one row after the other:

    a STRUCT's slot, then one slot of each of its children (in any order);
    a LIST's elements, each a slot of its child, then the slot of the LIST itself, which holds all elements since the
    LIST's last slot;
    `append_null` for a null or a missing value: for a STRUCT it also writes the slots below.

`end_row` ends a row. A row with an error becomes a null row. If there was no room for the row, the row is removed and
the kernel returns. `ColumnBuilder` then allocates new columns and calls the kernel again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiered_stream.records.compiled import Int, inlined, kernel
from tiered_stream.records.intrinsics import copy_bytes

# Kinds of nodes. A slot holds nothing, 1 byte, 8 bytes (LONG, DOUBLE), 16 bytes, any number of bytes, or further nodes.
NULL, BOOL, LONG, DOUBLE, DECIMAL, BYTES, STRUCT, LIST = range(8)

# Columns of `nodes`. LOW and HIGH are the lowest and the highest integer of a LONG's type (8 to 64 bits).
KIND, PARENT, END, LOW, HIGH = range(5)
# Number of slots, maximum number of slots, maximum bytes of a BYTES node, and whether either maximum was too low.
SLOTS, MAX_SLOTS, MAX_BYTES, LACKS = range(5, 9)
# Positions in memory of a node's validity (one byte for each slot), its values (in units of their size) and its bytes.
VALID_AT, VALUES_AT, BYTES_AT = range(9, 12)
NODE_COLUMNS = 12

# Results of a row that are not the error of a format: the columns have no room, or the value is null.
NO_ROOM, NULL_VALUE = -2, -3


@inlined
def _next_slot(nodes: Any, memory: Any, node: Int) -> Any:
    """Add a slot that is not null to a node; return the slot, or -1 if there is no room."""
    slot = nodes[node, SLOTS]
    if slot >= nodes[node, MAX_SLOTS]:
        nodes[node, LACKS] = 1
        return -1
    memory[nodes[node, VALID_AT] + slot] = 1
    nodes[node, SLOTS] = slot + 1
    return slot


@inlined
def append_long(columns: Any, node: Int, value: Int) -> Any:
    """Append an integer, a date in days, or a timestamp in its unit. `value` must be within LOW and HIGH."""
    nodes, memory, _, longs = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return False
    longs[nodes[node, VALUES_AT] + slot] = value
    return True


@inlined
def append_double(columns: Any, node: Int, value: Any) -> Any:
    """Append a double. For a float column, the value must be one that a float holds exactly."""
    return append_long(columns, node, np.float64(value).view(np.int64))


@inlined
def append_bool(columns: Any, node: Int, value: Any) -> Any:
    nodes, memory, _, _ = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return False
    memory[nodes[node, VALUES_AT] + slot] = 1 if value else 0
    return True


@inlined
def append_decimal(columns: Any, node: Int, high: Int, low: Any) -> Any:
    """Append a decimal, given by the 128 bits of its unscaled value. The caller must check the precision."""
    nodes, memory, _, longs = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return False
    at = nodes[node, VALUES_AT] + 2 * slot
    longs[at], longs[at + 1] = np.int64(low), high
    return True


@inlined
def append_bytes(columns: Any, node: Int, data: Any, at: Int, size: Int) -> Any:
    """Append the `size` bytes of `data` at `at`. The caller must check bounds, and UTF-8 for a string column."""
    nodes, memory, ints, _ = columns
    ends = nodes[node, VALUES_AT] + nodes[node, SLOTS]
    begin = np.int64(ints[ends])
    if size > nodes[node, MAX_BYTES] - begin:
        nodes[node, LACKS] = 1
        return False
    if _next_slot(nodes, memory, node) < 0:
        return False
    copy_bytes(memory, nodes[node, BYTES_AT] + begin, data, at, size)
    ints[ends + 1] = begin + size
    return True


@inlined
def append_struct(columns: Any, node: Int) -> Any:
    nodes, memory, _, _ = columns
    return _next_slot(nodes, memory, node) >= 0


@inlined
def append_list(columns: Any, node: Int) -> Any:
    """Append a list or a map of the elements that were appended to the node's child since the node's last slot."""
    nodes, memory, ints, _ = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return False
    ints[nodes[node, VALUES_AT] + slot + 1] = nodes[node + 1, SLOTS]
    return True


@kernel
def append_null(columns: Any, node: Int) -> Any:
    """Append a null to a node and, if the node is a struct, to its children, at any depth.

    The child of a list gets no slot. The caller must not have appended an element to this child since the list's last
    slot.
    """
    nodes, valid, ints, longs = columns
    at, end = node, nodes[node, END]
    while at < end:
        kind, slot = nodes[at, KIND], nodes[at, SLOTS]
        if slot >= nodes[at, MAX_SLOTS]:
            nodes[at, LACKS] = 1
            return False
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
    return True


@kernel
def truncate(columns: Any, rows: Int) -> None:
    """Remove the slots of all rows after the first `rows` rows, from all nodes."""
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
    """End the row of a value, and set `errors[row]`; return whether the columns had room for the row.

    `result` is 0 if the row was appended. With NO_ROOM, the row is removed. With NULL_VALUE or an error of the format,
    the row becomes null. `first` is the row with which the columns begin.
    """
    errors[row] = 0
    if result == 0:
        return True
    truncate(columns, row - first)
    if result == NO_ROOM:
        return False
    if not append_null(columns, 0):
        truncate(columns, row - first)
        return False
    errors[row] = 0 if result == NULL_VALUE else result
    return True

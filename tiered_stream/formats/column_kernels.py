"""How compiled decoders write columns of any nesting: a table of nodes, and one piece of memory that Arrow takes over.

A schema is its nodes in preorder: the root struct is node 0, a node's first child the next one, and its next sibling is
at `nodes[node, END]`. A LIST has one child; a map is a LIST whose child is a STRUCT of key and value, as in Arrow.

`columns` is (nodes, bytes, ints, longs, doubles): the table, and one memory seen as uint8, int32, int64 and float64.
Each node has slots, and `append_...` writes its next one; every function answers False, and has written nothing, where
there is no room. A kernel writes one row after the other:

    a STRUCT's slot, then one slot of each of its children (in any order);
    a LIST's elements, each a slot of its child, then the slot of the LIST itself, which takes all that came since its
    last slot;
    `append_null` for what is null or missing: it writes the slots below a STRUCT, too.

Where a row cannot be finished, `truncate` takes back everything after the first `rows` rows, whatever it is: the kernel
then writes a null row, or stops there because there was no room (`ColumnBuilder` makes room and calls it again).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiered_stream.records.compiled import Int, inlined, kernel
from tiered_stream.records.intrinsics import copy_bytes

# What a node's slots are: nothing, a byte, 8 bytes, 16 bytes, bytes of any number, or further nodes.
NULL, BOOL, LONG, DOUBLE, DECIMAL, BYTES, STRUCT, LIST = range(8)

# Columns of `nodes`. LOW and HIGH: the least and the greatest integer of a LONG's type (8 to 64 bits).
KIND, PARENT, END, LOW, HIGH = range(5)
# How many slots there are, and how many there is room for; for how many bytes of a BYTES; whether either was too few.
SLOTS, MOST_SLOTS, MOST_BYTES, LACKS = range(5, 9)
# Where in memory a node's validity is (a byte a slot), its values (in units of their size) and its bytes.
VALID_AT, VALUES_AT, BYTES_AT = range(9, 12)
NODE_COLUMNS = 12


@inlined
def _next_slot(nodes: Any, memory: Any, node: Int) -> Any:
    """Takes the node's next slot, which is then no null; -1 where there is no room."""
    slot = nodes[node, SLOTS]
    if slot >= nodes[node, MOST_SLOTS]:
        nodes[node, LACKS] = 1
        return -1
    memory[nodes[node, VALID_AT] + slot] = 1
    nodes[node, SLOTS] = slot + 1
    return slot


@inlined
def append_long(columns: Any, node: Int, value: Int) -> Any:
    """An integer, a date in days, a timestamp in its unit: the caller has compared it with LOW and HIGH."""
    nodes, memory, _, longs, _ = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return False
    longs[nodes[node, VALUES_AT] + slot] = value
    return True


@inlined
def append_double(columns: Any, node: Int, value: Any) -> Any:
    """A double; of a float column one that a float holds exactly."""
    nodes, memory, _, _, doubles = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return False
    doubles[nodes[node, VALUES_AT] + slot] = value
    return True


@inlined
def append_bool(columns: Any, node: Int, value: Any) -> Any:
    nodes, memory, _, _, _ = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return False
    memory[nodes[node, VALUES_AT] + slot] = 1 if value else 0
    return True


@inlined
def append_decimal(columns: Any, node: Int, high: Int, low: Any) -> Any:
    """The unscaled value's 128 bits; the caller has compared it with the precision."""
    nodes, memory, _, longs, _ = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return False
    at = nodes[node, VALUES_AT] + 2 * slot
    longs[at], longs[at + 1] = np.int64(low), high
    return True


@inlined
def append_bytes(columns: Any, node: Int, data: Any, at: Int, size: Int) -> Any:
    """The `size` bytes of `data` at `at`, which are there; of a string column valid UTF-8."""
    nodes, memory, ints, _, _ = columns
    slot, ends = nodes[node, SLOTS], nodes[node, VALUES_AT]
    if slot >= nodes[node, MOST_SLOTS]:
        nodes[node, LACKS] = 1
        return False
    begin = np.int64(ints[ends + slot])
    if size > nodes[node, MOST_BYTES] - begin:
        nodes[node, LACKS] = 1
        return False
    copy_bytes(memory, nodes[node, BYTES_AT] + begin, data, at, size)
    memory[nodes[node, VALID_AT] + slot] = 1
    ints[ends + slot + 1] = begin + size
    nodes[node, SLOTS] = slot + 1
    return True


@inlined
def append_struct(columns: Any, node: Int) -> Any:
    nodes, memory, _, _, _ = columns
    return _next_slot(nodes, memory, node) >= 0


@inlined
def append_list(columns: Any, node: Int) -> Any:
    """A list, or map, of the elements that were appended to its child since its last slot."""
    nodes, memory, ints, _, _ = columns
    slot = _next_slot(nodes, memory, node)
    if slot < 0:
        return False
    ints[nodes[node, VALUES_AT] + slot + 1] = nodes[node + 1, SLOTS]
    return True


@kernel
def append_null(columns: Any, node: Int) -> Any:
    """A null, and one for all that is below a struct. No element was appended to a list since its last slot."""
    nodes, valid, ints, longs, _ = columns
    at, end = node, nodes[node, END]
    while at < end:
        kind, slot = nodes[at, KIND], nodes[at, SLOTS]
        if slot >= nodes[at, MOST_SLOTS]:
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
    """Take back all that was written after the first `rows` rows."""
    nodes, _, ints, _, _ = columns
    nodes[0, SLOTS] = rows
    for node in range(1, nodes.shape[0]):
        parent = nodes[node, PARENT]
        slots = nodes[parent, SLOTS]
        if nodes[parent, KIND] == LIST:
            slots = np.int64(ints[nodes[parent, VALUES_AT] + slots])
        nodes[node, SLOTS] = slots

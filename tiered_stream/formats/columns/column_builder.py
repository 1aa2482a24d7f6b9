"""Builder of Arrow columns that kernels write. Kernels are functions that numba compiles.

The builder describes a column's type to the kernels as a table of nodes: the column and the columns nested in it. It
allocates the memory that kernels fill and that Arrow arrays then use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import UnsupportedDataError
from tiered_stream.formats.columns import column_kernels as kernels
from tiered_stream.formats.columns.decoded import (
    MAX_BATCH_MEMORY,
    MAX_MEMORY,
    TOO_LARGE,
    ByteSlices,
    check_batch_memory,
)
from tiered_stream.records.memory import allocate

Columns = tuple[np.ndarray[Any, Any], ...]

_MAX_SLOTS = 2**31 - 2  # Arrow's offsets are int32

_SLOT_SIZES = np.array([0, 1, 8, 8, 16, 4, 0, 4])
"""Number of bytes of one value, by the kind of its node (`column_kernels.NULL` to `LIST`).

For texts, bytes and lists, this is the size of the Arrow offset that each value has.
"""
_KINDS = (
    (types.is_null, kernels.NULL), (types.is_boolean, kernels.BOOL), (types.is_signed_integer, kernels.LONG),
    (types.is_date32, kernels.LONG), (types.is_timestamp, kernels.LONG), (types.is_duration, kernels.LONG),
    (types.is_float32, kernels.DOUBLE), (types.is_float64, kernels.DOUBLE), (types.is_decimal128, kernels.DECIMAL),
    (types.is_string, kernels.BYTES), (types.is_binary, kernels.BYTES), (types.is_struct, kernels.STRUCT),
    (types.is_list, kernels.LIST), (types.is_map, kernels.LIST),
)  # fmt: skip


class ColumnBuilder:
    """Builder of Arrow columns of the type `kind`, one column for each batch of values.

    The builder estimates the memory for a batch from the memory that earlier batches took. The constructor raises
    UnsupportedDataError if kernels cannot write the type.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.fields: list[pa.Field] = []
        """Arrow field of each node. Node 0 is the column, and nested columns follow in preorder.

        A map has one child: a struct of key and value.
        """
        self.children: list[list[int]] = []
        """Indexes of each node's children, by the node's index."""
        self._rows: list[np.ndarray[Any, Any]] = []
        self._in_list: list[bool] = []
        self._add_node(pa.field("", kind), -1, False)
        self._table = np.array(self._rows)
        kinds = self._table[:, kernels.KIND]
        self._slot_sizes = _SLOT_SIZES[kinds]
        self._has_ends = (kinds == kernels.BYTES) | (kinds == kernels.LIST)
        # Slots and bytes that a row takes in each node. All bytes, and the slots of nodes below lists, are guesses.
        self._is_guess = np.array(self._in_list)
        self._slots = np.where(self._is_guess, 4.0, 1.0)
        self._bytes = np.where(kinds == kernels.BYTES, 24.0, 0.0)

    def _add_node(self, field: pa.Field, parent: int, in_list: bool) -> int:
        """Add a node for `field`, and all nodes below it; return the node's index.

        `parent` is the index of the node's parent, -1 for the column itself. `in_list` is True below a list or a map.
        """
        kind = next((kind for is_kind, kind in _KINDS if is_kind(field.type)), None)
        if kind is None:
            raise UnsupportedDataError(f"a column of the type {field.type} cannot be decoded into")
        node, row = len(self.fields), np.zeros(kernels.NODE_COLUMNS, np.int64)
        row[kernels.KIND], row[kernels.PARENT] = kind, parent
        if kind == kernels.LONG:
            half = 1 << field.type.bit_width - 1
            row[kernels.LOW], row[kernels.HIGH] = -half, half - 1
        self.fields.append(field)
        self._rows.append(row)
        self._in_list.append(in_list)
        self.children.append([])
        for at in range(field.type.num_fields):
            child = self._add_node(field.type.field(at), node, in_list or kind == kernels.LIST)
            self.children[node].append(child)
        row[kernels.END] = len(self.fields)
        return node

    @property
    def has_maps(self) -> bool:
        return any(types.is_map(field.type) for field in self.fields)

    def decoded(
        self, slices: ByteSlices, kernel: Callable[..., int], program: tuple[Any, ...], room: tuple[Any, ...]
    ) -> tuple[pa.Array, np.ndarray[Any, Any], dict[int, str]]:
        """Decode values by the compiled function `kernel` of a format, such as Avro; return column, errors and reasons.

        Args:
            slices: the values.
            kernel: called as `kernel(slices, program, row, columns, room, errors)`. It appends rows from the index
                `row` on, until all rows are appended or the columns have no room for the next row. It returns the index
                after the last appended row, and is called again, with empty columns, for the remaining rows. A value
                that it cannot decode becomes null, and gets a number in `errors`.
            program: the schema, as the arrays from which the kernel reads it; passed on unchanged.
            room: arrays that the kernel uses as working memory; passed on unchanged.

        Returns:
            Three values. The first is the column, with one row for each value. The second is an array with the error
            of each row: 0, or the number that the kernel has set. The third has, by row index, the text `TOO_LARGE` for
            each row that needs more than `MAX_MEMORY` by itself. Such a row is null, and its error is 0.

        Raises:
            LargeBatchError: there are several values, and their column needs more than `MAX_BATCH_MEMORY`.
        """
        data, errors, rows = slices.kernel_arguments(), np.zeros(len(slices), np.int64), len(slices)

        def write(columns: Columns, row: int) -> int:
            return int(kernel(data, program, row, columns, room, errors))

        built, too_large, row, memory = [], [], 0, 0
        while row < rows:
            columns = self._columns_of(rows - row)
            after = write(columns, row)
            written: Columns | None = columns
            if after > row:
                self._remember(columns)
            else:
                after, written = row + 1, self._row_alone(write, row)
            if written is None:
                built.append(pa.nulls(1, self.kind))
                too_large.append(row)
            else:
                built.append(self._array(written))
                memory += self._memory(written[0][:, kernels.SLOTS], self._text_sizes(written))
            check_batch_memory(memory, row or after, rows)
            row = after
        errors[too_large] = 0
        column = built[0] if len(built) == 1 else pa.concat_arrays(built or [pa.nulls(0, self.kind)])
        return column, errors, dict.fromkeys(too_large, TOO_LARGE)

    def _columns_of(self, rows: int) -> Columns:
        """Return empty columns for `rows` rows, or for fewer rows if the limits of memory and slots require it."""
        memory = (self._slots * (self._slot_sizes + 1) + self._bytes).sum()
        limit = min(_MAX_SLOTS / max(self._slots.max(), self._bytes.max()), MAX_BATCH_MEMORY / memory)
        rows = max(1, min(rows, int(limit)))
        slots = np.where(self._is_guess, self._slots * rows + 16, rows).astype(np.int64)
        sizes = np.where(self._bytes > 0, self._bytes * rows + 64, 0).astype(np.int64)
        return self._allocate(slots, sizes)

    def _row_alone(self, write: Callable[[Columns, int], int], row: int) -> Columns | None:
        """Return columns that begin with the row `row`, or None if this row needs more than `MAX_MEMORY`.

        `write(columns, row)` appends rows from the index `row` on, and returns the index after the last appended row.
        It is called with larger and larger columns until the row fits. The result does not depend on earlier batches.
        """
        slots = np.where(self._is_guess, 1 << 10, 1)
        sizes = np.where(self._bytes > 0, 1 << 16, 0)
        while slots.max() < _MAX_SLOTS and sizes.max() < _MAX_SLOTS and self._memory(slots, sizes) <= MAX_MEMORY:
            columns = self._allocate(slots, sizes)
            if write(columns, row) > row:
                return columns
            for node in np.flatnonzero(columns[0][:, kernels.LACKS]):
                below = slice(node, columns[0][node, kernels.END])
                slots[below] *= np.where(self._is_guess[below], 2, 1)
                sizes[below] *= 2
        return None

    def _memory(self, slots: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any]) -> int:
        return int(((self._slot_sizes + 1) * slots + sizes).sum())

    def _allocate(self, slots: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any]) -> Columns:
        nodes = self._table.copy()
        nodes[:, kernels.MAX_SLOTS], nodes[:, kernels.MAX_BYTES] = slots, sizes
        lengths = np.stack([slots, (slots + self._has_ends) * self._slot_sizes, sizes])
        ends = np.cumsum((lengths + 7) // 8 * 8).reshape(lengths.shape)
        starts = ends - (lengths + 7) // 8 * 8
        nodes[:, kernels.VALID_AT], nodes[:, kernels.BYTES_AT] = starts[0], starts[2]
        widths = np.where(self._slot_sizes == 16, 8, np.maximum(self._slot_sizes, 1))
        nodes[:, kernels.VALUES_AT] = starts[1] // widths
        memory = allocate(int(ends[-1, -1]) // 8, np.int64)
        ints = memory.view(np.int32)
        ints[nodes[self._has_ends, kernels.VALUES_AT]] = 0
        return nodes, memory.view(np.uint8), ints, memory

    def _remember(self, columns: Columns) -> None:
        nodes = columns[0]
        rows = nodes[0, kernels.SLOTS]
        more = np.where(nodes[:, kernels.LACKS] > 0, 2, 0)
        slots = np.maximum(nodes[:, kernels.SLOTS] / rows * 1.25, self._slots * more)
        self._slots[self._is_guess] = slots[self._is_guess]
        texts = self._bytes > 0
        sizes = self._text_sizes(columns)[texts] / rows * 1.25 + 1
        self._bytes[texts] = np.maximum(sizes, self._bytes[texts] * more[texts])

    def _text_sizes(self, columns: Columns) -> np.ndarray[Any, Any]:
        """Return the number of bytes of all values in each node of texts or bytes; 0 for any other node."""
        nodes, _, ints, _ = columns
        ends = ints[np.where(self._bytes > 0, nodes[:, kernels.VALUES_AT] + nodes[:, kernels.SLOTS], 0)]
        return np.where(self._bytes > 0, ends, 0)

    def _array(self, columns: Columns, node: int = 0) -> pa.Array:
        """Return the values of the node `node` as an Arrow array, which shares the memory of `columns`.

        Only booleans, validity, and numbers of fewer than 64 bits are copied.
        """
        nodes, memory, ints, longs = columns
        kind, slots = self.fields[node].type, int(nodes[node, kernels.SLOTS])
        at, bytes_at = int(nodes[node, kernels.VALUES_AT]), int(nodes[node, kernels.BYTES_AT])
        valid = memory[nodes[node, kernels.VALID_AT] :][:slots]
        nulls = slots - int(np.count_nonzero(valid))
        buffers = [_bits(valid) if nulls else None]
        match int(nodes[node, kernels.KIND]):
            case kernels.NULL:
                return pa.nulls(slots)
            case kernels.BOOL:
                buffers.append(_bits(memory[at:][:slots]))
            case kernels.LONG:
                buffers.append(_buffer(longs[at:][:slots], f"i{kind.bit_width // 8}"))
            case kernels.DOUBLE:
                buffers.append(_buffer(longs[at:][:slots].view(np.float64), f"f{kind.bit_width // 8}"))
            case kernels.DECIMAL:
                buffers.append(_buffer(longs[at:][: 2 * slots], "i8"))
            case kernels.BYTES:
                ends = ints[at:][: slots + 1]
                buffers += [_buffer(ends, "i4"), _buffer(memory[bytes_at:][: ends[-1]], "u1")]
            case kernels.LIST:
                buffers.append(_buffer(ints[at:][: slots + 1], "i4"))
        below = [self._array(columns, child) for child in self.children[node]]
        return pa.Array.from_buffers(kind, slots, buffers, nulls, children=below)


def _bits(flags: np.ndarray[Any, Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _buffer(values: np.ndarray[Any, Any], kind: str) -> pa.Buffer:
    return pa.py_buffer(values.astype(kind, copy=False))

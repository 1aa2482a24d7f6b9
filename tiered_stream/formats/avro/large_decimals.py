"""Conversion of Avro decimals of more than 38 digits, which kernels read as bytes, to texts or DOUBLE."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.avro import avro_schema as avro
from tiered_stream.formats.avro.avro_types import arrow_type, single_type
from tiered_stream.formats.columns.conform import list_items, null_mask, with_items
from tiered_stream.formats.columns.decoded import MAX_BATCH_MEMORY, MAX_MEMORY, TOO_LARGE, check_batch_memory
from tiered_stream.formats.rows.row_choices import LargeDecimals

_EXACT = Context(prec=1000, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Decimal context that is exact for every integer of at most `avro_kernels.MAX_NUMBER_BYTES` bytes."""
_AT_ONCE = 1 << 14
"""Maximum number of large decimals that are Python objects at the same time."""
_DIGITS_OF_BYTE = 2.41
"""Maximum number of decimal digits for each byte of a number, rounded up."""


def with_large_decimals(column: pa.Array, node: avro.AvroType, reasons: dict[int, str]) -> pa.Array:
    """Return `column`, whose values have the Avro type `node`, with large decimals as texts or DOUBLE instead of bytes.

    `column` has the type `arrow_type(node, as_read=True)`, and the result has the type `arrow_type(node)`. A value that
    needs more than `MAX_MEMORY` becomes null, and `reasons` gets its reason.

    Raises:
        LargeBatchError: there are several values, and they need more than `MAX_BATCH_MEMORY`.
    """
    sizes = _sizes(column, node)
    if (is_large := sizes > MAX_MEMORY).any():
        reasons |= dict.fromkeys(np.flatnonzero(is_large).tolist(), TOO_LARGE)
        column = pc.if_else(pa.array(is_large), pa.scalar(None, column.type), column)
        sizes[is_large] = 0
    fitting = int(np.searchsorted(np.cumsum(sizes), MAX_BATCH_MEMORY))
    check_batch_memory(int(sizes.sum()), fitting, len(column))
    return _converted(column, node)


def _sizes(column: pa.Array, node: avro.AvroType) -> np.ndarray[Any, Any]:
    """Return, for each row of `column`, the maximum memory of its large decimals in the result of `_converted`."""
    if isinstance(node, avro.Union) and (one := single_type(node)) is not None:
        return _sizes(column, one)
    if column.type == arrow_type(node):
        return np.zeros(len(column))
    if isinstance(node, avro.Primitive | avro.Fixed) and isinstance(node.logical, avro.Decimal):
        if node.logical.column is LargeDecimals.DOUBLE:
            return np.full(len(column), 9.0)
        lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy()
        digits = np.maximum(lengths * _DIGITS_OF_BYTE + 1, node.logical.scale + 1)
        return np.where(lengths < 0, 0, digits) + 8  # sign, point, and Arrow's offset and validity
    below = _nested_types(node)
    if pa.types.is_struct(column.type):
        return sum(map(_sizes, column.flatten(), below), np.zeros(len(column)))
    offsets, items = list_items(column)
    ends = np.concatenate([[0], np.cumsum(_sizes(items[-1], *below))])
    sizes: np.ndarray[Any, Any] = np.diff(ends[offsets])
    return sizes


def _nested_types(node: avro.AvroType) -> tuple[avro.AvroType, ...]:
    """Return the Avro types of the columns in the column of `node`: fields, items, or members of a union's struct."""
    return node.values if isinstance(node, avro.Union) else tuple(avro.children(node))


def _converted(column: pa.Array, node: avro.AvroType) -> pa.Array:
    kind = arrow_type(node)
    if column.type == kind:
        return column
    if isinstance(node, avro.Union) and (one := single_type(node)) is not None:
        return _converted(column, one)
    if isinstance(node, avro.Primitive | avro.Fixed) and isinstance(node.logical, avro.Decimal):
        number = partial(_number, node.logical)
        parts = (column.slice(at, _AT_ONCE).to_pylist() for at in range(0, len(column), _AT_ONCE))
        return pa.concat_arrays([pa.nulls(0, kind), *(pa.array(map(number, part), kind) for part in parts)])
    below = _nested_types(node)
    if pa.types.is_struct(kind):
        children = list(map(_converted, column.flatten(), below))
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=null_mask(column))
    offsets, items = list_items(column)
    items[-1] = _converted(items[-1], *below)
    return with_items(column, offsets, items, kind)


def _number(decimal: avro.Decimal, content: bytes | None) -> str | float | None:
    if content is None:
        return None
    number = Decimal(int.from_bytes(content, signed=True)).scaleb(-decimal.scale, _EXACT)
    return f"{number:f}" if decimal.column is LargeDecimals.STRING else float(number)

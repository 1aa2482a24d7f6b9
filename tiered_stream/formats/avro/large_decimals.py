"""Conversion of decimals with more than 38 digits, which kernels read as bytes, to texts or DOUBLE."""

from __future__ import annotations

import math

import pyarrow as pa

from tiered_stream.formats.avro.avro_schema import AvroType, Decimal, Fixed, Primitive, Union, children
from tiered_stream.formats.avro.avro_types import arrow_type, single_type
from tiered_stream.formats.columns.list_items import list_items, null_mask, rows_with, with_items
from tiered_stream.formats.rows.row_choices import LargeDecimals

_MAX_BYTES = 400
"""Maximum size of a number, because the time to write its digits grows with the square of the size."""
TOO_LARGE = "a decimal has more than 400 bytes"


def converted(column: pa.Array, node: AvroType) -> tuple[pa.Array, pa.BooleanArray]:
    """Return a column of the Avro type `node` with large decimals converted, and a boolean for each row.

    `column` has the type `arrow_type(node, as_read=True)`. The boolean is True if a number in the row is too large; the
    number is null.
    """
    kind = arrow_type(node)
    if column.type == kind:
        return column, pa.repeat(pa.scalar(False), len(column))
    if isinstance(node, Union) and (one := single_type(node)) is not None:
        return converted(column, one)
    if isinstance(node, Primitive | Fixed) and isinstance(node.logical, Decimal):
        return _numbers(column, node.logical, kind)
    below = node.values if isinstance(node, Union) else tuple(children(node))
    if pa.types.is_struct(kind):
        arrays, marks = zip(*map(converted, column.flatten(), below), strict=True)
        bad = pa.array([any(row) for row in zip(*map(pa.Array.to_pylist, marks), strict=True)], pa.bool_())
        return pa.StructArray.from_arrays(list(arrays), fields=list(kind), mask=null_mask(column)), bad
    offsets, items = list_items(column)
    items[-1], bad = converted(items[-1], *below)
    return with_items(column, offsets, items, kind), rows_with(bad, offsets)


def _numbers(column: pa.BinaryArray, decimal: Decimal, kind: pa.DataType) -> tuple[pa.Array, pa.BooleanArray]:
    values, bad = [], []
    for content in column.to_pylist():
        unscaled = None if content is None or len(content) > _MAX_BYTES else int.from_bytes(content, signed=True)
        bad.append(content is not None and unscaled is None)
        values.append(None if unscaled is None else _written(unscaled, decimal))
    return pa.array(values, kind, from_pandas=False), pa.array(bad, pa.bool_())


def _written(unscaled: int, decimal: Decimal) -> str | float:
    if decimal.column is LargeDecimals.STRING:
        digits = str(abs(unscaled)).zfill(decimal.scale + 1)
        whole = len(digits) - decimal.scale
        point = "." if decimal.scale else ""
        return f"{'-' if unscaled < 0 else ''}{digits[:whole]}{point}{digits[whole:]}"
    power: int = 10**decimal.scale
    try:
        return unscaled / power  # integers are divided without an intermediate rounding
    except OverflowError:
        return math.copysign(math.inf, unscaled)

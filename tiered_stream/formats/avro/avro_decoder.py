"""Decoder of Avro values (datums without a header) to the column that Spark's `from_avro` would return.

Kernels read decimals of more than 38 digits as bytes, which become texts or DOUBLE here.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.avro import avro_kernels as kernels
from tiered_stream.formats.avro import avro_schema as avro
from tiered_stream.formats.avro.avro_program import AvroProgram
from tiered_stream.formats.avro.avro_types import arrow_type, single_type
from tiered_stream.formats.columns.column_builder import ColumnBuilder
from tiered_stream.formats.columns.column_kernels import key_hash_table
from tiered_stream.formats.columns.conform import list_items, null_mask, rows_with, with_items
from tiered_stream.formats.columns.decoded import REASON_SIZE, ByteSlices, Decoded, SlicesDecoder, spliced
from tiered_stream.formats.rows.row_choices import LargeDecimals

_MAX_BYTES = 400
"""Maximum number of bytes of a number, because the time to write its digits grows with the square of its size."""
TOO_LARGE = "a decimal has more than 400 bytes"
_EXACT = Context(prec=1000, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Context with room for each number of `_MAX_BYTES`."""


def converted(column: pa.Array, node: avro.AvroType) -> tuple[pa.Array, pa.BooleanArray]:
    """Return a column of the Avro type `node` with large decimals converted, and a boolean for each row.

    `column` has the type `arrow_type(node, as_read=True)`. The boolean is True if a number in the row is too large; the
    number is null.
    """
    kind = arrow_type(node)
    if column.type == kind:
        return column, pa.repeat(pa.scalar(False), len(column))
    if isinstance(node, avro.Union) and (one := single_type(node)) is not None:
        return converted(column, one)
    if isinstance(node, avro.Primitive | avro.Fixed) and isinstance(node.logical, avro.Decimal):
        return _numbers(column, node.logical, kind)
    below = node.values if isinstance(node, avro.Union) else tuple(avro.children(node))
    if pa.types.is_struct(kind):
        arrays, marks = zip(*map(converted, column.flatten(), below), strict=True)
        bad = pa.array([any(row) for row in zip(*map(pa.Array.to_pylist, marks), strict=True)], pa.bool_())
        return pa.StructArray.from_arrays(list(arrays), fields=list(kind), mask=null_mask(column)), bad
    offsets, items = list_items(column)
    items[-1], bad = converted(items[-1], *below)
    return with_items(column, offsets, items, kind), rows_with(bad, offsets)


def _numbers(column: pa.BinaryArray, decimal: avro.Decimal, kind: pa.DataType) -> tuple[pa.Array, pa.BooleanArray]:
    values, bad = [], []
    for content in column.to_pylist():
        unscaled = None if content is None or len(content) > _MAX_BYTES else int.from_bytes(content, signed=True)
        bad.append(content is not None and unscaled is None)
        values.append(None if unscaled is None else _written(unscaled, decimal))
    return pa.array(values, kind, from_pandas=False), pa.array(bad, pa.bool_())


def _written(unscaled: int, decimal: avro.Decimal) -> str | float:
    number = Decimal(unscaled).scaleb(-decimal.scale, _EXACT)
    return f"{number:f}" if decimal.column is LargeDecimals.STRING else float(number)


class AvroDecoder(SlicesDecoder):
    """Decoder of values that were written with the schema `writer`, to a column with the type of the schema `reader`.

    Raises:
        ConfigurationError: values of `writer` cannot be read as values of `reader`.
        UnsupportedDataError: no column can have the type of `reader`.
    """

    def __init__(self, writer: avro.AvroType, reader: avro.AvroType) -> None:
        self.kind = arrow_type(reader)
        self._reader = reader
        self._builder = ColumnBuilder(arrow_type(reader, as_read=True))
        self._program = AvroProgram(writer, reader, self._builder)
        self._arguments = self._program.kernel_arguments()
        self._room = (
            np.zeros((avro.MAX_DEPTH + 2, kernels.STACK_COLUMNS), np.int64),
            key_hash_table(self._builder.has_maps),
        )

    def read(self, slices: ByteSlices) -> Decoded:
        column, errors, reasons = self._builder.decoded(slices, kernels.decode_values, self._arguments, self._room)
        for row in np.flatnonzero(errors).tolist():
            reasons[row] = self._program.reason(int(errors[row]))[:REASON_SIZE]
        if column.type != self.kind:
            column, bad = converted(column, self._reader)
            rows = pc.indices_nonzero(bad).to_pylist()
            reasons |= dict.fromkeys(rows, TOO_LARGE)
            column = spliced(column, dict.fromkeys(rows))
        return Decoded(column, reasons)


def compile_kernels() -> None:
    """Compile or load the kernels that Avro needs, for `tiered-stream warm`."""
    AvroDecoder(avro.Primitive("int"), avro.Primitive("int")).decode(pa.scalar([b"\2"], pa.list_(pa.binary())).values)

"""Decoder of Avro values (datums without a header) to the column that Spark's `from_avro` would return.

Kernels read decimals of more than 38 digits as bytes, which become texts or DOUBLE here.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import partial

import numpy as np
import pyarrow as pa

from tiered_stream.formats.avro import avro_kernels as kernels
from tiered_stream.formats.avro import avro_schema as avro
from tiered_stream.formats.avro.avro_program import AvroProgram
from tiered_stream.formats.avro.avro_types import arrow_type, single_type
from tiered_stream.formats.columns.column_builder import ColumnBuilder
from tiered_stream.formats.columns.column_kernels import key_hash_table
from tiered_stream.formats.columns.conform import list_items, null_mask, with_items
from tiered_stream.formats.columns.decoded import REASON_SIZE, ByteSlices, Decoded, SlicesDecoder
from tiered_stream.formats.rows.row_choices import LargeDecimals

_EXACT = Context(prec=1000, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Context with room for each number of `kernels.MAX_NUMBER_BYTES`."""


def _converted(column: pa.Array, node: avro.AvroType) -> pa.Array:
    """Return a column of the Avro type `node` with large decimals as texts or DOUBLE.

    `column` has the type `arrow_type(node, as_read=True)`.
    """
    kind = arrow_type(node)
    if column.type == kind:
        return column
    if isinstance(node, avro.Union) and (one := single_type(node)) is not None:
        return _converted(column, one)
    if isinstance(node, avro.Primitive | avro.Fixed) and isinstance(node.logical, avro.Decimal):
        return pa.array(map(partial(_number, node.logical), column.to_pylist()), kind)
    below = node.values if isinstance(node, avro.Union) else tuple(avro.children(node))
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
        return Decoded(column if column.type == self.kind else _converted(column, self._reader), reasons)


def compile_kernels() -> None:
    """Compile or load the kernels that Avro needs, for `tiered-stream warm`."""
    AvroDecoder(avro.Primitive("int"), avro.Primitive("int")).decode(pa.scalar([b"\2"], pa.list_(pa.binary())).values)

"""Decoder of Avro values (datums without a header) to the column that Spark's `from_avro` would return."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.formats.avro import avro_kernels as kernels
from tiered_stream.formats.avro.avro_program import AvroProgram
from tiered_stream.formats.avro.avro_schema import MAX_DEPTH, AvroType, parse_avro_schema
from tiered_stream.formats.avro.avro_types import arrow_type
from tiered_stream.formats.avro.large_decimals import TOO_LARGE, converted
from tiered_stream.formats.columns.byte_kernels import key_hash_table
from tiered_stream.formats.columns.byte_slices import ByteSlices
from tiered_stream.formats.columns.column_builder import ColumnBuilder
from tiered_stream.formats.columns.decoded import REASON_SIZE, Decoded, SlicesDecoder, spliced
from tiered_stream.formats.rows.row_choices import AS_SPARK, AvroColumns


class AvroReader(SlicesDecoder):
    """Decoder of values that were written with the schema `writer`, to a column with the type of the schema `reader`.

    Raises:
        ConfigurationError: values of `writer` cannot be read as values of `reader`.
        UnsupportedDataError: no column can have the type of `reader`.
    """

    def __init__(self, writer: AvroType, reader: AvroType) -> None:
        self.kind = arrow_type(reader)
        self._reader = reader
        self._builder = ColumnBuilder(arrow_type(reader, as_read=True))
        self._program = AvroProgram(writer, reader, self._builder)
        self._arguments = self._program.kernel_arguments()
        self._room = np.zeros((MAX_DEPTH + 2, kernels.STACK_COLUMNS), np.int64), key_hash_table(self._builder.has_maps)

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


class AvroDecoder(AvroReader):
    """Decoder of values that were all written with one schema. The schema is given as JSON text."""

    def __init__(
        self, schema: str, reader: str | None = None, columns: AvroColumns = AS_SPARK
    ) -> None:  # fmt: skip
        """Prepare to decode values of `schema`, as values of `reader` if it is given (Spark: the option `avroSchema`).

        `columns` has the choices of columns.

        Raises:
            ConfigurationError: a schema is invalid, or values of `schema` cannot be read as values of `reader`.
            UnsupportedDataError: no column can have the schema's type.
        """
        writer = parse_avro_schema(schema, columns=columns)
        super().__init__(writer, writer if reader is None else parse_avro_schema(reader, columns=columns))


def compile_kernels() -> None:
    """Compile or load the kernels that Avro needs, for `tiered-stream warm`."""
    AvroDecoder('"int"').decode(pa.scalar([b"\2"], pa.list_(pa.binary())).values)

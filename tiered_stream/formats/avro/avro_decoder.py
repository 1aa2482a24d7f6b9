"""Decoder of Avro values (datums without a header) to a column that is equal to that of Spark's `from_avro`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.formats.avro import avro_kernels as kernels
from tiered_stream.formats.avro.avro_program import AvroProgram, avro_program
from tiered_stream.formats.avro.avro_schema import MOST_DEPTH, AvroType, parse_avro_schema
from tiered_stream.formats.avro.avro_types import arrow_type
from tiered_stream.formats.columns.byte_kernels import hash_room
from tiered_stream.formats.columns.byte_slices import ByteSlices
from tiered_stream.formats.columns.column_builder import TOO_LARGE, ColumnBuilder, Columns
from tiered_stream.formats.columns.decoded import REASON_SIZE, Decoded

_POWERS = np.array([divmod(10**digits, 1 << 64) for digits in range(39)], np.uint64)


class AvroDecoder:
    """Decoder of values that were all written with one schema."""

    def __init__(self, schema: str, reader: str | None = None) -> None:
        """Prepare to decode values of `schema`, as values of `reader` if it is given (Spark: the option `avroSchema`).

        Raises:
            ConfigurationError: a schema is invalid, or values of `schema` cannot be read as values of `reader`.
            UnsupportedDataError: no column can have the schema's type.
        """
        written = parse_avro_schema(schema)
        self._reader = AvroReader(written, written if reader is None else parse_avro_schema(reader))

    @property
    def kind(self) -> pa.DataType:
        return self._reader.kind

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return self._reader.read(ByteSlices.of(values))


class AvroReader:
    """Reader of values of the schema `written` as values of `wanted`.

    The constructor raises the errors of `AvroDecoder`.
    """

    def __init__(self, written: AvroType, wanted: AvroType) -> None:
        self.kind = arrow_type(wanted)
        self._builder = ColumnBuilder(self.kind)
        self._program = avro_program(written, wanted, self._builder)
        self._stack = np.zeros((MOST_DEPTH + 2, kernels.STACK_COLUMNS), np.int64)
        self._seen = hash_room(self._builder.has_maps)

    def read(self, slices: ByteSlices) -> Decoded:
        errors = np.zeros(len(slices), np.int64)
        program = self._program
        given = slices.kernel_arguments(), (program.operations, program.table, program.texts, _POWERS)
        room = self._stack, self._seen, errors

        def write(columns: Columns, row: int) -> int:
            return int(kernels.decode_values(*given, row, columns, *room))

        column, too_large = self._builder.build(len(slices), write)
        reasons = _reasons(program, errors)
        return Decoded(column, {**reasons, **dict.fromkeys(too_large, TOO_LARGE)})


def _reasons(program: AvroProgram, errors: np.ndarray[Any, Any]) -> dict[int, str]:
    return {int(row): program.reason(int(errors[row]) % 256, int(errors[row]) // 256)[:REASON_SIZE]
            for row in np.flatnonzero(errors)}  # fmt: skip


def compile_kernels() -> None:
    """Compile or load the kernels that Avro needs, for `tiered-stream warm`."""
    AvroDecoder('"int"').decode(pa.scalar([b"\2"], pa.list_(pa.binary())).values)

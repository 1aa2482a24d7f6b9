"""Decoder of Avro values that name their schema in a registry (`writer_schemas.py`), to a column of one schema.

A value's content is an Avro datum. Values of one schema are decoded together. The results are then put back in the
order of the values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from tiered_stream.errors import ConfigurationError, UnsupportedDataError
from tiered_stream.formats.avro.avro_decoder import AvroDecoder
from tiered_stream.formats.avro.avro_schema import AvroType, parse_avro_schema
from tiered_stream.formats.avro.avro_types import along_column, arrow_type, widened
from tiered_stream.formats.columns.conform import joined
from tiered_stream.formats.columns.decoded import REASON_SIZE, ByteSlices, Decoded, check_batch_memory, taken
from tiered_stream.formats.registry.schema_registry import RegisteredSchema, RegistrySettings
from tiered_stream.formats.registry.writer_schemas import NamedSchemas, NamingDecoder, Rows, grouped
from tiered_stream.formats.rows.row_choices import AS_SPARK, AvroColumns, Evolution

_MAX_READERS = 100
_WOULD_WIDEN = f"; the schema evolution {Evolution.WIDEN} would widen the column"


class RegistryDecoder(NamingDecoder[AvroType]):
    """Decoder of values with any schemas of a registry, which are read as values of the schema `reader`."""

    def __init__(
        self,
        settings: RegistrySettings,
        reader: str,
        referenced: Sequence[str] = (),
        *,
        header: str = "",
        evolution: Evolution = Evolution.NONE,
        column: pa.DataType | None = None,
        older: pa.DataType | None = None,
        columns: AvroColumns = AS_SPARK,
    ) -> None:
        """Prepare to read values as values of the schema `reader`.

        `referenced` are texts of schemas whose named types `reader` uses. `header` is the name of the record header
        that names schemas. `columns` states which columns some Avro types become. `column` is the type of the table's
        column. Number types of `reader` become as wide as in `column`.

        The attribute `kind` is the type of the decoded column. With `evolution`, it gets the fields that only a
        writer's schema has, and with `Evolution.WIDEN` also wider number types. Without `evolution`, it gets the fields
        of writers' schemas that the type `older` has.

        Raises:
            ConfigurationError: the settings or a schema are invalid.
            UnsupportedDataError: no column can have the schema's type.
        """
        super().__init__(settings, header, "AVRO", partial(_parsed, columns))
        self._evolution, self._older = evolution, older
        self._reader_schema = parse_avro_schema(reader, referenced, columns)
        if column is not None:
            self._reader_schema = along_column(self._reader_schema, column, widen=True)
        self._base = self._reader_schema
        self.kind = AvroDecoder(self._reader_schema, self._reader_schema).kind
        self._readers: LRUCache[int | UUID, AvroDecoder | str] = LRUCache(_MAX_READERS)

    def _decode(self, slices: ByteSlices, named: NamedSchemas, writers: Mapping[int, AvroType | str]) -> Decoded:
        if self._evolution is not Evolution.NONE or self._older is not None:
            self._widen(writers.values())
        contents = slices.after(named.sizes)
        groups = list(grouped(named.numbers))
        readers = [self._reader_of(number, named, writers) for number, _ in groups]
        if len(groups) == 1:
            return self._read(contents, readers[0])
        parts = (self._read(contents.take(rows), reader) for (_, rows), reader in zip(groups, readers, strict=True))
        return in_order(parts, [rows for _, rows in groups], self.kind)

    def _widen(self, writers: Collection[AvroType | str]) -> None:
        reader_schema, types = self._reader_schema, self._evolution is Evolution.WIDEN
        for writer in writers:
            if not isinstance(writer, str):
                if types:
                    joined(arrow_type(reader_schema), arrow_type(widened(self._base, writer, types=True)))
                elif self._older is not None:
                    writer = along_column(writer, self._older, widen=False)
                reader_schema = widened(reader_schema, writer, types=types)
        if reader_schema != self._reader_schema:
            self.kind = AvroDecoder(reader_schema, reader_schema).kind
            self._reader_schema = reader_schema
            self._readers.clear()

    def _read(self, contents: ByteSlices, reader: AvroDecoder | str) -> Decoded:
        if isinstance(reader, AvroDecoder):
            return reader.read(contents)
        rows = np.flatnonzero(contents.valid).tolist()
        return Decoded(pa.nulls(len(contents), self.kind), dict.fromkeys(rows, reader[:REASON_SIZE]))

    def _reader_of(self, number: int, named: NamedSchemas, writers: Mapping[int, AvroType | str]) -> AvroDecoder | str:
        """Return the decoder of values that name the schema `number`, or the reason why these values cannot be decoded.

        `number` is from `named.numbers`. Values without a schema, such as nulls, have the number `NONE`.
        """
        writer = writers[number]
        if isinstance(writer, str):
            return writer
        schema_id = named.id_of(number)
        reader = self._readers.get(schema_id)
        if reader is None:
            try:
                reader = AvroDecoder(writer, self._reader_schema)
            except (ConfigurationError, UnsupportedDataError) as error:
                reader = self._reason(schema_id, writer, str(error))
            self._readers[schema_id] = reader
        return reader

    def _reason(self, schema_id: int | UUID, writer: AvroType, error: str) -> str:
        """Return why values of the schema `writer` are not decoded, with a hint if wider columns would help."""
        hint = _WOULD_WIDEN if self._evolution is not Evolution.WIDEN and self._widens(writer) else ""
        return f"schema {schema_id}: {error}"[: REASON_SIZE - len(hint)] + hint

    def _widens(self, writer: AvroType) -> bool:
        """Return whether values of the schema `writer` could be decoded if columns became wider."""
        try:
            AvroDecoder(writer, widened(self._reader_schema, writer, types=True))
        except (ConfigurationError, UnsupportedDataError):
            return False
        return True


def _parsed(columns: AvroColumns, schema: RegisteredSchema) -> AvroType:
    return parse_avro_schema(schema.text, [*dict.fromkeys(text for _, text in schema.references)], columns)


def in_order(parts: Iterable[Decoded], groups: Sequence[Rows], kind: pa.DataType) -> Decoded:
    """Return the values of all `parts` in one column; the values of part i get the row indexes `groups[i]`.

    Without parts, the column is empty and has the type `kind`.

    Raises:
        LargeBatchError: the column of the values needs more than `MAX_BATCH_MEMORY`.
    """
    if not groups:
        return Decoded(pa.nulls(0, kind), {})
    columns: list[pa.Array] = []
    reasons: dict[int, str] = {}
    values, memory = sum(map(len, groups)), 0
    for part, rows in zip(parts, groups, strict=True):
        columns.append(part.column)
        reasons |= {int(rows[row]): why for row, why in part.reasons.items()}
        memory += part.column.nbytes
        check_batch_memory(memory, sum(map(len, columns)), values)
    column = pa.concat_arrays(columns)
    places = np.argsort(np.concatenate(groups), kind="stable")
    return Decoded(taken(column, places), reasons)

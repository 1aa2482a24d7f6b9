"""Decoder of Avro values that name their writer's schema in a schema registry, to a column of one reader's schema.

`writer_schemas.py` describes how a value names its schema. The bytes after the schema's id are an Avro datum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
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
from tiered_stream.formats.registry.writer_schemas import NamedSchemas, NamingDecoder, grouped, refused
from tiered_stream.formats.rows.row_choices import AS_SPARK, AvroColumns, Evolution

_MAX_READERS = 100
_WOULD_WIDEN = f"; the schema evolution {Evolution.WIDEN} would widen the column"


class RegistryDecoder(NamingDecoder[AvroType]):
    """Decoder of Avro values with any writers' schemas of a registry, resolved to the reader's schema `reader`."""

    def __init__(
        self,
        settings: RegistrySettings,
        reader: str,
        referenced: Sequence[str] = (),
        *,
        header: str = "",
        evolution: Evolution = Evolution.NONE,
        column: pa.DataType | None = None,
        columns: AvroColumns = AS_SPARK,
    ) -> None:
        """Prepare to decode Avro values with the reader's schema `reader`.

        The attribute `kind` is the Arrow type of the decoded column. `decode` may add fields of writers' schemas to it.

        Args:
            settings: addresses and login of the registry.
            reader: the reader's schema as JSON text.
            referenced: JSON texts of the schemas whose named types `reader` uses.
            header: name of the record header that names schemas.
            evolution: `ADD` adds each field that only a writer's schema has. `WIDEN` also widens number types. `NONE`
                adds only fields that `column` has.
            column: type of the values in the existing table, or None. With `WIDEN`, number types of `reader` become as
                wide as in `column`.
            columns: the user's choices of column types for some Avro types.

        Raises:
            ConfigurationError: the settings or a schema are invalid.
            UnsupportedDataError: Arrow has no column type for the schema.
        """
        super().__init__(settings, header, "AVRO", partial(_parsed, columns))
        self._evolution, self._column = evolution, column
        self._reader_schema = parse_avro_schema(reader, referenced, columns)
        if column is not None and evolution is Evolution.WIDEN:
            self._reader_schema = along_column(self._reader_schema, column, widen=True)
        self._base = self._reader_schema
        self.kind = AvroDecoder(self._reader_schema, self._reader_schema).kind
        self._readers: LRUCache[int | UUID, AvroDecoder | str] = LRUCache(_MAX_READERS)

    def _decode(self, slices: ByteSlices, named: NamedSchemas, writers: Mapping[int, AvroType | str]) -> Decoded:
        if self._evolution is not Evolution.NONE or self._column is not None:
            self._widen(writers.values())
        reasons = refused(slices, named, writers)
        contents = slices.after(named.sizes, reasons)
        usable = np.flatnonzero(contents.valid)
        if not len(usable):
            return Decoded(pa.nulls(len(slices), self.kind), reasons)
        numbers = np.where(contents.valid, named.numbers, named.numbers[usable[0]])  # a null is null by any schema
        groups = list(grouped(numbers))
        if len(groups) == 1:
            number, _ = groups[0]
            part = self._read(contents, named.id_of(number), writers[number])
            return Decoded(part.column, {**part.reasons, **reasons})
        columns, order = [pa.nulls(0, self.kind)], [np.zeros(0, np.int64)]
        memory = count = 0
        for number, rows in groups:
            part = self._read(contents.take(rows), named.id_of(number), writers[number])
            columns.append(part.column)
            order.append(rows)
            memory += part.column.nbytes
            check_batch_memory(memory, count, len(slices))
            count += len(rows)
            reasons |= {int(rows[row]): why for row, why in part.reasons.items()}
        places = np.argsort(np.concatenate(order), kind="stable")
        return Decoded(taken(pa.concat_arrays(columns), places), reasons)

    def _widen(self, writers: Collection[AvroType | str]) -> None:
        reader_schema, types = self._reader_schema, self._evolution is Evolution.WIDEN
        for writer in writers:
            if not isinstance(writer, str):
                if types:
                    joined(arrow_type(reader_schema), arrow_type(widened(self._base, writer, types=True)))
                elif self._evolution is Evolution.NONE and self._column is not None:
                    writer = along_column(writer, self._column, widen=False)
                reader_schema = widened(reader_schema, writer, types=types)
        if reader_schema != self._reader_schema:
            self.kind = AvroDecoder(reader_schema, reader_schema).kind
            self._reader_schema = reader_schema
            self._readers.clear()

    def _read(self, contents: ByteSlices, schema_id: int | UUID, writer: AvroType | str) -> Decoded:
        assert not isinstance(writer, str), "`refused` has the values without a usable schema"
        reader = self._readers.get(schema_id)
        if reader is None:
            reader = self._readers[schema_id] = self._new_reader(schema_id, writer)
        if isinstance(reader, AvroDecoder):
            return reader.read(contents)
        rows = np.flatnonzero(contents.valid).tolist()
        return Decoded(pa.nulls(len(contents), self.kind), dict.fromkeys(rows, reader))

    def _new_reader(self, schema_id: int | UUID, writer: AvroType) -> AvroDecoder | str:
        try:
            return AvroDecoder(writer, self._reader_schema)
        except (ConfigurationError, UnsupportedDataError) as error:
            reason, hint = f"schema {schema_id}: {error}", ""
        if self._evolution is not Evolution.WIDEN:
            with suppress(ConfigurationError, UnsupportedDataError):
                AvroDecoder(writer, widened(self._reader_schema, writer, types=True))
                hint = _WOULD_WIDEN
        return reason[: REASON_SIZE - len(hint)] + hint


def _parsed(columns: AvroColumns, schema: RegisteredSchema) -> AvroType:
    return parse_avro_schema(schema.text, [*dict.fromkeys(text for _, text in schema.references)], columns)

"""Decoder of JSON values that name their schema in a schema registry, to a struct column.

`writer_schemas.py` describes how a value names its schema. The bytes after the schema's id are a JSON document. A
document names its fields, so one struct type fits documents of all schemas. A schema only gives the document's title,
and new fields for the struct type.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa

from tiered_stream.formats.columns.conform import grown
from tiered_stream.formats.columns.decoded import ByteSlices, Decoded
from tiered_stream.formats.json.json_decoder import JsonDecoder
from tiered_stream.formats.json.json_schema import json_schema_kind, json_schema_title
from tiered_stream.formats.registry.schema_registry import RegisteredSchema, RegistrySettings
from tiered_stream.formats.registry.writer_schemas import NamedSchemas, NamingDecoder, refused
from tiered_stream.formats.rows.row_choices import Evolution


class RegistryJsonDecoder(NamingDecoder[pa.StructType]):
    """Decoder of JSON documents that name any JSON Schema of a registry, to a column of one struct type.

    The struct type may get new fields from the JSON Schemas.
    """

    def __init__(
        self, settings: RegistrySettings, kind: pa.StructType, zone: str = "UTC", *, record: str = "",
        evolution: Evolution = Evolution.NONE, header: str = "",
    ) -> None:  # fmt: skip
        """Prepare to decode JSON documents to the struct type `kind`.

        `zone` is the session's time zone, for timestamps without a zone. `record` is the title that a document's schema
        must have; '' accepts any title. `header` is the name of the record header that names schemas. If `evolution` is
        `ADD` or `WIDEN`, `decode` adds fields that only a document's schema has to the attribute `kind`. `WIDEN` also
        widens number types.

        Raises:
            ConfigurationError: the settings are invalid, JSON cannot be read into `kind`, or `zone` is unknown.
        """
        super().__init__(settings, header, "JSON", self._parsed)
        self.kind, self._base = kind, kind
        self._zone, self._record, self._evolution = zone, record, evolution
        self._decoder = JsonDecoder(kind, zone, widens=evolution is Evolution.WIDEN)

    def _decode(self, slices: ByteSlices, named: NamedSchemas, writers: Mapping[int, pa.StructType | str]) -> Decoded:
        base = reduce(grown, (writer for writer in writers.values() if not isinstance(writer, str)), self._base)
        if base != self._base:
            self._base = base
            self._decoder = JsonDecoder(base, self._zone, widens=self._evolution is Evolution.WIDEN)
        reasons = refused(slices, named, writers)
        decoded = self._decoder.read(slices.after(named.sizes, reasons))
        self.kind = self._decoder.kind
        return Decoded(decoded.column, {**decoded.reasons, **reasons})

    def _parsed(self, schema: RegisteredSchema) -> pa.StructType | str:
        """Return the struct type that a JSON Schema describes, without fields if the table's schema must not change.

        If the schema does not have the wanted title, return a text: why its documents do not become rows.
        """
        record = json_schema_title(schema.text) if self._record else ""
        if record != self._record:
            return f"is of {record[:80]!r}, not {self._record[:80]!r}"
        grows = self._evolution is not Evolution.NONE
        return json_schema_kind(schema.text, dict(schema.references)) if grows else pa.struct([])

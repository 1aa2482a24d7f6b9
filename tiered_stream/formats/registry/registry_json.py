"""Decoder of JSON values that name their schema in a registry (`schema_ids.py`), to a struct column.

A value's content is a JSON document. The document names its fields, so all documents are read by one type. The writer's
schema only states that the value is JSON, which record it is, and by which fields a column may grow.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tiered_stream.formats.columns.byte_slices import ByteSlices
from tiered_stream.formats.columns.decoded import REASON_SIZE, Decoded, SlicesDecoder
from tiered_stream.formats.columns.schema_growth import grown
from tiered_stream.formats.json.json_decoder import JsonDecoder
from tiered_stream.formats.json.json_schema import json_schema_kind, json_schema_title
from tiered_stream.formats.json.json_widening import WideningJsonDecoder
from tiered_stream.formats.registry.registry_connection import RegistrySettings
from tiered_stream.formats.registry.schema_ids import NamedSchemas, NamingDecoder
from tiered_stream.formats.registry.schema_registry import RegisteredSchema, schema_registry
from tiered_stream.formats.registry.writer_schemas import WriterSchemas
from tiered_stream.formats.rows.row_choices import Evolution


@dataclass(frozen=True, slots=True)
class JsonTarget:
    """Type and settings for reading documents.

    `record` is the title of the documents' schemas if a topic may have several, else ''. `zone` is the session's time
    zone, for timestamps without a zone.
    """

    kind: pa.StructType
    zone: str = "UTC"
    record: str = ""
    evolution: Evolution = Evolution.NONE

    def decoder(self) -> SlicesDecoder:
        """Return the decoder of documents without a schema id in front."""
        widens = self.evolution is Evolution.WIDEN
        return WideningJsonDecoder(self.kind, self.zone) if widens else JsonDecoder(self.kind, self.zone)


class RegistryJsonDecoder(NamingDecoder):
    """Decoder of documents with any JSON Schemas of a registry, to one type that may grow by fields of the schemas."""

    def __init__(self, settings: RegistrySettings, target: JsonTarget, *, header: str = "") -> None:
        """Prepare to decode documents into `target`. `header` is the record header that names schemas.

        Raises ConfigurationError if the settings are invalid, or in the cases of `JsonDecoder`.
        """
        super().__init__(header)
        self._writers: WriterSchemas[pa.StructType] = WriterSchemas(schema_registry(settings), "JSON", self._parsed)
        self._settings = target
        self._kind = target.kind
        self._decoder = target.decoder()

    @property
    def kind(self) -> pa.DataType:
        return self._decoder.kind

    def _decode(self, slices: ByteSlices, named: NamedSchemas) -> Decoded:
        writers = self._writers.of(named)
        self._grow([each for each in writers.values() if not isinstance(each, str)])
        whys = {number: each[:REASON_SIZE] for number, each in writers.items() if isinstance(each, str)}
        refused = np.isin(named.numbers, list(whys)) & (slices.valid != 0)
        decoded = self._decoder.read(slices.only(~refused).after(named.sizes))
        rows = np.flatnonzero(refused)
        reasons = {row: whys[each] for row, each in zip(rows.tolist(), named.numbers[rows].tolist(), strict=True)}
        return Decoded(decoded.column, {**decoded.reasons, **reasons})

    def _grow(self, writers: Collection[pa.StructType]) -> None:
        kind = self._kind
        for each in writers:
            kind = grown(kind, each)
        if kind != self._kind:
            self._kind = kind
            self._decoder = JsonTarget(kind, self._settings.zone, evolution=self._settings.evolution).decoder()

    def _parsed(self, found: RegisteredSchema) -> pa.StructType | str:
        """Return the fields by which a column may grow, or a text with the reason why values of the schema have no row.

        Without evolution there are no such fields.
        """
        record = json_schema_title(found.text) if self._settings.record else ""
        if record != self._settings.record:
            return f"is of {record[:80]!r}, not {self._settings.record[:80]!r}"
        grows = self._settings.evolution is not Evolution.NONE
        return json_schema_kind(found.text, dict(found.references)) if grows else pa.struct([])

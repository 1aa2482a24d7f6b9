"""Decoder of JSON documents whose numbers may outgrow integer columns: the column's type becomes wider from then on.

A type is widened only as far as a document needs, and only if the document then decodes, so that garbage changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.formats.columns.byte_slices import ByteSlices
from tiered_stream.formats.columns.decoded import Decoded, SlicesDecoder
from tiered_stream.formats.columns.schema_growth import joined
from tiered_stream.formats.json.exact_json import ExactJson
from tiered_stream.formats.json.json_decoder import JsonDecoder
from tiered_stream.formats.json.json_text import Fields, Integer, Real, parse_json

_NARROW = (pa.int8(), pa.int16(), pa.int32())
_LONGS = range(-(1 << 63), 1 << 63)


class WideningJsonDecoder(SlicesDecoder):
    """Decoder of JSON documents to a type whose integer columns become wider if a document needs it.

    The constructor raises ConfigurationError as `JsonDecoder` does.
    """

    def __init__(self, kind: pa.StructType, zone: str) -> None:
        self.kind, self._base, self._zone = kind, kind, zone
        self._decoder = JsonDecoder(kind, zone)

    def read(self, slices: ByteSlices) -> Decoded:
        """Decode values, with a wider type if documents need it.

        Raises UnsupportedDataError if a number would become wider in two ways.
        """
        decoded = self._decoder.read(slices)
        needed = reduce(joined, self._needed(slices, decoded.reasons), self.kind)
        if needed == self.kind:
            return decoded
        self.kind, self._decoder = needed, JsonDecoder(needed, self._zone)
        return self._decoder.read(slices)

    def _needed(self, slices: ByteSlices, slots: Iterable[int]) -> Iterable[pa.StructType]:
        """Yield, for each document in `slots` that a wider type makes decodable, the type that it needs.

        The type is the column's original type, with wider types only for the document's own numbers.
        """
        for slot in slots:
            document = slices.value(slot)
            try:
                kind = needed_type(self._base, parse_json(document))
                if kind != self._base:
                    ExactJson(kind, self._zone).row(document)
                    yield kind
            except (CorruptDataError, UnsupportedDataError):
                continue


def json_decoder(kind: pa.StructType, zone: str, *, widens: bool) -> JsonDecoder | WideningJsonDecoder:
    """Return the decoder of documents to the type `kind`, which becomes wider for them if `widens`."""
    return WideningJsonDecoder(kind, zone) if widens else JsonDecoder(kind, zone)


def needed_type(kind: pa.DataType, value: Any) -> pa.DataType:
    """Return the type `kind`, but with the wider number types that a parsed value needs."""
    if types.is_struct(kind) and type(value) is Fields:
        members = dict(value)
        return pa.struct([(field.name, needed_type(field.type, members.get(field.name))) for field in kind])
    if types.is_list(kind) and isinstance(value, list):
        items = (needed_type(kind.value_type, element) for element in value)
        return pa.list_(pa.field("element", reduce(joined, items, kind.value_type)))
    if kind in _NARROW and type(value) is Real:
        return pa.float64()
    if kind in _NARROW and type(value) is Integer:
        limit = 1 << (kind.bit_width - 1)
        return kind if -limit <= int(value) < limit or int(value) not in _LONGS else pa.int64()
    return kind

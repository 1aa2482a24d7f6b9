"""Decoder of JSON documents that widens the type of an integer column if a document has a number that does not fit.

The type is widened only as far as the document needs, and only if the document then decodes. So a malformed document
changes no type. Later documents are decoded to the wider type.
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
    """Decoder of JSON documents to a type whose integer columns become wider if a document's number does not fit.

    Raises:
        ConfigurationError: JSON cannot be read into `kind`, or the zone is unknown.
    """

    def __init__(self, kind: pa.StructType, zone: str) -> None:
        self.kind, self._base, self._zone = kind, kind, zone
        self._decoder = JsonDecoder(kind, zone)

    def read(self, slices: ByteSlices) -> Decoded:
        """Decode values. If documents need wider types, `kind` becomes wider for these and all later values.

        Raises UnsupportedDataError if documents need two types for one field, and no type holds the values of both.
        """
        decoded = self._decoder.read(slices)
        needed = reduce(joined, self._needed(slices, decoded.reasons), self.kind)
        if needed == self.kind:
            return decoded
        self.kind, self._decoder = needed, JsonDecoder(needed, self._zone)
        return self._decoder.read(slices)

    def _needed(self, slices: ByteSlices, slots: Iterable[int]) -> Iterable[pa.StructType]:
        """Yield the type that each document needs, among the documents with the indexes `slots`.

        Only documents that decode to a wider type count. The type is the original type of the column, with wider types
        for the document's numbers.
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
    """Return a decoder of documents to the type `kind`. If `widens` is True, documents can make this type wider."""
    return WideningJsonDecoder(kind, zone) if widens else JsonDecoder(kind, zone)


def needed_type(kind: pa.DataType, value: Any) -> pa.DataType:
    """Return the type `kind` with the wider number types that `value`, a result of `parse_json`, needs.

    Only types of integers with at most 32 bits change: to double for a number with a fraction or an exponent, and to
    int64 for a larger integer. An integer that does not fit into int64 changes nothing.
    """
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

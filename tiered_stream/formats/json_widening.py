"""JSON documents whose whole numbers outgrow their columns: the column's type becomes wider, from then on.

Only what a document needs is widened, and only by documents that then decode, so that garbage changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import CorruptDataError, UnsupportedDataError
from tiered_stream.formats.decoded import Decoded
from tiered_stream.formats.exact_json import ExactJson
from tiered_stream.formats.json_decoder import JsonDecoder
from tiered_stream.formats.json_text import Fields, Integer, Real, parse_json
from tiered_stream.formats.schema_growth import joined

_NARROW = (pa.int8(), pa.int16(), pa.int32())
_LONGS = range(-(1 << 63), 1 << 63)


class WideningJsonDecoder:
    """As `JsonDecoder`, of a type that may become wider. Raises ConfigurationError as that."""

    def __init__(self, kind: pa.StructType, zone: str) -> None:
        self._base, self._zone = kind, zone
        self._decoder = JsonDecoder(kind, zone)

    @property
    def kind(self) -> pa.StructType:
        return self._decoder.kind

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Raises UnsupportedDataError: a number becomes wider in two ways."""
        decoded = self._decoder.decode(values)
        needed = reduce(joined, self._needed(values, decoded.reasons), self.kind)
        if needed == self.kind:
            return decoded
        self._decoder = JsonDecoder(needed, self._zone)
        return self._decoder.decode(values)

    def _needed(self, values: pa.BinaryArray, slots: Iterable[int]) -> Iterable[pa.StructType]:
        """What documents need that have not decoded, each by itself: as it was at first, but for their own numbers."""
        for slot in slots:
            document = values[slot].as_py()
            try:
                kind = needed_type(self._base, parse_json(document))
                if kind != self._base:
                    ExactJson(kind, self._zone).row(document)
                    yield kind
            except (CorruptDataError, UnsupportedDataError):
                continue


def needed_type(kind: pa.DataType, value: Any) -> pa.DataType:
    """The type with wider numbers where a parsed value has such."""
    if types.is_struct(kind) and type(value) is Fields:
        given = dict(value)
        return pa.struct([(each.name, needed_type(each.type, given.get(each.name))) for each in kind])
    if types.is_list(kind) and isinstance(value, list):
        items = (needed_type(kind.value_type, each) for each in value)
        return pa.list_(pa.field("element", reduce(joined, items, kind.value_type)))
    if kind in _NARROW and type(value) is Real:
        return pa.float64()
    if kind in _NARROW and type(value) is Integer:
        limit = 1 << (kind.bit_width - 1)
        return kind if -limit <= int(value) < limit or int(value) not in _LONGS else pa.int64()
    return kind

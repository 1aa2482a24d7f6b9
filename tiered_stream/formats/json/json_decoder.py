"""Decoder of JSON documents to a struct column, by the rules of Spark's `from_json` with its default options.

`json_kernels.py` decodes the values whose meaning is certain. `exact_json.py` decodes all other values in Python. If a
field does not fit its type, Spark returns null for the field. Here, the whole value becomes null and has a reason.
`docs/guides/json-types.md` lists the types and the differences from Spark.

A decoder may widen the type of an integer column if a document has a number that does not fit. The type becomes as wide
as the document needs, and only if the document then decodes. Later documents are decoded to the wider type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import ConfigurationError, CorruptDataError, UnsupportedDataError
from tiered_stream.formats.columns.column_builder import ColumnBuilder
from tiered_stream.formats.columns.conform import joined, list_of
from tiered_stream.formats.columns.decoded import ByteSlices, Decoded, SlicesDecoder, with_exact_rows
from tiered_stream.formats.json import json_kernels as kernels
from tiered_stream.formats.json.exact_json import ExactJson, seconds_east
from tiered_stream.formats.json.json_text import Fields, Integer, Real, parse_json
from tiered_stream.formats.json.json_text_kernels import MAX_NESTING


class JsonDecoder(SlicesDecoder):
    """Decoder of JSON documents to a struct column.

    Args:
        kind: the column's type, as pyspark's `to_arrow_schema` returns it.
        zone: the session's time zone (`spark.sql.session.timeZone`), for timestamps without a zone.
        widens: True if integer columns become wider when a document has a number that does not fit. The column never
            gets new fields.

    Raises:
        ConfigurationError: JSON cannot be read into the type, or the zone is unknown.
        UnsupportedDataError: the type is one that no decoder can write.
    """

    def __init__(self, kind: pa.StructType, zone: str = "UTC", *, widens: bool = False) -> None:
        if seconds_east(zone, 0) is None:
            raise ConfigurationError(f"the time zone {zone!r} is unknown; take one such as UTC or Europe/Berlin")
        self._base, self._zone, self._widens = kind, zone, widens
        self._room = (np.zeros(kernels.STACK_SHAPE, np.int64),)
        self._prepare(kind)

    def _prepare(self, kind: pa.StructType) -> None:
        self.kind = kind
        self._builder = ColumnBuilder(kind)
        self._program = _program(self._builder, is_utc=self._zone in ("UTC", "Etc/UTC", "Z", "GMT"))
        self._exact = ExactJson(kind, self._zone)

    def read(self, slices: ByteSlices) -> Decoded:
        """Decode the documents of `slices`; return the column, and the reason of each document that does not decode.

        With `widens`, the attribute `kind` becomes wider for these and all later documents, if documents need it.

        Raises:
            UnsupportedDataError: documents need two types for one field, and no type holds the values of both.
        """
        column, errors, reasons = self._builder.decoded(slices, kernels.append_documents, self._program, self._room)
        column = with_exact_rows(column, slices, np.flatnonzero(errors).tolist(), self._exact.row, reasons)
        needed = reduce(joined, self._needed(slices, reasons), self.kind) if self._widens else self.kind
        if needed == self.kind:
            return Decoded(column, reasons)
        self._prepare(needed)
        return self.read(slices)

    def _needed(self, slices: ByteSlices, slots: Iterable[int]) -> Iterator[pa.StructType]:
        """Yield the column type that is needed for each document in `slots` that decodes only with wider number types.

        `slots` are indexes of documents. A yielded type is the column's original type, with wider types for numbers of
        the document. A document that decodes with no wider type is left out.
        """
        for slot in slots:
            document = slices.value(slot)
            with suppress(CorruptDataError, UnsupportedDataError):
                kind = needed_type(self._base, parse_json(document))
                if kind != self._base:
                    ExactJson(kind, self._zone).row(document)
                    yield kind


def compile_kernels() -> None:
    """Compile the kernels of the JSON decoder, or load them from the cache. `tiered-stream warm` calls this."""
    JsonDecoder(pa.struct([("a", pa.int64())])).decode(pa.scalar([b"{}"], pa.list_(pa.binary())).values)


def _program(builder: ColumnBuilder, is_utc: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rows, names, depths = [], bytearray(), {0: 0}
    for node, field in enumerate(builder.fields):
        kind, form, name = field.type, _form(field.type), f'"{field.name}"'.encode()
        depths |= dict.fromkeys(builder.children[node], depths[node] + 1)
        scale = limit = 0
        if types.is_decimal(kind):
            scale, limit = kind.scale, 10 ** min(kind.precision, 18)
        elif types.is_timestamp(kind):
            scale = is_utc
        fields = len(builder.children[node])
        rows.append([form, _OPENINGS.get(form, -1), len(names), len(name), -1, -1, fields, scale, limit])
        names += name.ljust(len(name) + 8, b"\0")
    if max(depths.values()) > MAX_NESTING:
        raise ConfigurationError(f"the schema goes deeper than {MAX_NESTING} levels")
    return np.array(rows, np.int64), np.frombuffer(bytes(names), np.uint8)


_OPENINGS = {kernels.OBJECT: ord("{"), kernels.MAP: ord("{"), kernels.ARRAY: ord("[")}
_FORMS = {
    pa.null(): kernels.OTHER, pa.bool_(): kernels.BOOLEAN, pa.float32(): kernels.FLOAT, pa.float64(): kernels.DOUBLE,
    pa.string(): kernels.STRING, pa.binary(): kernels.OTHER, pa.date32(): kernels.DATE,
    pa.timestamp("us", tz="UTC"): kernels.TIMESTAMP, pa.timestamp("us"): kernels.LOCAL_TIMESTAMP,
}  # fmt: skip


_FORMS_OF_KINDS = (
    (types.is_map, kernels.MAP), (types.is_struct, kernels.OBJECT), (types.is_list, kernels.ARRAY),
    (types.is_signed_integer, kernels.INTEGER), (types.is_decimal, kernels.DECIMAL),
)  # fmt: skip


def _form(kind: pa.DataType) -> int:
    if types.is_map(kind) and kind.key_type != pa.string():
        raise ConfigurationError(f"a key of JSON is a string, so no map can be {kind}")
    if types.is_struct(kind) and len({*kind.names}) < kind.num_fields:
        raise ConfigurationError(f"a struct has two fields of one name: {', '.join(kind.names)}")
    form = next((form for is_kind, form in _FORMS_OF_KINDS if is_kind(kind)), _FORMS.get(kind))
    if form is None:
        raise ConfigurationError(f"JSON cannot be read into a column of the type {kind}")
    return form


_NARROW = (pa.int8(), pa.int16(), pa.int32())
_LONGS = range(-(1 << 63), 1 << 63)


def needed_type(kind: pa.DataType, value: Any) -> pa.DataType:
    """Return the type `kind` with wider number types where `value`, a result of `parse_json`, needs them.

    Only types of integers with at most 32 bits change: to double for a number with a fraction or an exponent, and to
    int64 for a larger integer. An integer that does not fit into int64 changes nothing.
    """
    if types.is_struct(kind) and type(value) is Fields:
        members = dict(value)
        return pa.struct([(field.name, needed_type(field.type, members.get(field.name))) for field in kind])
    if types.is_list(kind) and isinstance(value, list):
        items = (needed_type(kind.value_type, element) for element in value)
        return list_of(reduce(joined, items, kind.value_type))
    if kind in _NARROW and type(value) is Real:
        return pa.float64()
    if kind in _NARROW and type(value) is Integer:
        limit = 1 << (kind.bit_width - 1)
        return kind if -limit <= int(value) < limit or int(value) not in _LONGS else pa.int64()
    return kind

"""Decoder of JSON documents to a struct column, by the rules of Spark's `from_json` with its default options.

`json_kernels.py` decodes the values whose meaning is certain. `exact_json.py` decodes each other value in Python. If a
field does not fit its type, Spark returns null for the field. Here, the whole value becomes null and has a reason.
`docs/guides/json-types.md` lists the types and the differences from Spark.

`WideningJsonDecoder` widens the type of an integer column if a document has a number that does not fit. The type
becomes as wide as the document needs, and only if the document then decodes. Later documents are decoded to the wider
type.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import ConfigurationError, CorruptDataError, UnsupportedDataError
from tiered_stream.formats.columns.column_builder import ColumnBuilder
from tiered_stream.formats.columns.conform import joined
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

    Raises:
        ConfigurationError: JSON cannot be read into the type, or the zone is unknown.
    """

    def __init__(self, kind: pa.StructType, zone: str = "UTC") -> None:
        if seconds_east(zone, 0) is None:
            raise ConfigurationError(f"the time zone {zone!r} is unknown; take one such as UTC or Europe/Berlin")
        self.kind = kind
        self._builder = ColumnBuilder(kind)
        self._program = _program(self._builder, is_utc=zone in ("UTC", "Etc/UTC", "Z", "GMT"))
        self._room = (np.zeros(kernels.STACK_SHAPE, np.int64),)
        self._exact = ExactJson(kind, zone)

    def read(self, slices: ByteSlices) -> Decoded:
        column, errors, reasons = self._builder.decoded(slices, kernels.append_documents, self._program, self._room)
        slots = np.flatnonzero(errors).tolist()
        return Decoded(with_exact_rows(column, slices, slots, self._exact.row, reasons), reasons)


def compile_kernels() -> None:
    """Compile or load the kernels that JSON needs, for `tiered-stream warm`."""
    JsonDecoder(pa.struct([("a", pa.int64())])).decode(pa.scalar([b"{}"], pa.list_(pa.binary())).values)


def _program(builder: ColumnBuilder, is_utc: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    depths = [0]
    for _, parent, _ in builder.fields[1:]:
        depths.append(depths[parent] + 1)
    if max(depths) > MAX_NESTING:
        raise ConfigurationError(f"the schema goes deeper than {MAX_NESTING} levels")
    plan = np.zeros((len(builder.fields), kernels.PLAN_COLUMNS), np.int64)
    plan[:, [kernels.FOLLOWS, kernels.BEGINS]] = -1
    names = bytearray()
    for node, (row, (field, _, _)) in enumerate(zip(plan, builder.fields, strict=True)):
        name = f'"{field.name}"'.encode()
        row[kernels.FORM], row[kernels.NAME_AT], row[kernels.NAME_SIZE] = _form(field.type), len(names), len(name)
        names += name.ljust(len(name) + 8, b"\0")
        row[kernels.FIELDS] = len(list(builder.children(node)))
        row[kernels.OPENING] = _OPENINGS.get(row[kernels.FORM], -1)
        if types.is_decimal(field.type):
            row[kernels.SCALE], row[kernels.LIMIT] = field.type.scale, 10 ** min(field.type.precision, 18)
        elif types.is_timestamp(field.type):
            row[kernels.SCALE] = is_utc
    return plan, np.frombuffer(bytes(names), np.uint8)


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


class WideningJsonDecoder(SlicesDecoder):
    """Decoder of JSON documents to the type `kind`, whose integer columns become wider if a number does not fit.

    `zone` is the session's time zone, for timestamps without a zone.

    Raises:
        ConfigurationError: JSON cannot be read into `kind`, or `zone` is unknown.
    """

    def __init__(self, kind: pa.StructType, zone: str) -> None:
        self.kind, self._base, self._zone = kind, kind, zone
        self._decoder = JsonDecoder(kind, zone)

    def read(self, slices: ByteSlices) -> Decoded:
        """Decode the documents of `slices`; return the column, and the reason of each document that does not decode.

        If documents need wider types, the attribute `kind` becomes wider for these and all later documents.

        Raises:
            UnsupportedDataError: documents need two types for one field, and no type holds the values of both.
        """
        decoded = self._decoder.read(slices)
        needed = reduce(joined, self._needed(slices, decoded.reasons), self.kind)
        if needed == self.kind:
            return decoded
        self.kind, self._decoder = needed, JsonDecoder(needed, self._zone)
        return self._decoder.read(slices)

    def _needed(self, slices: ByteSlices, slots: Iterable[int]) -> Iterable[pa.StructType]:
        """Yield, for each document in `slots` that decodes to a wider type only, this wider type.

        `slots` are indexes of documents. The type is the original type of the column, with wider types for the
        document's numbers.
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
    """Return a decoder of JSON documents to a struct column of the type `kind`.

    If `widens` is True, an integer column of the struct becomes BIGINT or DOUBLE when a document has a number that does
    not fit. The struct never gets new fields. `zone` is the session's time zone, for timestamps without a zone.

    Raises:
        ConfigurationError: JSON cannot be read into `kind`, or `zone` is unknown.
    """
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

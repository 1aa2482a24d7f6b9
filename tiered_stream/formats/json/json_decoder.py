"""Decoder of JSON documents to a struct column, by the rules of Spark's `from_json` with its default options.

`json_kernels.py` decodes the values whose meaning is certain. `exact_json.py` decodes each other value in Python. If a
field does not fit its type, Spark returns null for the field. Here, the whole value becomes null and has a reason.
`docs/guides/json-types.md` lists the types and the differences from Spark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.columns.byte_slices import ByteSlices
from tiered_stream.formats.columns.column_builder import ColumnBuilder
from tiered_stream.formats.columns.decoded import Decoded, SlicesDecoder, with_exact_rows
from tiered_stream.formats.json import json_kernels as kernels
from tiered_stream.formats.json.exact_json import ExactJson
from tiered_stream.formats.json.json_text_kernels import MAX_NESTING
from tiered_stream.formats.json.spark_texts import seconds_east


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
    plan[:, kernels.FOLLOWS] = -1
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


def _form(kind: pa.DataType) -> int:
    if types.is_map(kind):
        if kind.key_type != pa.string():
            raise ConfigurationError(f"a key of JSON is a string, so no map can be {kind}")
        return kernels.MAP
    if types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"a struct has two fields of one name: {', '.join(names)}")
        return kernels.OBJECT
    if types.is_list(kind):
        return kernels.ARRAY
    if types.is_signed_integer(kind):
        return kernels.INTEGER
    if types.is_decimal(kind):
        return kernels.DECIMAL
    if kind not in _FORMS:
        raise ConfigurationError(f"JSON cannot be read into a column of the type {kind}")
    return _FORMS[kind]

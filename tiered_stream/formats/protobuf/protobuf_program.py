"""Tables by which a kernel reads a message: its fields by number, and the column's node that each field fills."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from tiered_stream.formats.columns.column_builder import ColumnBuilder
from tiered_stream.formats.protobuf import protobuf_kernels as kernels
from tiered_stream.formats.protobuf.protobuf_schema import is_map, time_type

Table = np.ndarray[Any, Any]

_OF = FieldDescriptor
_CODECS = {
    _OF.TYPE_INT32: kernels.INT32, _OF.TYPE_UINT32: kernels.INT32, _OF.TYPE_INT64: kernels.INT64,
    _OF.TYPE_UINT64: kernels.INT64, _OF.TYPE_SINT32: kernels.SINT32, _OF.TYPE_SINT64: kernels.SINT64,
    _OF.TYPE_BOOL: kernels.BOOL, _OF.TYPE_ENUM: kernels.ENUM, _OF.TYPE_FIXED32: kernels.FIXED32,
    _OF.TYPE_SFIXED32: kernels.FIXED32, _OF.TYPE_FIXED64: kernels.FIXED64, _OF.TYPE_SFIXED64: kernels.FIXED64,
    _OF.TYPE_FLOAT: kernels.FLOAT, _OF.TYPE_DOUBLE: kernels.DOUBLE, _OF.TYPE_STRING: kernels.TEXT,
    _OF.TYPE_BYTES: kernels.BYTES,
}  # fmt: skip
_WIRES = {
    **dict.fromkeys((kernels.FIXED32, kernels.FLOAT), (kernels.FOUR, 4)),
    **dict.fromkeys((kernels.FIXED64, kernels.DOUBLE), (kernels.EIGHT, 8)),
}


def protobuf_program(message: Descriptor, builder: ColumnBuilder) -> tuple[Table, Table, Table, Table]:
    """Return the program that reads `message` into the builder's columns, which have the message's type.

    The program is (messages, fields, table, texts), as `protobuf_kernels` describes them. The table has the numbers of
    enums in order, and the positions and sizes of their names in the texts.
    """
    compiler = _Compiler(builder)
    compiler.add(message, 0, False)
    return (
        np.array(compiler.messages, np.int64), np.array(compiler.fields, np.int64).reshape(-1, kernels.FIELD_COLUMNS),
        np.array(compiler.table or [(0, 0, 0)], np.int64), np.frombuffer(bytes(compiler.texts) or b"\0", np.uint8),
    )  # fmt: skip


def symbols(enum: EnumDescriptor) -> dict[int, str]:
    """Return the names of an enum by their numbers. If a number has several names, the first counts, as in Java."""
    return {value.number: value.name for value in reversed(enum.values)}


class _Compiler:
    def __init__(self, builder: ColumnBuilder) -> None:
        self.messages: list[tuple[int, int, int]] = []
        self.fields: list[list[int]] = []
        self.table: list[tuple[int, int, int]] = []
        self.texts = bytearray()
        self._builder = builder

    def add(self, message: Descriptor, node: int, is_entry: bool) -> int:
        """Add a message whose struct is the node `node`, and the messages within it; return the message's index.

        `is_entry` is True if the message is the entry of a map field.
        """
        number, first = len(self.messages), len(self.fields)
        self.messages.append((first, first + len(message.fields), node))
        struct = self._builder.fields[node][0].type
        nodes = dict(zip((column.name for column in struct), self._builder.children(node), strict=True))
        fields = sorted(message.fields, key=lambda field: field.number)
        rows = [self._row(field, nodes.get(field.name, -1), is_entry) for field in fields]
        self.fields += rows
        for field, row in zip(fields, rows, strict=True):
            if row[kernels.CODEC] == kernels.MESSAGE:
                row[kernels.MESSAGE_INDEX] = self.add(field.message_type, row[kernels.NODE], is_map(field))
        return number

    def _row(self, field: FieldDescriptor, node: int, is_entry: bool) -> list[int]:
        occurrence = kernels.ENTRY if is_entry else kernels.ONCE
        if node >= 0 and field.is_repeated:
            occurrence, node = (kernels.MAP if is_map(field) else kernels.REPEATED), node + 1
        codec = _codec(field) if node >= 0 else kernels.EMPTY
        wire, size = _WIRES.get(codec, (kernels.VARINT if codec <= kernels.ENUM else kernels.SIZED, 0))
        row = [0] * kernels.FIELD_COLUMNS
        row[kernels.NUMBER], row[kernels.CODEC], row[kernels.WIRE], row[kernels.SIZE] = field.number, codec, wire, size
        row[kernels.NODE], row[kernels.OCCURRENCE], row[kernels.PRESENCE] = node, occurrence, field.has_presence
        row[kernels.ONEOF] = -1 if field.containing_oneof is None else field.containing_oneof.index
        if is_entry or field.is_required or field.has_default_value:
            row[kernels.MISSING] = kernels.MISSING_NOT_PLAIN
        if codec == kernels.ENUM:
            row[kernels.A], row[kernels.B] = self._enum(field.enum_type)
        elif occurrence == kernels.MAP:
            row[kernels.A] = _codec(field.message_type.fields_by_name["key"])
        return row

    def _enum(self, enum: EnumDescriptor) -> tuple[int, int]:
        at, names = len(self.table), symbols(enum)
        for number in sorted(names):
            name = names[number].encode()
            self.table.append((number, len(self.texts), len(name)))
            self.texts += name
        return at, len(names)


def _codec(field: FieldDescriptor) -> int:
    if field.message_type is None:
        return _CODECS[field.type]
    return kernels.MESSAGE if time_type(field.message_type) is None else kernels.TIME

"""Decoder of protobuf messages to the column that Spark's `from_protobuf` would return.

Compiled code (`protobuf_kernels.py`, which lists the exceptions) decodes messages in the usual form. Google's library
decodes all other values in Python, one by one, and decides whether these are messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tiered_stream.errors import CorruptDataError
from tiered_stream.formats.columns.byte_kernels import key_hash_table
from tiered_stream.formats.columns.byte_slices import ByteSlices
from tiered_stream.formats.columns.column_builder import ColumnBuilder
from tiered_stream.formats.columns.decoded import Decoded, SlicesDecoder, with_exact_rows
from tiered_stream.formats.protobuf import protobuf_kernels as kernels
from tiered_stream.formats.protobuf import protobuf_schema as schema
from tiered_stream.formats.protobuf.protobuf_program import protobuf_program, symbols

_LARGEST_MICROSECONDS = 2**63 - 1
_Convert = Callable[[Any], Any]


class ProtobufDecoder(SlicesDecoder):
    """Decoder of values that are all messages of one protobuf type."""

    def __init__(
        self, descriptor_set: bytes, message: str, keys: Collection[str] = (), images: Collection[str] = ()
    ) -> None:
        """Prepare to decode messages with the full name `message`.

        Args:
            descriptor_set: the output of `protoc --descriptor_set_out --include_imports`.
            message: full name of the message.
            keys: fields that are never null in a message, if they have no presence: not written means 0, '' or false.
            images: fields with messages in which `keys` are not null either.

        Raises:
            ConfigurationError: the descriptor set is invalid or lacks the message, or no column can have the message's
                type.
        """
        descriptor = schema.message_descriptor(descriptor_set, message)
        self.kind = schema.message_type(descriptor)
        self._keys, self._images = {name.lower() for name in keys}, images
        self._class = message_factory.GetMessageClass(descriptor)
        self._row = _struct_of(descriptor, self.kind)
        self._builder = ColumnBuilder(self.kind)
        self._program = protobuf_program(descriptor, self._builder)
        marks = np.zeros((len(self._program[1]) + 1, kernels.MARK_COLUMNS), np.int64)
        stack = np.zeros((2 * schema.MAX_DEPTH + 4, kernels.STACK_COLUMNS), np.int64)
        self._room = marks, stack, key_hash_table(self._builder.has_maps)

    def read(self, slices: ByteSlices) -> Decoded:
        column, errors, reasons = self._builder.decoded(slices, kernels.decode_messages, self._program, self._room)
        slots = np.flatnonzero(errors).tolist()
        column = with_exact_rows(column, slices, slots, self._exact_row, reasons)
        return Decoded(self._with_keys(column, self._class.DESCRIPTOR) if self._keys else column, reasons)

    def _with_keys(self, column: pa.StructArray, message: Descriptor) -> pa.StructArray:
        """Return a column of messages in which the fields `keys` without presence are not null."""
        children = []
        for at, part in enumerate(column.type):
            field, child = message.fields_by_name[part.name], pc.struct_field(column, [at])
            if field.message_type is not None and part.name in self._images:
                child = self._with_keys(child, field.message_type)
            elif part.name.lower() in self._keys and not (field.has_presence or field.is_repeated):
                number = field.enum_type is not None and symbols(field.enum_type).get(0)
                zero = pa.scalar(number or field.default_value, part.type)
                child = pc.if_else(pc.and_(column.is_valid(), child.is_null()), zero, child)
            children.append(child)
        return pa.StructArray.from_arrays(children, fields=list(column.type), mask=column.is_null())

    def _exact_row(self, content: bytes) -> Any:
        """Decode the message `content` by Google's library; return its row as a dict.

        Raises CorruptDataError, whose text is the reason, if `content` is not a message of this type, lacks a required
        field, or has a time that does not fit into microseconds.
        """
        try:
            message = self._class.FromString(content)
            if message.IsInitialized():
                return self._row(message)
        except (DecodeError, UnicodeDecodeError) as error:
            raise CorruptDataError(f"the value is no message {self._class.DESCRIPTOR.full_name}: {error}") from error
        # The field is not named, because the library's search for missing fields can end the process.
        raise CorruptDataError("the value lacks a required field")


def _struct_of(message: Descriptor, kind: pa.StructType) -> _Convert:
    getters = [(name, _getter(message.fields_by_name[name], kind.field(name).type)) for name in kind.names]
    return lambda value: {name: get(value) for name, get in getters}


def _getter(field: FieldDescriptor, kind: pa.DataType) -> _Convert:
    """Return a function that returns the column value of `field` in a message.

    The value of a field that was not written is the default that the schema states, or None if the schema states no
    default. A field without presence counts as not written if it has the default value of its type. A repeated field
    that was not written is an empty list.
    """
    get = attrgetter(field.name)
    if schema.is_map(field):
        entry = field.message_type.fields_by_name
        of_key, of_value = _converter(entry["key"], kind.key_type), _converter(entry["value"], kind.item_type)
        return lambda message: [(of_key(key), of_value(value)) for key, value in get(message).items()]
    if field.is_repeated:
        convert = _converter(field, kind.value_type)
        return lambda message: [convert(item) for item in get(message)]
    convert = _converter(field, kind)
    if not field.has_presence:
        # Like Java, a field without presence that has its default value counts as not written.
        return lambda message: None if _is_zero(get(message)) else convert(get(message))
    if field.has_default_value:
        return lambda message: convert(get(message))
    return lambda message: convert(get(message)) if message.HasField(field.name) else None


def _is_zero(value: Any) -> bool:
    return not value and not (isinstance(value, float) and math.copysign(1, value) < 0)


def _converter(field: FieldDescriptor, kind: pa.DataType) -> _Convert:
    enum = field.enum_type
    if enum is not None:
        names = symbols(enum)
        # Java has this name for a number without a name.
        return lambda number: names.get(number, f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}")
    if field.message_type is not None:
        is_time = schema.time_type(field.message_type) is not None
        return (lambda time: _microseconds(field, time)) if is_time else _struct_of(field.message_type, kind)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_UINT32:
            return lambda number: number - (1 << 32) if number >> 31 else number
        case FieldDescriptor.CPPTYPE_UINT64:
            return lambda number: number - (1 << 64) if number >> 63 else number
    return partial(_text, field) if field.type == FieldDescriptor.TYPE_STRING else lambda value: value


def _text(field: FieldDescriptor, value: str | bytes) -> str:
    """Return a string. If a schema does not ask for UTF-8, as in proto2, the library gives other bytes as they are."""
    if isinstance(value, bytes):
        raise CorruptDataError(f"{field.full_name}: a string is not UTF-8")
    return value


def _microseconds(field: FieldDescriptor, time: Message) -> int:
    seconds, nanos = time.seconds, time.nanos
    micros: int = int(seconds) * 1_000_000 + math.trunc(nanos / 1000)
    if abs(micros) > _LARGEST_MICROSECONDS:
        raise CorruptDataError(f"{field.full_name}: a time does not fit into microseconds")
    return micros


def compile_kernels() -> None:
    """Compile or load the kernels that protobuf needs, for `tiered-stream warm`."""
    empty = descriptor_pb2.DescriptorProto(name="Empty")
    file = descriptor_pb2.FileDescriptorProto(name="empty.proto", message_type=[empty])
    decoder = ProtobufDecoder(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "Empty")
    decoder.decode(pa.scalar([b""], pa.list_(pa.binary())).values)

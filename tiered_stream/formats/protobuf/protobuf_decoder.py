"""Decoder of protobuf messages to a column that is equal to that of Spark's `from_protobuf`.

Compiled code decodes plain messages (`protobuf_kernels.py`). Google's library decodes all others in Python, one by one,
and decides whether they are messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.formats.columns.byte_kernels import hash_room
from tiered_stream.formats.columns.byte_slices import ByteSlices
from tiered_stream.formats.columns.column_builder import TOO_LARGE, ColumnBuilder, Columns
from tiered_stream.formats.columns.decoded import REASON_SIZE, Decoded, spliced
from tiered_stream.formats.protobuf import protobuf_kernels as kernels
from tiered_stream.formats.protobuf.google_protobuf import (
    DecodeError,
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    Message,
    descriptor_pb2,
    message_factory,
)
from tiered_stream.formats.protobuf.protobuf_program import protobuf_program, symbols
from tiered_stream.formats.protobuf.protobuf_schema import (
    MOST_DEPTH,
    is_map,
    message_descriptor,
    message_type,
    time_type,
)

_LARGEST_MICROSECONDS = 2**63 - 1
_MOST_AT_ONCE = 8 << 20
"""Maximum bytes of messages that are Python objects at one time, unless a single message is larger."""

_Convert = Callable[[Any], Any]


class _NoValueError(Exception):
    """Error of a message that cannot become a row."""


class ProtobufDecoder:
    """Decoder of values that are messages of one type."""

    def __init__(self, descriptor_set: bytes, message: str) -> None:
        """Prepare to decode messages with the full name `message` of a `protoc --descriptor_set_out` descriptor set.

        Raises:
            ConfigurationError: there is no such message, or it has no columns.
        """
        descriptor = message_descriptor(descriptor_set, message)
        self._kind = message_type(descriptor)
        self._class = message_factory.GetMessageClass(descriptor)
        self._row = _struct_of(descriptor, self._kind)
        self._builder = ColumnBuilder(self._kind)
        self._program = protobuf_program(descriptor, self._builder)
        marks = np.zeros((len(self._program.fields) + 1, kernels.MARK_COLUMNS), np.int64)
        stack = np.zeros((2 * MOST_DEPTH + 4, kernels.STACK_COLUMNS), np.int64)
        self._room = marks, stack, hash_room(self._builder.has_maps)

    @property
    def kind(self) -> pa.DataType:
        return self._kind

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return self.read(ByteSlices.of(values))

    def read(self, slices: ByteSlices) -> Decoded:
        program = self._program.kernel_arguments()
        not_plain = np.zeros(len(slices), np.bool_)

        def write(columns: Columns, row: int) -> int:
            given = slices.kernel_arguments()
            return int(kernels.decode_messages(given, program, row, columns, self._room, not_plain))

        column, too_large = self._builder.build(len(slices), write)
        reasons = dict.fromkeys(too_large, TOO_LARGE)
        for slots in _pieces(np.flatnonzero(not_plain).tolist(), slices):
            column = spliced(column, {slot: self._decoded(slices.value(slot), slot, reasons) for slot in slots})
        return Decoded(column, reasons)

    def _decoded(self, content: bytes, at: int, reasons: dict[int, str]) -> Any:
        try:
            message = self._class.FromString(content)
            if not message.IsInitialized():
                # The field is not named, because the library's search for missing fields can end the process.
                raise _NoValueError("the value lacks a required field")
            return self._row(message)
        except (DecodeError, UnicodeDecodeError) as error:
            reasons[at] = f"the value is no message {self._class.DESCRIPTOR.full_name}: {error}"[:REASON_SIZE]
        except _NoValueError as error:
            reasons[at] = str(error)[:REASON_SIZE]
        return None


def _pieces(slots: list[int], slices: ByteSlices) -> Iterator[list[int]]:
    """Yield the slots in groups whose messages together may be Python objects at one time."""
    piece, size = [], 0
    for slot in slots:
        piece.append(slot)
        size += int(slices.stops[slot] - slices.starts[slot])
        if size > _MOST_AT_ONCE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _struct_of(message: Descriptor, kind: pa.StructType) -> _Convert:
    getters = [(name, _getter(message.fields_by_name[name], kind.field(name).type)) for name in kind.names]
    return lambda found: {name: get(found) for name, get in getters}


def _getter(field: FieldDescriptor, kind: pa.DataType) -> _Convert:
    """Return a function that gets a field's column value from a message.

    The value is null if the field was not written and has no default of its own.
    """
    name = field.name
    if is_map(field):
        key, value = (field.message_type.fields_by_name[each] for each in ("key", "value"))
        of_key, of_value = _converter(key, kind.key_type), _converter(value, kind.item_type)
        return lambda found: [(of_key(each), of_value(getattr(found, name)[each])) for each in getattr(found, name)]
    if field.is_repeated:
        convert = _converter(field, kind.value_type)
        return lambda found: [convert(each) for each in getattr(found, name)]
    convert = _converter(field, kind)
    if not field.has_presence:
        # Like Java, a field without presence that has its default value counts as not written.
        return lambda found: None if _is_zero(getattr(found, name)) else convert(getattr(found, name))
    if field.has_default_value:
        return lambda found: convert(getattr(found, name))
    return lambda found: convert(getattr(found, name)) if found.HasField(name) else None


def _is_zero(value: Any) -> bool:
    return not value and not (isinstance(value, float) and math.copysign(1, value) < 0)


def _converter(field: FieldDescriptor, kind: pa.DataType) -> _Convert:
    if field.enum_type is not None:
        return _symbol_of(field.enum_type)
    if field.message_type is not None:
        is_time = time_type(field.message_type) is not None
        return (lambda found: _microseconds(field, found)) if is_time else _struct_of(field.message_type, kind)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_UINT32:
            return lambda number: number - (1 << 32) if number >> 31 else number
        case FieldDescriptor.CPPTYPE_UINT64:
            return lambda number: number - (1 << 64) if number >> 63 else number
    return lambda value: value


def _symbol_of(enum: EnumDescriptor) -> _Convert:
    """Return a function from an enum's number to its name, or to Java's name for a number without a name."""
    names = symbols(enum)
    return lambda number: names.get(number, f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}")


def _microseconds(field: FieldDescriptor, found: Message) -> int:
    seconds, nanos = found.seconds, found.nanos
    micros: int = int(seconds) * 1_000_000 + math.trunc(nanos / 1000)
    if abs(micros) > _LARGEST_MICROSECONDS:
        raise _NoValueError(f"{field.full_name}: a time does not fit into microseconds")
    return micros


def compile_kernels() -> None:
    """Compile or load the kernels that protobuf needs, for `tiered-stream warm`."""
    empty = descriptor_pb2.DescriptorProto(name="Empty")
    file = descriptor_pb2.FileDescriptorProto(name="empty.proto", message_type=[empty])
    decoder = ProtobufDecoder(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "Empty")
    decoder.decode(pa.scalar([b""], pa.list_(pa.binary())).values)

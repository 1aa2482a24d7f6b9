"""Decoder of protobuf messages to the column that Spark's `from_protobuf` would return.

Types are equal to Spark's (`protobuf.utils.SchemaConverters`). Unsigned numbers have the column types of signed
numbers, and enums are strings. `Timestamp` becomes a timestamp and `Duration` a duration. A message without fields has
no column. Recursive messages and groups are refused.

Compiled functions (`protobuf_kernels.py`) decode messages in the usual form. Their program has the message's fields by
number, and for each field the node that it fills: a column, or a column nested in it. Google's library decodes all
other values in Python, one by one, and decides whether these are messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial
from graphlib import TopologicalSorter
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.formats.columns.column_builder import ColumnBuilder
from tiered_stream.formats.columns.column_kernels import key_hash_table
from tiered_stream.formats.columns.conform import list_of
from tiered_stream.formats.columns.decoded import ByteSlices, Decoded, SlicesDecoder, with_exact_rows
from tiered_stream.formats.protobuf import protobuf_kernels as kernels

_MAX_BYTES, _MAX_FIELDS, MAX_DEPTH = 16 << 20, 10_000, 64
"""Limits of a schema: bytes of its descriptor set, fields when each use of a message counts, and levels of nesting."""

_OF = FieldDescriptor
_SCALARS = {
    _OF.TYPE_INT32: (kernels.INT32, pa.int32()), _OF.TYPE_UINT32: (kernels.INT32, pa.int32()),
    _OF.TYPE_INT64: (kernels.INT64, pa.int64()), _OF.TYPE_UINT64: (kernels.INT64, pa.int64()),
    _OF.TYPE_SINT32: (kernels.SINT32, pa.int32()), _OF.TYPE_SINT64: (kernels.SINT64, pa.int64()),
    _OF.TYPE_FIXED32: (kernels.FIXED32, pa.int32()), _OF.TYPE_SFIXED32: (kernels.FIXED32, pa.int32()),
    _OF.TYPE_FIXED64: (kernels.FIXED64, pa.int64()), _OF.TYPE_SFIXED64: (kernels.FIXED64, pa.int64()),
    _OF.TYPE_FLOAT: (kernels.FLOAT, pa.float32()), _OF.TYPE_DOUBLE: (kernels.DOUBLE, pa.float64()),
    _OF.TYPE_BOOL: (kernels.BOOL, pa.bool_()), _OF.TYPE_ENUM: (kernels.ENUM, pa.string()),
    _OF.TYPE_STRING: (kernels.TEXT, pa.string()), _OF.TYPE_BYTES: (kernels.BYTES, pa.binary()),
}  # fmt: skip
"""Codec (`protobuf_kernels.py`) and Arrow type, by the protobuf type of a field that is not a message."""
_FilePart = TypeVar("_FilePart", descriptor_pb2.FileDescriptorProto, descriptor_pb2.DescriptorProto)
_TIMES = {"Timestamp": pa.timestamp("us", tz="UTC"), "Duration": pa.duration("us")}


def message_descriptor(descriptor_set: bytes, message: str) -> Descriptor:
    """Return the descriptor of the message with the full name `message` in a descriptor set.

    The set is the output of `protoc --descriptor_set_out --include_imports`.

    Raises:
        ConfigurationError: the bytes are not a descriptor set, or the message is not in it.
    """
    if len(descriptor_set) > _MAX_BYTES:
        raise ConfigurationError(f"a descriptor set of {len(descriptor_set)} bytes, more than the {_MAX_BYTES} allowed")
    pool = descriptor_pool.DescriptorPool()
    try:
        files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file}
        # The pool takes a file after the files that it imports.
        for name in TopologicalSorter({name: list(file.dependency) for name, file in files.items()}).static_order():
            if name not in files:
                raise ConfigurationError(f"the descriptor set lacks {name[:100]}; write it with --include_imports")
            pool.Add(_without_extensions(files[name]))
        return pool.FindMessageTypeByName(message)
    except KeyError:
        raise ConfigurationError(f"the descriptor set has no message {message[:100]!r}; give its full name") from None
    except (DecodeError, TypeError, ValueError) as error:
        raise ConfigurationError(f"this is no descriptor set of protoc: {str(error)[:200]}") from error


def _without_extensions(part: _FilePart) -> _FilePart:
    """Remove the extensions from a file's or message's descriptor, and return the descriptor.

    Extensions have no columns, as in Spark. Google's library checks known extensions, but the kernel does not. Without
    extensions, both accept the same values.
    """
    part.ClearField("extension")
    for message in part.message_type if isinstance(part, descriptor_pb2.FileDescriptorProto) else part.nested_type:
        _without_extensions(message)
    return part


def _message_columns(message: Descriptor, above: tuple[str, ...], left: list[int]) -> pa.StructType:
    """Return the Arrow struct type for the message type `message`.

    Args:
        above: full names of the message types in which this message is nested.
        left: list of one number, the fields that are still allowed; the call decreases it.

    Raises:
        ConfigurationError: the message is recursive, has a group, has too many fields, or is nested too deeply.
    """
    if message.full_name in above:
        raise ConfigurationError(f"the message {message.full_name} holds itself; recursive types have no columns")
    left[0] -= len(message.fields)
    if left[0] < 0 or len(above) > MAX_DEPTH:
        raise ConfigurationError(
            f"a message has more than {_MAX_FIELDS} fields when written out, or more than {MAX_DEPTH} levels"
        )
    inside = (*above, message.full_name)
    fields = [(field.name, _field_type(field, inside, left)) for field in message.fields]
    return pa.struct([(name, kind) for name, kind in fields if kind is not None])


def _field_type(field: FieldDescriptor, above: tuple[str, ...], left: list[int]) -> pa.DataType | None:
    """Return the Arrow type of a field's column, or None if the field's message has no fields, and so no column.

    The arguments `above` and `left`, and the errors, are as in `_message_columns`.
    """
    if is_map(field):
        pair = field.message_type.fields_by_name
        value = _single_type(pair["value"], above, left)
        return None if value is None else pa.map_(_single_type(pair["key"], above, left), value)
    kind = _single_type(field, above, left)
    return list_of(kind) if field.is_repeated and kind is not None else kind


def _single_type(field: FieldDescriptor, above: tuple[str, ...], left: list[int]) -> pa.DataType | None:
    if field.type == _OF.TYPE_GROUP:
        raise ConfigurationError(f"{field.full_name} is a group, which has no column")
    if field.message_type is None:
        return _SCALARS[field.type][1]
    if time := time_type(field.message_type):
        return time
    struct = _message_columns(field.message_type, above, left)
    return struct if struct.num_fields else None


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry)


def time_type(message: Descriptor) -> pa.DataType | None:
    """Return the column type of a message that is a `Timestamp` or a `Duration`, or None for another message.

    As in Spark, the message must have one of these names, and exactly the fields `seconds` and `nanos`.
    """
    fields = [field.name for field in message.fields]
    return _TIMES.get(message.name) if fields == ["seconds", "nanos"] else None


Table = np.ndarray[Any, Any]

_WIRES = {
    kernels.FIXED32: (kernels.FOUR, 4), kernels.FLOAT: (kernels.FOUR, 4), kernels.FIXED64: (kernels.EIGHT, 8),
    kernels.DOUBLE: (kernels.EIGHT, 8),
}  # fmt: skip


def symbols(enum: EnumDescriptor) -> dict[int, str]:
    """Return the name of each number of an enum. If a number has several names, the first one counts, as in Java."""
    return {value.number: value.name for value in reversed(enum.values)}


class _Compiler:
    """Compiler of the program by which kernels read messages into the columns of `builder`.

    The columns must have the message's type.
    """

    def __init__(self, builder: ColumnBuilder) -> None:
        self._messages: list[tuple[int, int, int]] = []
        self._fields: list[list[int]] = []
        self._table: list[tuple[int, int, int]] = []
        self._texts = bytearray()
        self._builder = builder

    def program(self, message: Descriptor) -> tuple[Table, Table, Table, Table]:
        """Return the program for the message type `message` as arrays: (messages, fields, table, texts).

        `protobuf_kernels` describes the columns of the first two arrays. The table has a row for each number of an
        enum, sorted by number: the number, and the position and size of its name in the texts.
        """
        self._add(message, 0, False)
        return (
            np.array(self._messages, np.int64), np.array(self._fields, np.int64).reshape(-1, kernels.FIELD_COLUMNS),
            np.array(self._table or [(0, 0, 0)], np.int64), np.frombuffer(bytes(self._texts) or b"\0", np.uint8),
        )  # fmt: skip

    def _add(self, message: Descriptor, node: int, is_entry: bool) -> int:
        """Add a message type and the message types nested in it to the program; return the index of the message type.

        `node` is the column's node for the message, a struct. `is_entry` is True if the message is an entry of a map.
        """
        number, first = len(self._messages), len(self._fields)
        self._messages.append((first, first + len(message.fields), node))
        struct = self._builder.fields[node].type
        nodes = dict(zip((column.name for column in struct), self._builder.children[node], strict=True))
        fields = sorted(message.fields, key=lambda field: field.number)
        rows = [self._row(field, nodes.get(field.name, -1), is_entry) for field in fields]
        self._fields += rows
        for field, row in zip(fields, rows, strict=True):
            if row[kernels.CODEC] == kernels.MESSAGE:
                row[kernels.MESSAGE_INDEX] = self._add(field.message_type, row[kernels.NODE], is_map(field))
        return number

    def _row(self, field: FieldDescriptor, node: int, is_entry: bool) -> list[int]:
        occurrence = kernels.ENTRY if is_entry else kernels.ONCE
        if node >= 0 and field.is_repeated:
            occurrence, node = (kernels.MAP if is_map(field) else kernels.REPEATED), node + 1
        codec = _codec(field) if node >= 0 else kernels.EMPTY
        wire, size = _WIRES.get(codec, (kernels.VARINT if codec <= kernels.ENUM else kernels.SIZED, 0))
        oneof = -1 if field.containing_oneof is None else field.containing_oneof.index
        is_needed = is_entry or field.is_required or field.has_default_value
        a = b = 0
        if codec == kernels.ENUM:
            a, b = self._enum(field.enum_type)
        elif codec == kernels.TIME:
            parts = [(part.number, part.type) for part in field.message_type.fields]
            a = parts == [(1, _OF.TYPE_INT64), (2, _OF.TYPE_INT32)]
        elif occurrence == kernels.MAP:
            a = _codec(field.message_type.fields_by_name["key"])
        return [field.number, codec, wire, node, occurrence, oneof, field.has_presence, is_needed, 0, a, b, size]

    def _enum(self, enum: EnumDescriptor) -> tuple[int, int]:
        at, names = len(self._table), symbols(enum)
        for number in sorted(names):
            name = names[number].encode()
            self._table.append((number, len(self._texts), len(name)))
            self._texts += name
        return at, len(names)


def _codec(field: FieldDescriptor) -> int:
    if field.message_type is None:
        return _SCALARS[field.type][0]
    return kernels.MESSAGE if time_type(field.message_type) is None else kernels.TIME


_LARGEST_MICROSECONDS = 2**63 - 1
_HALVES = {_OF.CPPTYPE_UINT32: 1 << 31, _OF.CPPTYPE_UINT64: 1 << 63}
"""Half of the range of each unsigned type, by Google's constant for the type."""
_Convert = Callable[[Any], Any]


class ProtobufDecoder(SlicesDecoder):
    """Decoder of values that are all messages of one protobuf type, to a struct column."""

    def __init__(
        self, descriptor_set: bytes, message: str, keys: Collection[str] = (), images: Collection[str] = ()
    ) -> None:
        """Prepare to decode messages with the full name `message`.

        Args:
            descriptor_set: the output of `protoc --descriptor_set_out --include_imports`.
            message: full name of the message.
            keys: names of fields, in any case, that are never null in a message. If such a field has no presence and is
                not written, it becomes 0, '' or false. In other fields, this value becomes null.
            images: names of fields with messages, such as Debezium's `after`, to whose fields `keys` applies, too.

        Raises:
            ConfigurationError: the descriptor set is invalid or lacks the message, or no column can have the message's
                type.
        """
        descriptor = message_descriptor(descriptor_set, message)
        self.kind = _message_columns(descriptor, (), [_MAX_FIELDS])
        self._keys, self._images = {name.lower() for name in keys}, images
        self._class = message_factory.GetMessageClass(descriptor)
        self._row = _struct_of(descriptor)
        self._builder = ColumnBuilder(self.kind)
        self._program = _Compiler(self._builder).program(descriptor)
        marks = np.zeros((len(self._program[1]) + 1, kernels.MARK_COLUMNS), np.int64)
        stack = np.zeros((2 * MAX_DEPTH + 4, kernels.STACK_COLUMNS), np.int64)
        self._room = marks, stack, key_hash_table(self._builder.has_maps)

    def read(self, slices: ByteSlices) -> Decoded:
        column, errors, reasons = self._builder.decoded(slices, kernels.decode_messages, self._program, self._room)
        slots = np.flatnonzero(errors).tolist()
        column = with_exact_rows(column, slices, slots, self._exact_row, reasons)
        return Decoded(self._with_keys(column, self._class.DESCRIPTOR) if self._keys else column, reasons)

    def _with_keys(self, column: pa.StructArray, message: Descriptor) -> pa.StructArray:
        """Return a column of messages, with 0, '' or false in place of nulls in the fields that the user named as keys.

        Fields that have presence, and repeated fields, are unchanged. `message` is the messages' type.
        """
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

        Raises:
            CorruptDataError: `content` is not a message of the wanted type, or lacks a required field.
        """
        try:
            message = self._class.FromString(content)
            if message.IsInitialized():
                return self._row(message)
        except (DecodeError, UnicodeDecodeError) as error:
            raise CorruptDataError(f"the value is no message {self._class.DESCRIPTOR.full_name}: {error}") from error
        # The field is not named, because the library's search for missing fields can end the process.
        raise CorruptDataError("the value lacks a required field")


def _struct_of(message: Descriptor) -> _Convert:
    getters = [(field.name, _getter(field)) for field in message.fields]
    # Without nulls, because an empty message of two bytes would take memory for all of its fields.
    return lambda value: {name: part for name, get in getters if (part := get(value)) is not None}


def _getter(field: FieldDescriptor) -> _Convert:
    """Return a function that takes a message of Google's library, and returns the value of `field` for the column.

    If the field was not written, its value is the default that the schema states, or None without such a default. A
    field without presence counts as not written if it has the default value of its type. A repeated field that was not
    written is an empty list.
    """
    get = attrgetter(field.name)
    if is_map(field):
        entry = field.message_type.fields_by_name
        of_key, of_value = _converter(entry["key"]), _converter(entry["value"])
        # Sorted by key, because the library has another order in each process.
        return lambda message: [(of_key(key), of_value(value)) for key, value in sorted(get(message).items())]
    convert = _converter(field)
    if field.is_repeated:
        return lambda message: [convert(item) for item in get(message)]
    if not field.has_presence:
        # Like Java, a field without presence that has its default value counts as not written.
        return lambda message: None if _is_zero(get(message)) else convert(get(message))
    if field.has_default_value:
        return lambda message: convert(get(message))
    return lambda message: convert(get(message)) if message.HasField(field.name) else None


def _is_zero(value: Any) -> bool:
    return not value and not (isinstance(value, float) and math.copysign(1, value) < 0)


def _converter(field: FieldDescriptor) -> _Convert:
    enum = field.enum_type
    if enum is not None:
        names = symbols(enum)
        # Java has this name for a number without a name.
        return lambda number: names.get(number, f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}")
    if field.message_type is not None:
        return partial(_microseconds, field) if time_type(field.message_type) else _struct_of(field.message_type)
    if half := _HALVES.get(field.cpp_type):
        return lambda number: (number ^ half) - half
    return partial(_text, field) if field.type == _OF.TYPE_STRING else lambda value: value


def _text(field: FieldDescriptor, value: str | bytes) -> str:
    """Return the text of a string field; raise CorruptDataError if `value` is bytes.

    Google's library returns bytes for a text that is not UTF-8, if the schema does not require UTF-8, as in proto2.
    """
    if isinstance(value, bytes):
        raise CorruptDataError(f"{field.full_name}: a string is not UTF-8")
    return value


def _microseconds(field: FieldDescriptor, time: Message) -> int:
    micros: int = int(time.seconds) * 1_000_000 + math.trunc(time.nanos / 1000)
    if abs(micros) > _LARGEST_MICROSECONDS:
        raise CorruptDataError(f"{field.full_name}: a time does not fit into microseconds")
    return micros


def compile_kernels() -> None:
    """Compile the kernels of the protobuf decoder, or load them from the cache. `tiered-stream warm` calls this."""
    empty = descriptor_pb2.DescriptorProto(name="Empty")
    file = descriptor_pb2.FileDescriptorProto(name="empty.proto", message_type=[empty])
    decoder = ProtobufDecoder(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "Empty")
    decoder.decode(pa.scalar([b""], pa.list_(pa.binary())).values)

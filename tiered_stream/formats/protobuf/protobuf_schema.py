"""Column types of protobuf messages, equal to the types of Spark's `from_protobuf` (`protobuf.utils.SchemaConverters`).

Unsigned numbers have the column types of signed numbers, and enums are strings. `Timestamp` becomes a timestamp and
`Duration` a duration. A message without fields has no column. Recursive messages and groups are refused.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import TypeVar

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from tiered_stream.errors import ConfigurationError

_MAX_BYTES, _MAX_FIELDS, MAX_DEPTH = 16 << 20, 10_000, 64
"""Limits of a schema: bytes of its descriptor set, number of fields when written out, and levels of nesting."""

_SIMPLE = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int32(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.int64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
}
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
    """Remove the extensions of a file or of a message in it, and return it.

    Extensions have no columns, as in Spark. The library checks the extensions that it knows, but the kernel reads none,
    so that a value would decode or not by who decodes it.
    """
    part.ClearField("extension")
    for message in part.message_type if isinstance(part, descriptor_pb2.FileDescriptorProto) else part.nested_type:
        _without_extensions(message)
    return part


def message_type(message: Descriptor) -> pa.StructType:
    """Return the struct type of a message.

    Raises ConfigurationError if the message is recursive, has a group, or exceeds a limit of this module.
    """
    return _message_columns(message, (), [_MAX_FIELDS])


def _message_columns(message: Descriptor, above: tuple[str, ...], left: list[int]) -> pa.StructType:
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
    """Return the type of a field's column, or None if the field is of a message without fields and has no column."""
    if is_map(field):
        pair = field.message_type.fields_by_name
        value = _single_type(pair["value"], above, left)
        return None if value is None else pa.map_(_single_type(pair["key"], above, left), value)
    kind = _single_type(field, above, left)
    return pa.list_(pa.field("element", kind)) if field.is_repeated and kind is not None else kind


def _single_type(field: FieldDescriptor, above: tuple[str, ...], left: list[int]) -> pa.DataType | None:
    match field.type:
        case FieldDescriptor.TYPE_GROUP:
            raise ConfigurationError(f"{field.full_name} is a group, which has no column")
        case FieldDescriptor.TYPE_MESSAGE:
            time = time_type(field.message_type)
            if time is not None:
                return time
            struct = _message_columns(field.message_type, above, left)
            return struct if struct.num_fields else None
        case FieldDescriptor.TYPE_STRING | FieldDescriptor.TYPE_BYTES:
            return pa.string() if field.type == FieldDescriptor.TYPE_STRING else pa.binary()
    return _SIMPLE[field.cpp_type]


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry)


def time_type(message: Descriptor) -> pa.DataType | None:
    """Return the column type of a message that is a `Timestamp` or a `Duration`, or None for another message.

    As in Spark, the message must have one of these names, and exactly the fields `seconds` and `nanos`.
    """
    fields = [field.name for field in message.fields]
    return _TIMES.get(message.name) if fields == ["seconds", "nanos"] else None

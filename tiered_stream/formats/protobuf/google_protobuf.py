"""Names that are used of the package protobuf, which only queries with the format protobuf need."""

from __future__ import annotations

from tiered_stream.errors import ConfigurationError

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import DecodeError, Message
except ImportError as error:
    raise ConfigurationError("the format protobuf needs the package protobuf: pip install 'protobuf>=7,<8'") from error

__all__ = [
    "DecodeError",
    "Descriptor",
    "EnumDescriptor",
    "FieldDescriptor",
    "Message",
    "descriptor_pb2",
    "descriptor_pool",
    "message_factory",
]

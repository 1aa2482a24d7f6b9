"""Decoder of protobuf values that name their schema in a registry (`writer_schemas.py`).

After the schema's id or GUID come the number of the message's indexes, and then the indexes, as zigzag varints. The
first index is the position of a message in the schema's file. The next index is the position of a message that is
nested in the first message, and so on. A single zero stands for the first message of the file. A message names its
fields by number, so all messages are read by one schema. The writer's schema only shows whether the value is the wanted
message.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection, Mapping
from uuid import UUID

import numpy as np
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from tiered_stream.formats.columns.decoded import REASON_SIZE, ByteSlices, Decoded
from tiered_stream.formats.protobuf.proto_compiler import compiled_proto
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder
from tiered_stream.formats.registry.schema_registry import RegisteredSchema, RegistrySettings
from tiered_stream.formats.registry.writer_schemas import PREFIX_SIZE, NamedSchemas, NamingDecoder, Rows, grouped
from tiered_stream.records.flexible_versions import Reader

_FILE = "registered-schema.proto"
_MAX_INDEXES = 64
_NO_INDEXES = "behind the schema's id the value does not say which message it is"

Indexes = tuple[int, ...]


class RegistryProtobufDecoder(NamingDecoder[FileDescriptorProto]):
    """Decoder of messages with the full name `message`. The values may name any of the registry's schemas."""

    def __init__(
        self, settings: RegistrySettings, descriptor_set: bytes, message: str, *, header: str = "",
        keys: Collection[str] = (), images: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Prepare to decode messages with the full name `message`, whose type is in the descriptor set.

        `header` is the name of the record header that names schemas. `keys` and `images` are the arguments of
        `ProtobufDecoder`.

        Raises:
            ConfigurationError: the settings or the descriptor set are invalid, the set lacks the message, or no column
                can have the message's type.
        """
        super().__init__(settings, header, "PROTOBUF", _parsed)
        self._decoder = ProtobufDecoder(descriptor_set, message, keys, images)
        self.kind = self._decoder.kind
        self._message = message

    def _decode(
        self, slices: ByteSlices, named: NamedSchemas, writers: Mapping[int, FileDescriptorProto | str]
    ) -> Decoded:
        messages, places, sizes = _named_messages(slices, named)
        reasons: dict[int, str] = {}
        rows = np.flatnonzero(slices.valid)
        # The values of one group name one schema, and one message in it.
        for group, at in grouped(named.numbers[rows] * len(messages) + places[rows]):
            number, place = divmod(group, len(messages))
            if reason := self._mismatch(named.id_of(number), writers[number], messages[place]):
                reasons |= dict.fromkeys(rows[at].tolist(), reason[:REASON_SIZE])
        is_message = np.ones(len(slices), np.uint8)
        is_message[list(reasons)] = 0
        decoded = self._decoder.read(slices.only(is_message).after(sizes))
        return Decoded(decoded.column, {**decoded.reasons, **reasons})

    def _mismatch(self, schema_id: int | UUID, writer: FileDescriptorProto | str, indexes: Indexes) -> str | None:
        """Return None if the message `indexes` of the schema `writer` is the wanted message, otherwise the reason.

        `indexes` is empty if the value does not name its message. `writer` is a text if the schema cannot be used.
        """
        if isinstance(writer, str):
            return writer
        if not indexes:
            return _NO_INDEXES
        name = _full_name(writer, indexes)
        if name is None:
            return f"schema {schema_id} has no message {list(indexes)}"
        return None if name == self._message else f"the value is a message {name[:80]}, not {self._message[:80]}"


def _named_messages(slices: ByteSlices, named: NamedSchemas) -> tuple[list[Indexes], Rows, Rows]:
    """Return the different indexes by which the values name their messages, and two numbers for each value.

    The first number is the place of the value's indexes in the result's list. Indexes are empty if the value does not
    name its message. The second number is the number of bytes in front of the value's message.
    """
    messages: dict[Indexes, int] = {(): 0, (0,): 1}
    places, sizes, has_prefix = np.zeros(len(slices), np.int64), named.sizes.copy(), named.sizes > 0
    rests = [messages.setdefault(message_indexes(rest)[0], len(messages)) for rest in named.header_rests]
    rows = np.flatnonzero(named.headers >= 0)
    places[rows] = np.array(rests, np.int64)[named.headers[rows]]
    # A zero byte stands for the first message.
    longer = np.flatnonzero(has_prefix & (slices.stops - slices.starts > PREFIX_SIZE))
    first = longer[slices.data[slices.starts[longer] + PREFIX_SIZE] == 0]
    places[first], sizes[first], has_prefix[first] = 1, PREFIX_SIZE + 1, False
    encoded, place = b"", 0
    for row in np.flatnonzero(has_prefix).tolist():
        content = slices.value(row)[PREFIX_SIZE:]
        if not encoded or not content.startswith(encoded):  # most values have the indexes of the value before
            indexes, size = message_indexes(content)
            encoded, place = content[:size], messages.setdefault(indexes, len(messages))
        places[row], sizes[row] = place, PREFIX_SIZE + len(encoded)
    return list(messages), places, sizes


def message_indexes(content: bytes) -> tuple[Indexes, int]:
    """Return the message indexes at the start of `content`, and the number of bytes that they take.

    Returns () and 0 if `content` does not begin with valid indexes. A single zero byte is returned as the indexes (0,).
    """
    reader = Reader(content)
    numbers: list[int] = []
    try:
        while not numbers or len(numbers) <= numbers[0]:
            number = reader.uvarint()
            numbers.append((number >> 1) ^ -(number & 1))
            if not 0 <= numbers[0] <= _MAX_INDEXES:
                return (), 0
    except ValueError:
        return (), 0
    return tuple(numbers[1:]) or (0,), reader.position


def _parsed(schema: RegisteredSchema) -> FileDescriptorProto:
    files = FileDescriptorSet.FromString(registered_descriptors(schema)).file
    return next(file for file in files if file.name == _FILE)


def _full_name(file: FileDescriptorProto, indexes: Indexes) -> str | None:
    """Return the full name of the message `indexes` of a file, or None if the file has no such message."""
    name: str = file.package
    messages = file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            return None
        name, messages = f"{name}.{messages[index].name}", messages[index].nested_type
    return name.lstrip(".")


def registered_descriptors(schema: RegisteredSchema) -> bytes:
    """Return the descriptor set of a registered schema.

    Raises:
        ConfigurationError: compiling fails.
    """
    files: dict[str, str | bytes] = {}
    names: dict[str, str] = {}
    for name, text in (*schema.references, (_FILE, schema.text)):
        first = names.setdefault(text, name)
        # A file that has two names would define its messages twice.
        files[name] = _file(text) if first == name else f'syntax = "proto3"; import public "{first}";'
    return compiled_proto(files)


def _file(text: str) -> str | bytes:
    """Return a schema's text or, if it is base64 of a serialized `FileDescriptorProto`, the decoded bytes.

    A registry may store either of the two (Confluent: `ProtobufSchema.toFile`). Base64 has no semicolon and no brace.
    """
    if not text.strip() or ";" in text or "{" in text:
        return text
    try:
        content = b64decode("".join(text.split()), validate=True)
        FileDescriptorProto.FromString(content)
    except (ValueError, DecodeError):
        return text
    return content

"""Decoder of protobuf values that name their schema in a schema registry.

`writer_schemas.py` describes how a value names its schema. After the schema's id or GUID come the number of message
indexes, and then the message indexes, as zigzag varints. The first index is the position of a message in the schema's
file. The next index is the position of a message that is nested in the first message, and so on. A single zero stands
for the first message of the file.

A message names its fields by number, so one descriptor decodes the messages of all schemas. A value's own schema only
shows whether the value has the wanted message type.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection, Mapping
from uuid import UUID

import numpy as np
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from tiered_stream.formats.columns.decoded import REASON_SIZE, ByteSlices, Decoded
from tiered_stream.formats.protobuf.proto_compiler import check_compiler, compiled_proto
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder
from tiered_stream.formats.registry.schema_registry import RegisteredSchema, RegistrySettings
from tiered_stream.formats.registry.writer_schemas import PREFIX_SIZE, NamedSchemas, NamingDecoder, Rows, grouped
from tiered_stream.records.flexible_versions import Reader

_FILE = "registered-schema.proto"
_MAX_INDEXES = 64
_NO_INDEXES = "behind the schema's id the value does not say which message it is"

Indexes = tuple[int, ...]


class RegistryProtobufDecoder(NamingDecoder[FileDescriptorProto]):
    """Decoder of protobuf values of the message type `message`, which may name any schema of a registry."""

    def __init__(
        self, settings: RegistrySettings, descriptor_set: bytes, message: str, *, header: str = "",
        keys: Collection[str] = (), images: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Prepare to decode messages of the type with the full name `message`, which `descriptor_set` describes.

        `header` is the name of the record header that names schemas. `keys` are names of fields without presence that
        are never null in a message: a field that is not written is 0, '' or false. `images` are names of fields with
        messages in which the fields `keys` are not null either.

        Raises:
            ConfigurationError: the settings or the descriptor set are invalid, the set lacks the message, or no column
                can have the message's type. Or the compiler of `.proto` files is not installed.
        """
        check_compiler()  # without it, each value would be a dead letter
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
        decoded = self._decoder.read(slices.after(sizes, reasons))
        return Decoded(decoded.column, {**decoded.reasons, **reasons})

    def _mismatch(self, schema_id: int | UUID, writer: FileDescriptorProto | str, indexes: Indexes) -> str | None:
        """Return None if the message at `indexes` in the schema `writer` is the wanted message type, otherwise why not.

        `indexes` is empty if the value does not name its message. If the schema cannot be used, `writer` is a text with
        the reason, which is returned.
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
    """Return the distinct message indexes in a batch of values, and two arrays with one number for each value.

    The first array has the position of the value's message indexes in the returned list. A value without valid message
    indexes has the position of `()`. The second array has the number of bytes in front of the value's message.
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
    """Return the full name of the message at `indexes` in a protobuf file, or None if the file has no such message."""
    name: str = file.package
    messages = file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            return None
        name, messages = f"{name}.{messages[index].name}", messages[index].nested_type
    return name.lstrip(".")


def registered_descriptors(schema: RegisteredSchema) -> bytes:
    """Return a serialized `FileDescriptorSet` with a registry's protobuf schema and all schemas that it imports.

    Raises:
        ConfigurationError: a schema does not compile.
        TieredStreamError: the compiler is killed from outside.
    """
    files: dict[str, str | bytes] = {}
    names: dict[str, str] = {}
    for name, text in (*schema.references, (_FILE, schema.text)):
        first = names.setdefault(text, name)
        # A file that has two names would define its messages twice.
        files[name] = _file(text) if first == name else f'syntax = "proto3"; import public "{first}";'
    return compiled_proto(files)


def _file(text: str) -> str | bytes:
    """Return `text` unchanged or, if it is base64 of a serialized `FileDescriptorProto`, the decoded bytes.

    A registry stores a protobuf schema in either form (Confluent: `ProtobufSchema.toFile`). Base64 has no semicolon and
    no brace.
    """
    if not text.strip() or ";" in text or "{" in text:
        return text
    try:
        content = b64decode("".join(text.split()), validate=True)
        FileDescriptorProto.FromString(content)
    except (ValueError, DecodeError):
        return text
    return content

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
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from tiered_stream.formats.columns.decoded import REASON_SIZE, ByteSlices, Decoded
from tiered_stream.formats.protobuf.proto_compiler import compiled_proto
from tiered_stream.formats.protobuf.protobuf_decoder import ProtobufDecoder
from tiered_stream.formats.registry.schema_registry import RegisteredSchema, RegistrySettings
from tiered_stream.formats.registry.writer_schemas import PREFIX_SIZE, NamedSchemas, NamingDecoder, Rows, grouped

_FILE = "registered-schema.proto"
_MAX_INDEXES = 64
_NO_INDEXES = "behind the schema's id the value does not say which message it is"

Indexes = tuple[int, ...]


class RegistryProtobufDecoder(NamingDecoder[dict[Indexes, str]]):
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
        self, slices: ByteSlices, named: NamedSchemas, writers: Mapping[int, dict[Indexes, str] | str]
    ) -> Decoded:
        messages = _NamedMessages(named, writers, np.zeros(len(slices), np.int64), {})
        has_prefix = slices.valid != 0
        if named.headers is not None:
            has_prefix &= named.headers < 0
            self._check_headers(messages, named.headers)
        self._check_prefixes(messages, slices, has_prefix)
        is_message = np.ones(len(slices), np.uint8)
        is_message[list(messages.reasons)] = 0
        decoded = self._decoder.read(slices.only(is_message).after(messages.sizes))
        return Decoded(decoded.column, {**decoded.reasons, **messages.reasons})

    def _check_headers(self, messages: _NamedMessages, headers: Rows) -> None:
        rows = np.flatnonzero(headers >= 0)
        for place, at in grouped(headers[rows]):
            indexes, size = message_indexes(messages.named.header_rests[place])
            self._refuse_others(messages, rows[at], indexes if size else None)

    def _check_prefixes(self, messages: _NamedMessages, slices: ByteSlices, has_prefix: Rows) -> None:
        numbers = messages.named.numbers
        names_first = _names_first_message(slices, has_prefix & (numbers >= 0))
        messages.sizes[names_first] = PREFIX_SIZE + 1
        rows = np.flatnonzero(names_first)
        for _, at in grouped(numbers[rows]):
            self._refuse_others(messages, rows[at], (0,))
        for row in np.flatnonzero(has_prefix & ~names_first).tolist():
            indexes, size = message_indexes(slices.value(row)[PREFIX_SIZE:]) if numbers[row] >= 0 else ((), 0)
            messages.sizes[row] = PREFIX_SIZE + size if size else 0
            self._refuse_others(messages, np.array([row]), indexes if size else None)

    def _refuse_others(self, messages: _NamedMessages, rows: Rows, indexes: Indexes | None) -> None:
        """Add a reason to `messages.reasons` for each of `rows`, unless the rows' values are the wanted message.

        All values in `rows` name one schema, and the message `indexes` in this schema. `indexes` is None if the values
        name no message.
        """
        if reason := self._mismatch(messages, int(messages.named.numbers[rows[0]]), indexes):
            messages.reasons.update(dict.fromkeys(rows.tolist(), reason[:REASON_SIZE]))

    def _mismatch(self, messages: _NamedMessages, number: int, indexes: Indexes | None) -> str | None:
        """Return None if the message `indexes` of the schema `number` is the wanted message, otherwise the reason.

        `indexes` is None if the value does not name its message.
        """
        writer = messages.writers[number]
        if number < 0 and isinstance(writer, str):
            return writer
        if indexes is None:
            return _NO_INDEXES
        if isinstance(writer, str):
            return writer
        name = writer.get(indexes)
        if name is None:
            return f"schema {messages.named.name(number)} has no message {list(indexes)}"
        return None if name == self._message else f"the value is a message {name[:80]}, not {self._message[:80]}"


@dataclass(frozen=True, slots=True)
class _NamedMessages:
    """State of one batch while its values are checked: the schemas that values name, and sizes and reasons so far."""

    named: NamedSchemas
    writers: Mapping[int, dict[Indexes, str] | str]
    sizes: Rows
    """Number of bytes in front of the message in each value."""
    reasons: dict[int, str]
    """Reason why a value does not become a row, by the index of the value."""


def _names_first_message(slices: ByteSlices, prefixed: Rows) -> Rows:
    """Return a boolean for each value: True if a zero byte, for the first message, follows its id.

    `prefixed` has a boolean for each value: True if the value has an id in front.
    """
    first = np.zeros(len(slices), np.bool_)
    rows = np.flatnonzero(prefixed & (slices.stops - slices.starts > PREFIX_SIZE))
    first[rows] = slices.data[slices.starts[rows] + PREFIX_SIZE] == 0
    return first


def message_indexes(content: bytes) -> tuple[Indexes, int]:
    """Return the message indexes at the start of `content`, and the number of bytes that they take.

    Returns () and 0 if `content` does not begin with valid indexes. A single zero byte is returned as the indexes (0,).
    """
    numbers: list[int] = []
    at, count = 0, 1
    while len(numbers) <= count:
        number, shift = 0, 0
        while at < len(content) and content[at] & 0x80 and shift < 28:
            number |= (content[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        if at == len(content) or content[at] & 0x80:
            return (), 0
        number |= content[at] << shift
        at += 1
        numbers.append((number >> 1) ^ -(number & 1))
        count = numbers[0]
        if not 0 <= count <= _MAX_INDEXES:
            return (), 0
    return tuple(numbers[1:]) or (0,), at


def _parsed(schema: RegisteredSchema) -> dict[Indexes, str]:
    """Return the full names of a schema's messages by their indexes."""
    files = descriptor_pb2.FileDescriptorSet.FromString(registered_descriptors(schema)).file
    (file,) = (file for file in files if file.name == _FILE)
    names: dict[Indexes, str] = {}
    waiting: list[tuple[Indexes, str, Any]] = [
        ((at,), file.package, message) for at, message in enumerate(file.message_type)
    ]
    while waiting:
        indexes, outer, message = waiting.pop()
        names[indexes] = f"{outer}.{message.name}".lstrip(".")
        waiting += [((*indexes, at), names[indexes], nested) for at, nested in enumerate(message.nested_type)]
    return names


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
        descriptor_pb2.FileDescriptorProto.FromString(content)
    except (ValueError, DecodeError):
        return text
    return content

"""Protobuf values that name their schema by its id in a registry (Confluent's wire format).

Behind the id comes which message of the schema it is: how many numbers, and the numbers, each a zigzag varint, of the
message in its file, then of the one nested in it, and so on; a single zero stands for the first message. A message says
which fields it has, so all are read by one schema; the writer's only says that it is the message that is wanted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.byte_slices import ByteSlices
from tiered_stream.formats.decoded import REASON_SIZE, Decoded
from tiered_stream.formats.google_protobuf import descriptor_pb2
from tiered_stream.formats.proto_compiler import compiled_proto
from tiered_stream.formats.protobuf_decoder import ProtobufDecoder
from tiered_stream.formats.registry_connection import RegistrySettings
from tiered_stream.formats.schema_registry import RegisteredSchema, schema_registry
from tiered_stream.formats.writer_schemas import HEADER_SIZE, NOT_FRAMED, WriterSchemas, schema_ids

_FILE = "registered-schema.proto"
_MOST_INDEXES = 64
_NO_INDEXES = "behind the schema's id the value does not say which message it is"

Indexes = tuple[int, ...]
Rows = np.ndarray[Any, Any]


class RegistryProtobufDecoder:
    """Messages of one name, of any schemas of a registry, read as that of a descriptor set."""

    def __init__(self, settings: RegistrySettings, descriptor_set: bytes, message: str) -> None:
        """Raises ConfigurationError: the settings are none, or as `ProtobufDecoder`."""
        self._writers: WriterSchemas[dict[Indexes, str]] = WriterSchemas(schema_registry(settings), _parsed)
        self._decoder = ProtobufDecoder(descriptor_set, message)
        self._message = message

    @property
    def kind(self) -> pa.DataType:
        return self._decoder.kind

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Raises SchemaRegistryError: the registry cannot be asked. What it does not know is a value's reason."""
        slices = ByteSlices.of(values)
        ids = schema_ids(slices)
        writers = self._writers.of(ids)
        is_first = _is_first(slices, ids)
        sizes = np.where(is_first, HEADER_SIZE + 1, 0)
        reasons: dict[int, str] = {}
        for schema_id, writer in writers.items():
            if why := self._why_not(schema_id, writer, (0,)):
                reasons |= dict.fromkeys(np.flatnonzero(is_first & (ids == schema_id)).tolist(), why)
        for row in np.flatnonzero(~is_first & (slices.valid != 0)).tolist():
            schema_id = int(ids[row])
            indexes, sizes[row] = _indexes(slices.value(row)) if schema_id >= 0 else ((), 0)
            why = self._why_not(schema_id, writers[schema_id], indexes) if sizes[row] else _NO_INDEXES
            if why:
                reasons[row] = NOT_FRAMED if schema_id < 0 else why
        wanted = np.ones(len(slices), np.uint8)
        wanted[list(reasons)] = 0
        decoded = self._decoder.read(slices.only(wanted).after(sizes))
        return Decoded(decoded.column, {**decoded.reasons, **{row: why[:REASON_SIZE] for row, why in reasons.items()}})

    def _why_not(self, schema_id: int, writer: dict[Indexes, str] | str, indexes: Indexes) -> str | None:
        if isinstance(writer, str):
            return writer
        name = writer.get(indexes)
        if name is None:
            return f"schema {schema_id} has no message {list(indexes)}"
        return None if name == self._message else f"the value is a message {name[:80]}, not {self._message[:80]}"


def _is_first(slices: ByteSlices, ids: Rows) -> Rows:
    """Which values say by one zero that they are the first message of their schema."""
    first = np.zeros(len(slices), np.bool_)
    rows = np.flatnonzero((ids >= 0) & (slices.stops - slices.starts > HEADER_SIZE))
    first[rows] = slices.data[slices.starts[rows] + HEADER_SIZE] == 0
    return first


def _indexes(content: bytes) -> tuple[Indexes, int]:
    """Which message a value is, and how many bytes come before it: 0 where it does not say so."""
    numbers: list[int] = []
    at, count = HEADER_SIZE, 1
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
        if not 0 <= count <= _MOST_INDEXES:
            return (), 0
    return tuple(numbers[1:]) or (0,), at


def _parsed(schema_id: int, found: RegisteredSchema) -> dict[Indexes, str] | str:
    """The full names of a schema's messages, by where they are in it."""
    if found.kind != "PROTOBUF":
        return f"schema {schema_id} is of the format {found.kind[:20]}, not PROTOBUF"
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(registered_descriptors(found)).file
    except ConfigurationError as error:
        return f"schema {schema_id}: {error}"
    (file,) = (each for each in files if each.name == _FILE)
    names: dict[Indexes, str] = {}
    waiting: list[tuple[Indexes, str, Any]] = [((at,), file.package, each) for at, each in enumerate(file.message_type)]
    while waiting:
        indexes, outer, message = waiting.pop()
        names[indexes] = f"{outer}.{message.name}".lstrip(".")
        waiting += [((*indexes, at), names[indexes], each) for at, each in enumerate(message.nested_type)]
    return names


def registered_descriptors(found: RegisteredSchema) -> bytes:
    """The descriptor set of a registered schema. Raises ConfigurationError: it cannot be compiled."""
    return compiled_proto({**dict(found.references), _FILE: found.text})

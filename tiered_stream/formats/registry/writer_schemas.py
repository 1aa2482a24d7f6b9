"""Base class of decoders for values that name their schema in a schema registry (Confluent's wire format).

A value begins with a zero byte and the schema's id (int32, big endian), and its content follows. Or the record header
`__key_schema_id` or `__value_schema_id` has a byte 1 and the schema's GUID (16 bytes), or a zero byte and the id. The
value is then the content alone. For protobuf, the indexes of the message in the schema follow the id or GUID. A header
takes precedence over the bytes in front of the value.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache

from tiered_stream.errors import ConfigurationError, UnknownSchemaError
from tiered_stream.formats.columns.decoded import REASON_SIZE, ByteSlices, Decoded, ValueDecoder
from tiered_stream.formats.registry.schema_registry import RegisteredSchema, RegistrySettings, schema_registry

Rows = np.ndarray[Any, Any]

NONE, BAD_HEADER = -1, -2
"""Schema numbers of values without a schema: `NONE` if the value names no schema, `BAD_HEADER` if its record header has
neither an id nor a GUID.
"""
NOT_FRAMED = "the value does not begin with a zero byte and the id of a schema"
NO_SCHEMA_REASONS = {NONE: NOT_FRAMED, BAD_HEADER: "its header for the schema's id holds neither an id nor a GUID"}
PREFIX_SIZE = 5
_GUID_SIZE = 17
_FIRST_GUID = 1 << 31
"""Smallest schema number that stands for a GUID. Schema ids are smaller."""
_MAX_HEADER = 512
"""Maximum number of bytes of a header that are read: enough for a GUID and 64 message indexes."""


@dataclass(frozen=True, slots=True)
class NamedSchemas:
    """Schema number, header and prefix size of each value in one batch."""

    numbers: Rows
    """Schema number of each value: the schema's id, a number for its GUID in this batch, `NONE` or `BAD_HEADER`."""
    sizes: Rows
    """Number of bytes in front of each value's content."""
    guids: dict[int, UUID]
    """GUIDs that record headers name, by the schema numbers that stand for them."""
    headers: Rows
    """For each value, the index of its record's header in `header_rests`, or -1 if the record lacks the header."""
    header_rests: list[bytes]
    """Bytes after the id or the GUID, for each distinct header value in the batch."""

    def id_of(self, number: int) -> int | UUID:
        """Return the GUID for which the schema number `number` stands, or `number` itself if it is a schema's id."""
        return self.guids.get(number, number)


def named_schemas(slices: ByteSlices, header: str, headers: pa.ListArray | None) -> NamedSchemas:
    """Return the schema number of each value, from the record header `header` or from the bytes in front of the value.

    `headers` are the headers of the values' records. If `headers` is None, only the bytes in front of values count.
    """
    numbers = prefixed_ids(slices)
    places, contents = _last_headers(header, headers) if headers is not None else (np.full(len(slices), -1), [])
    places[slices.valid == 0] = -1
    guids: dict[UUID, int] = {}
    parsed = [_parsed(content, guids) for content in contents]
    rows = np.flatnonzero(places >= 0)
    numbers[rows] = np.array([number for number, _ in parsed], np.int64)[places[rows]]
    sizes = np.where((numbers >= 0) & (places < 0), PREFIX_SIZE, 0)
    by_number = {number: guid for guid, number in guids.items()}
    return NamedSchemas(numbers, sizes, by_number, places, [rest for _, rest in parsed])


def _parsed(content: bytes, guids: dict[UUID, int]) -> tuple[int, bytes]:
    """Return the schema number that the header value `content` names, and the bytes after its id or GUID.

    A GUID that is not in `guids` is added to `guids` with a new number. If the header has neither an id nor a GUID, the
    number is `BAD_HEADER`.
    """
    if content[:1] == b"\1" and len(content) >= _GUID_SIZE:
        number = guids.setdefault(UUID(bytes=content[1:_GUID_SIZE]), _FIRST_GUID + len(guids))
        return number, content[_GUID_SIZE:]
    schema_id = int.from_bytes(content[1:PREFIX_SIZE])
    if content[:1] == b"\0" and len(content) >= PREFIX_SIZE and schema_id < _FIRST_GUID:
        return schema_id, content[PREFIX_SIZE:]
    return BAD_HEADER, b""


def grouped(keys: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield each distinct key in `keys`, in ascending order, with the indexes at which it occurs."""
    different, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    groups = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
    yield from zip(different.tolist(), groups, strict=False)  # without keys there is one empty group


def refused(slices: ByteSlices, named: NamedSchemas, writers: Mapping[int, Any]) -> dict[int, str]:
    """Return, by index, the reason of each value whose schema cannot be used: the text that `writers` has for it."""
    texts = {number: why[:REASON_SIZE] for number, why in writers.items() if isinstance(why, str)}
    rows = np.flatnonzero(np.isin(named.numbers, list(texts)) & (slices.valid != 0))
    return {row: texts[number] for row, number in zip(rows.tolist(), named.numbers[rows].tolist(), strict=True)}


def prefixed_ids(slices: ByteSlices) -> Rows:
    """Return the schema id in the first 5 bytes of each value, or `NONE` for a value that does not begin with an id."""
    starts = slices.starts.astype(np.int64)
    ids = np.full(len(slices), NONE, np.int64)
    framed = np.flatnonzero((slices.valid != 0) & (slices.stops - starts >= PREFIX_SIZE))
    framed = framed[slices.data[starts[framed]] == 0]
    numbers = np.zeros(len(framed), np.int64)
    for at in range(1, PREFIX_SIZE):
        numbers = numbers << 8 | slices.data[starts[framed] + at]
    ids[framed] = np.where(numbers < _FIRST_GUID, numbers, NONE)
    return ids


def _last_headers(name: str, headers: pa.ListArray) -> tuple[Rows, list[bytes]]:
    """Return, as (indexes, values), the distinct values of the header `name`, and for each record its value's index.

    A record's last header with this name counts. The index is -1 if the record lacks the header, or the header is null.
    """
    flat = pc.list_flatten(headers)
    hits = pc.indices_nonzero(pc.equal(pc.struct_field(flat, ["key"]), name))
    contents = pc.binary_slice(pc.struct_field(flat, ["value"]).take(hits), 0, _MAX_HEADER).dictionary_encode()
    places = np.full(len(headers), -1, np.int64)
    # The last of several headers counts. If it has no value, the record counts as one without the header.
    places[np.asarray(pc.list_parent_indices(headers).take(hits))] = np.asarray(pc.fill_null(contents.indices, -1))
    return places, contents.dictionary.to_pylist()


T = TypeVar("T")

_CACHED_SCHEMAS = 100
_MAX_UNKNOWN = 1000
"""Maximum number of requests in one batch for schemas that the registry lacks. Malformed values would cause many more.
"""
_NOT_REQUESTED = f"its schema's id was not asked for: the registry lacks {_MAX_UNKNOWN} others that its batch has"


class NamingDecoder(ValueDecoder, Generic[T]):
    """Base class of decoders for values that name their schema in a registry.

    A decoder caches parsed schemas by id and by GUID. It can decode any number of batches, but only in one thread.
    """

    def __init__(
        self, settings: RegistrySettings, header: str, kind: str, parse: Callable[[RegisteredSchema], T | str]
    ) -> None:
        """Prepare to decode values that name schemas, in the record header `header` or in front of the value.

        `kind` is the schema type that every schema must have: AVRO, PROTOBUF or JSON. `parse` parses a registered
        schema. If the schema cannot be used, `parse` returns the reason as a text, or raises ConfigurationError.

        Raises:
            ConfigurationError: the registry's settings are invalid.
        """
        self._header = header
        self._registry = schema_registry(settings)
        self._kind = kind
        self._parse = parse
        self._cache: LRUCache[int | UUID, T | str] = LRUCache(_CACHED_SCHEMAS)

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> Decoded:
        """Decode `values`. A value that cannot be decoded becomes null and gets a reason.

        `headers` are the headers of the values' records, which may name the values' schemas.

        Raises:
            SchemaRegistryError: the registry cannot be reached, or refuses a request. For an unknown schema, the value
                gets a reason instead.
            UnsupportedDataError: schemas or documents need two types for one field, and no type holds the values of
                both.
        """
        slices = ByteSlices.of(values)
        named = named_schemas(slices, self._header, headers)
        return self._decode(slices, named, self._schemas(named))

    def _schemas(self, named: NamedSchemas) -> dict[int, T | str]:
        """Return the parsed schemas that the values of a batch name, by schema number.

        If a schema is unknown or cannot be used, the result has a text with the reason in place of the schema.
        """
        numbers, counts = np.unique(named.numbers, return_counts=True)
        writers: dict[int, T | str] = {}
        unknown = 0
        for number in numbers[np.argsort(-counts)].tolist():
            if number < 0:
                writers[number] = NO_SCHEMA_REASONS[number]
                continue
            schema_id = named.id_of(number)
            writer = self._cache.get(schema_id)
            if writer is None and unknown < _MAX_UNKNOWN:
                try:
                    writer = self._cache[schema_id] = self._load(schema_id)
                except UnknownSchemaError as error:
                    unknown += 1
                    writer = str(error)
            writers[number] = _NOT_REQUESTED if writer is None else writer
        return writers

    def _load(self, schema_id: int | UUID) -> T | str:
        schema = self._registry.by_id(schema_id)
        if schema.kind != self._kind:
            return f"schema {schema_id} is of the format {schema.kind[:20]}, not {self._kind}"
        try:
            parsed = self._parse(schema)
        except ConfigurationError as error:
            return f"schema {schema_id}: {error}"
        return f"schema {schema_id} {parsed}" if isinstance(parsed, str) else parsed

    @abstractmethod
    def _decode(self, slices: ByteSlices, named: NamedSchemas, writers: Mapping[int, T | str]) -> Decoded:
        """Decode the values in `slices`, whose schema numbers and prefix sizes are in `named`.

        `writers` has the parsed schema by schema number, or a text: why values of this schema cannot be decoded.
        """

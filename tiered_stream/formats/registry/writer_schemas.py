"""Decoder of values that name their schemas in front of values or in record headers (Confluent's wire format).

In front of a value are a zero byte and the schema's id (int32, big endian). The header `__key_schema_id` or
`__value_schema_id` has a byte 1 and the schema's GUID (16 bytes), or a zero byte and the id; then the value is the
content alone. For protobuf, the indexes of the message in the schema follow the id or GUID. A header takes precedence
over the bytes in front of the value. Schemas are loaded from a registry, parsed and cached.
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
from tiered_stream.formats.columns.decoded import ByteSlices, Decoded, ValueDecoder
from tiered_stream.formats.registry.schema_registry import RegisteredSchema, RegistrySettings, schema_registry

Rows = np.ndarray[Any, Any]

NOT_FRAMED = "the value does not begin with a zero byte and the id of a schema"
BAD_HEADER = "its header for the schema's id holds neither an id nor a GUID"
PREFIX_SIZE = 5
_GUID_SIZE = 17
_MAX_HEADER = 512
"""Maximum number of bytes of a header that are read: enough for a GUID and 64 message indexes."""


@dataclass(frozen=True, slots=True)
class NamedSchemas:
    """Schemas that the values of one batch name."""

    ids: list[int | UUID | str]
    """Ids and GUIDs of the schemas, and texts: the reasons why values name no schema."""
    numbers: Rows
    """Index in `ids` for each value."""
    sizes: Rows
    """Number of bytes in front of each value's content."""
    headers: Rows
    """Index of each value's header in `header_rests`, -1 for a value without the header."""
    header_rests: list[bytes]
    """Bytes after the id or the GUID, in each of the different header values of the batch."""


def named_schemas(values: pa.BinaryArray, header: str, headers: pa.ListArray | None) -> NamedSchemas:
    """Return the schemas that the values name, in the record header `header` or in front of the value.

    `headers` are the headers of the values' records; None ignores headers.
    """
    places, contents = _last_headers(header, headers) if headers is not None else (np.full(len(values), -1), [])
    places[np.asarray(values.is_null())] = -1
    named = [_parsed(content, BAD_HEADER) for content in contents]
    # Values with a header are left out, because their first bytes may all be different.
    prefixes = pc.if_else(pa.array(places < 0), pc.binary_slice(values, 0, PREFIX_SIZE), b"")
    prefixes = pc.fill_null(prefixes, b"").dictionary_encode()
    named += [_parsed(prefix, NOT_FRAMED) for prefix in prefixes.dictionary.to_pylist()]
    rows = np.where(places >= 0, places, np.asarray(prefixes.indices) + len(contents))
    ids: dict[int | UUID | str, int] = {}
    numbers = np.array([ids.setdefault(schema_id, len(ids)) for schema_id, _ in named], np.int64)[rows]
    is_framed = np.array([not isinstance(schema_id, str) for schema_id, _ in named], np.bool_)[rows]
    sizes = np.where(is_framed & (places < 0), PREFIX_SIZE, 0)
    return NamedSchemas(list(ids), numbers, sizes, places, [rest for _, rest in named[: len(contents)]])


def _parsed(content: bytes, reason: str) -> tuple[int | UUID | str, bytes]:
    """Return the GUID or id at the start of `content`, or `reason` if there is none, and the bytes after it."""
    if content[:1] == b"\1" and len(content) >= _GUID_SIZE:
        return UUID(bytes=content[1:_GUID_SIZE]), content[_GUID_SIZE:]
    schema_id = int.from_bytes(content[1:PREFIX_SIZE], signed=True)
    if content[:1] == b"\0" and len(content) >= PREFIX_SIZE and schema_id >= 0:
        return schema_id, content[PREFIX_SIZE:]
    return reason, b""


def grouped(keys: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield each different key, in ascending order, with the indexes in `keys` at which the key occurs."""
    different, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    groups = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
    yield from zip(different.tolist(), groups, strict=False)  # without keys there is one empty group


def _last_headers(name: str, headers: pa.ListArray) -> tuple[Rows, list[bytes]]:
    """Return the value of each record's last header with the name `name`, as (index for each record, different values).

    The index is -1 for a record without the header, or with a null header.
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
"""Maximum number of unknown schemas that are requested for one batch, so that malformed values do not cause many
requests.
"""
_NOT_REQUESTED = f"its schema's id was not asked for: the registry lacks {_MAX_UNKNOWN} others that its batch has"


class NamingDecoder(ValueDecoder, Generic[T]):
    """Decoder of values that name their schemas in a registry. Only one thread may use it, for any number of batches.

    It caches parsed schemas, by their ids and GUIDs.
    """

    def __init__(
        self, settings: RegistrySettings, header: str, kind: str, parse: Callable[[RegisteredSchema], T | str]
    ) -> None:
        """Prepare to decode values that name schemas, in the record header `header` or in front of the value.

        `kind` is the schema type that every schema must have: AVRO, PROTOBUF or JSON. `parse` parses a registered
        schema. If the schema cannot be used, `parse` returns a text or raises ConfigurationError. The cache then has
        the reason, a text, in place of the schema.

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
        named = named_schemas(values, self._header, headers)
        return self._decode(ByteSlices.of(values), named, self._schemas(named))

    def _schemas(self, named: NamedSchemas) -> dict[int, T | str]:
        """Return the schemas that the values of a batch name, by number.

        If a schema is unknown or cannot be used, the result has the reason, a text, in place of the schema. Schemas
        that many values name are requested first.
        """
        counts = np.bincount(named.numbers, minlength=len(named.ids))
        writers: dict[int, T | str] = {}
        unknown = 0
        for number in np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist():
            schema_id = named.ids[number]
            writer = schema_id if isinstance(schema_id, str) else self._cache.get(schema_id)
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
        """Decode the values in `slices`, which name the schemas `named`.

        `writers` has these schemas by number, or the reason why values of a schema cannot be decoded.
        """

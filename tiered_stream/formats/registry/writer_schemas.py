"""Decoder of values that name their schemas, which are loaded from a registry, parsed and cached."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from tiered_stream.errors import ConfigurationError, UnknownSchemaError
from tiered_stream.formats.columns.byte_slices import ByteSlices
from tiered_stream.formats.columns.decoded import Decoded, ValueDecoder
from tiered_stream.formats.registry.registry_connection import RegistrySettings
from tiered_stream.formats.registry.schema_ids import NO_SCHEMA_REASONS, NamedSchemas, SchemaIds
from tiered_stream.formats.registry.schema_registry import RegisteredSchema, schema_registry

T = TypeVar("T")

_CACHED_SCHEMAS = 100
_MAX_UNKNOWN = 1000
"""Maximum number of unknown schemas that are requested for one batch, so that malformed values do not cause many
requests.
"""
_NOT_REQUESTED = f"its schema's id was not asked for: the registry lacks {_MAX_UNKNOWN} others that its batch has"


class NamingDecoder(ValueDecoder, Generic[T]):
    """Decoder of values that name their schemas in a registry. One thread uses it, for any number of batches.

    It caches parsed schemas, by their numbers in `NamedSchemas.numbers`.
    """

    def __init__(
        self, settings: RegistrySettings, header: str, kind: str, parse: Callable[[RegisteredSchema], T | str]
    ) -> None:
        """Prepare to decode values that name schemas, in the record header `header` or in front of the value.

        `kind` is the schema type that every schema must have: AVRO, PROTOBUF or JSON. `parse` parses a registered
        schema. If the schema cannot be used, `parse` returns a text or raises ConfigurationError. The cache then has
        the reason, a text, in place of the schema.

        Raises ConfigurationError if the registry's settings are invalid.
        """
        self._ids = SchemaIds(header)
        self._registry = schema_registry(settings)
        self._kind = kind
        self._parse = parse
        self._cache: LRUCache[int, T | str] = LRUCache(_CACHED_SCHEMAS)

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> Decoded:
        """Decode values as `ValueDecoder.decode` does.

        Raises:
            SchemaRegistryError: the registry cannot be reached, or refuses a request. For an unknown schema, the value
                gets a reason instead.
            UnsupportedDataError: schemas or documents need two types for one field, and no type holds the values of
                both.
        """
        slices = ByteSlices.of(values)
        named = self._ids.named(slices, headers)
        return self._decode(slices, named, self._schemas(named))

    def _schemas(self, named: NamedSchemas) -> dict[int, T | str]:
        """Return the schemas that the values of a batch name, by number.

        If a schema is unknown or cannot be used, the result has the reason, a text, in place of the schema. Schemas
        that many values name are requested first.

        Raises:
            SchemaRegistryError: the registry cannot be reached, or refuses a request. An unknown schema is no error.
        """
        numbers, counts = np.unique(named.numbers, return_counts=True)
        writers: dict[int, T | str] = {}
        unknown = 0
        for number in numbers[np.argsort(-counts)].tolist():
            if number < 0:
                writers[number] = NO_SCHEMA_REASONS[number]
                continue
            writer = self._cache.get(number)
            if writer is None and unknown < _MAX_UNKNOWN:
                try:
                    writer = self._cache[number] = self._load(named.guids.get(number, number))
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

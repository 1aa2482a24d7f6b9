"""Client and cache for schemas by id in a schema registry (Confluent's REST API, also of Karapace and Apicurio).

A schema never changes under its id, so a process asks for each schema once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.parse import quote
from uuid import UUID

from cachetools import TTLCache

from tiered_stream.errors import SchemaRegistryError, UnknownSchemaError
from tiered_stream.formats.registry.registry_connection import GUIDS, RegistryConnection, RegistrySettings
from tiered_stream.process.caches import PerProcess, SingleFlightCache

_MAX_CHARACTERS, _MAX_UNKNOWN, _UNKNOWN_SECONDS = 64 << 20, 100_000, 60.0
_MAX_REFERENCES = 200
_Loaded = dict[tuple[str, str, int], tuple[str, str] | None]


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """Schema with all schemas that it refers to, directly or not.

    `references` has (name, text) of these schemas, each after the schemas that it needs itself. `kind` is AVRO,
    PROTOBUF or JSON.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...]

    @property
    def size(self) -> int:
        return len(self.text) + sum(len(text) for _, text in self.references)


class SchemaRegistry:
    """Client of one registry that caches schemas, safe to use from several threads.

    `schema_registry` returns the client that a process shares.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._connection = RegistryConnection(settings)
        self._context = settings.context
        self._schemas: SingleFlightCache[int | UUID, RegisteredSchema] = SingleFlightCache(
            _MAX_CHARACTERS, lambda schema: schema.size + 1000
        )
        self._unknown: TTLCache[int | UUID, bool] = TTLCache(_MAX_UNKNOWN, _UNKNOWN_SECONDS)
        self._lock = Lock()

    def by_id(self, schema_id: int | UUID) -> RegisteredSchema:
        """Return the schema that writers name by this id or, in a record header, by this GUID.

        Raises:
            UnknownSchemaError: the registry has no such schema. For the next minute, the error is raised without a
                request.
            SchemaRegistryError: the registry cannot be reached, or refuses the request (see `RegistryConnection.get`).
        """
        # The error has the same text each time, because dead letters have this text as their reason.
        unknown = UnknownSchemaError(f"the schema registry has no schema {schema_id}")
        with self._lock:
            if schema_id in self._unknown:
                raise unknown
        # A GUID is the schema's in all contexts. An id without a subject is looked up in the default context.
        in_context = f"?subject={quote(self._context, safe='')}" if self._context else ""
        path = f"/schemas/ids/{schema_id}{in_context}" if isinstance(schema_id, int) else f"{GUIDS}{schema_id}"
        try:
            return self._schemas.get(schema_id, lambda: self._load(path))
        except UnknownSchemaError as error:
            with self._lock:
                self._unknown[schema_id] = True
            raise unknown from error

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject. Each call sends a request, because a newer schema may exist.

        Raises UnknownSchemaError if the registry has no such subject, and SchemaRegistryError as `by_id` does.
        """
        return self._load(f"/subjects/{subject_path(subject)}/versions/latest")

    def _load(self, path: str) -> RegisteredSchema:
        response = self._connection.get(path)
        references: _Loaded = {}
        try:
            self._refer(response, self._context, references)
        except UnknownSchemaError as error:
            raise SchemaRegistryError(f"{path} refers to what is not there: {error}") from error
        loaded = tuple(reference for reference in references.values() if reference)
        return RegisteredSchema(str(response.get("schemaType") or "AVRO"), _text(path, response), loaded)

    def _refer(self, response: Mapping[str, Any], context: str, loaded: _Loaded) -> None:
        """Add to `loaded` all schemas that the schema in `response` refers to, directly or not.

        `context` is the context of the schema; subjects without a context are in it. Each schema comes after the
        schemas that it refers to. Keys are (name, subject, version), and values are
        (name, text). The value None marks a schema that is being loaded.
        """
        listed = response.get("references") or []
        for reference in listed if isinstance(listed, list) else [listed]:
            match reference:
                case {"name": str(name), "subject": str(subject), "version": int(version)}:
                    pass
                case _:
                    raise SchemaRegistryError(
                        f"the schema registry gives a malformed reference: {str(reference)[:100]}"
                    )
            subject = subject if context_of(subject) else context + subject
            key = name, subject, version
            path = f"/subjects/{subject_path(subject)}/versions/{version}"
            if loaded.get(key) is not None:
                continue
            if key in loaded or len(loaded) >= _MAX_REFERENCES:
                raise SchemaRegistryError(f"{path} refers to itself, or to more than {_MAX_REFERENCES} schemas")
            loaded[key] = None
            below = self._connection.get(path)
            self._refer(below, context_of(subject), loaded)
            # Moved to the end of the order, after the schemas that it needs.
            del loaded[key]
            loaded[key] = name, _text(path, below)


def context_of(subject: str) -> str:
    """Return the context in front of a subject's name, such as `:.prod:`; '' for a subject of the default context."""
    found = re.match(r":\.[^:]*:", subject)
    return found[0] if found else ""


def _text(path: str, response: Mapping[str, Any]) -> str:
    text = response.get("schema")
    if not isinstance(text, str):
        raise SchemaRegistryError(f"the schema registry's response to {path} has no schema")
    return text


_registries: PerProcess[SchemaRegistry] = PerProcess()


def schema_registry(settings: RegistrySettings) -> SchemaRegistry:
    """Return the registry client for the settings, which all callers in this process share.

    Raises ConfigurationError if the TLS files of the settings cannot be used.
    """
    return _registries.get(settings, lambda: SchemaRegistry(settings))


def subject_path(subject: str) -> str:
    """Return a subject as one segment of a URL's path. A client would remove the segments `.` and `..`."""
    escaped = quote(subject, safe="")
    return escaped if subject.strip(".") else escaped.replace(".", "%2E")

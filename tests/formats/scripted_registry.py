"""A schema registry that answers what a test says, and keeps what it was asked."""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID

import pyarrow as pa

from tests.local_http import Answer, LocalHttp, respond
from tiered_stream.formats.registry.schema_registry import RegistrySettings
from tiered_stream.records.arrow import HEADERS_TYPE

HEADER = "__value_schema_id"


def framed(schema_id: int, content: bytes) -> bytes:
    """Return a value that has the id of its schema in front."""
    return b"\0" + schema_id.to_bytes(4) + content


def with_guid(guid: UUID, rest: bytes = b"") -> bytes:
    """Return the value of a header that has the GUID of a schema."""
    return b"\1" + guid.bytes + rest


def headers_of(values: Sequence[bytes | None]) -> pa.ListArray:
    """Return the headers of records, each with one header for the schema's id; None: a record has no headers."""
    return pa.array([value and [{"key": HEADER, "value": value}] for value in values], HEADERS_TYPE)


class ScriptedRegistry(LocalHttp):
    """`schemas` by their ids, `guids` by GUIDs, `versions` by (subject, version), and `contexts` with ids of their own.

    The first of `answers` goes in place of anything.
    """

    def __init__(self, identity: ssl.SSLContext | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.contexts: dict[str, dict[int, dict[str, Any]]] = {}
        self.guids: dict[str, dict[str, Any]] = {}
        self.versions: dict[tuple[str, str], dict[str, Any]] = {}
        self.answers: list[Answer] = []
        self.asked: list[str] = []
        self.authorizations: set[str | None] = set()
        super().__init__(type("Handler", (_Handler,), {"registry": self}), identity)

    @property
    def settings(self) -> RegistrySettings:
        return RegistrySettings.parse({"url": self.url})

    def answer(self, path: str) -> Answer:
        if self.answers:
            return self.answers.pop(0)
        url = urlsplit(path)
        parts = url.path.strip("/").split("/")
        (subject,) = parse_qs(url.query).get("subject", [""])
        if parts[0] == "contexts":
            subject, parts = f":{parts[1]}:", parts[2:]
        if parts[:2] == ["schemas", "ids"]:
            schemas = self.contexts[subject] if subject else self.schemas
            found, code = schemas.get(int(parts[2])), 40403
        elif parts[:2] == ["schemas", "guids"]:
            found, code = self.guids.get(parts[2]), 40403
        else:
            name = parts[1] if parts[1].startswith("%3A") else quote(subject, safe="") + parts[1]
            found, code = self.versions.get((name, parts[3])), 40402
        if found is None:
            return Answer(404, json.dumps({"error_code": code, "message": "not found"}).encode())
        return Answer(200, json.dumps(found).encode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: ScriptedRegistry

    def do_GET(self) -> None:
        self.registry.asked.append(self.path)
        self.registry.authorizations.add(self.headers["Authorization"])
        respond(self, self.registry.answer(self.path))

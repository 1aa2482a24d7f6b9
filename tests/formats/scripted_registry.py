"""A schema registry that answers what a test says, and keeps what it was asked."""

from __future__ import annotations

import json
import ssl
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from tests.local_http import Answer, LocalHttp, respond


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

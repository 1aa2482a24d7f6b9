"""Handler in front of fake-gcs-server for Google's XML API, which obstore and deltalake use.

fake-gcs-server has uploads and deletions in the JSON API only, and ignores the start of a listing.
"""

from __future__ import annotations

import json
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from tests.rigs.stack.http_front import FrontHandler, listed_from

_JSON_API = ("/storage/", "/upload/", "/resumable/", "/download/", "/batch/", "/b/", "/_internal/")


class GcsXmlHandler(FrontHandler):
    """Handler that translates uploads and deletions, and starts listings where they are to start."""

    def handle_request(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = parts.path.lstrip("/").partition("/")
        is_object = bool(key) and not parts.path.startswith(_JSON_API)
        if is_object and self.command == "PUT":
            self._upload(bucket, unquote(key), body)
        elif is_object and self.command == "DELETE":
            name = quote(unquote(key), safe="")
            response, _ = self.ask("DELETE", f"/storage/v1/b/{bucket}/o/{name}", b"", {})
            self.respond(204 if response.status == 200 else response.status, {}, b"")
        else:
            response, content = self.ask(self.command, self.path, body, self.passed_headers())
            after = parse_qs(parts.query).get("start-after")
            if after and response.status == 200:
                content = listed_from(content, "Contents", "Key", after[0], inclusive=False)
            self.respond(response.status, dict(response.getheaders()), content)

    def passed_headers(self) -> dict[str, str]:
        return {name: value for name, value in super().passed_headers().items() if name.lower() != "host"}

    def _upload(self, bucket: str, key: str, body: bytes) -> None:
        query = {"uploadType": "media", "name": key}
        if (generation := self.headers.get("x-goog-if-generation-match")) is not None:
            query["ifGenerationMatch"] = generation
        headers = {"Content-Type": self.headers.get("Content-Type", "application/octet-stream")}
        response, content = self.ask("POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}", body, headers)
        if response.status != 200:
            code = {404: "NoSuchBucket", 412: "PreconditionFailed"}.get(response.status, "InternalError")
            self.respond(response.status, {}, f"<Error><Code>{code}</Code></Error>".encode())
            return
        made = json.loads(content)
        self.respond(200, {"ETag": f'"{made["etag"].strip(chr(34))}"', "x-goog-generation": made["generation"]}, b"")

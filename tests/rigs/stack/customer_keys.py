"""Front of an S3 server that demands the key of SSE-C for each object, as S3 does for objects that have one."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.rigs.stack.http_front import FrontHandler

KEY = "Y3VzdG9tZXIta2V5LW9mLTI1Ni1iaXRzLTEyMzQ1Njc="
_PREFIX = "x-amz-server-side-encryption-customer-"


class CustomerKeyHandler(FrontHandler):
    """Handler that refuses to put, get or describe an object without the headers of `KEY`."""

    def handle_request(self, body: bytes) -> None:
        names_object = "/" in urlsplit(self.path).path.strip("/")
        asked = (self.headers.get(f"{_PREFIX}algorithm"), self.headers.get(f"{_PREFIX}key"))
        signed = f"{_PREFIX}key;" in self.headers.get("Authorization", "")
        if self.command in ("PUT", "GET", "HEAD") and names_object and not (asked == ("AES256", KEY) and signed):
            self.respond(400, {}, b"<Error><Code>InvalidRequest</Code><Message>The key is missing</Message></Error>")
        else:
            super().handle_request(body)

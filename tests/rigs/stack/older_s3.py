"""Front of an S3 server that lacks what S3 itself got last: checksums in headers and trailers, and `start-after`."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from tests.rigs.stack.http_front import FrontHandler
from tests.rigs.stack.s3_server import S3Server

_CHECKSUMS = ("x-amz-checksum-", "x-amz-sdk-checksum-", "x-amz-trailer")
_NOT_IMPLEMENTED = b"<Error><Code>NotImplemented</Code><Message>A header is not implemented</Message></Error>"


def older(server: S3Server) -> type[FrontHandler]:
    """Return a handler that refuses headers of checksums, and that lists from the first key in any case."""

    class OlderS3Handler(FrontHandler):
        def handle_request(self, body: bytes) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if any(name.lower().startswith(_CHECKSUMS) for name in self.headers):
                self.respond(501, {}, _NOT_IMPLEMENTED)
            elif "start-after" in query:
                response, listing = self.ask("GET", self._list_from_the_start(parts.path, query), b"", {})
                self.respond(response.status, dict(response.getheaders()), listing)
            else:
                super().handle_request(body)

        def _list_from_the_start(self, path: str, query: dict[str, str]) -> str:
            """Return a signed path of the same listing without its start."""
            names = {"prefix": "Prefix", "delimiter": "Delimiter", "continuation-token": "ContinuationToken"}
            given = {names[name]: value for name, value in query.items() if name in names}
            url = server.client().generate_presigned_url("list_objects_v2", Params={"Bucket": path.strip("/"), **given})
            signed = urlsplit(url)
            return f"{signed.path}?{signed.query}"

    return OlderS3Handler

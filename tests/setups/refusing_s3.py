"""An S3 endpoint that passes requests on, and refuses as AWS does what needs a permission that is missing."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from tests.rigs.stack.http_front import FrontHandler

LIST_BUCKET, GET_OBJECT, DECRYPT = "s3:ListBucket", "s3:GetObject", "kms:Decrypt"
_USER = "arn:aws:iam::123456789012:user/ingest"
_KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


class RefusingS3(FrontHandler):
    """Without `s3:ListBucket`, AWS also refuses an object that does not exist."""

    missing: tuple[str, ...] = ()

    def handle_request(self, body: bytes) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        bucket, _, key = path.strip("/").partition("/")
        if not key and ("list-type" in query or "prefix" in query) and LIST_BUCKET in self.missing:
            self._refuse(LIST_BUCKET, f"arn:aws:s3:::{bucket}")
            return
        if not key:
            super().handle_request(body)
            return
        response, content = self.ask(self.command, self.path, body, self.passed_headers())
        if GET_OBJECT in self.missing:
            self._refuse(GET_OBJECT, f"arn:aws:s3:::{bucket}/{key}")
        elif response.status == 404 and LIST_BUCKET in self.missing:
            self._refuse(LIST_BUCKET, f"arn:aws:s3:::{bucket}")
        elif response.status < 300 and DECRYPT in self.missing:
            self._refuse(DECRYPT, _KEY)
        else:
            self.respond(response.status, dict(response.getheaders()), content)

    def _refuse(self, permission: str, resource: str) -> None:
        said = (
            f"User: {_USER} is not authorized to perform: {permission} on resource: &quot;{resource}&quot; because no "
            f"identity-based policy allows the {permission} action"
        )
        body = f"<Error><Code>AccessDenied</Code><Message>{said}</Message></Error>".encode()
        self.respond(403, {"Content-Type": "application/xml"}, body)

"""One server as blob service, bucket and token service, which records by whom each request was authorized."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from tests.local_http import Answer, LocalHttp, respond

SECRETS = ("client_secret", "client_assertion", "subject_token")
NO_BLOBS = Answer(200, b"<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>")
NO_KEYS = Answer(200, b"<ListBucketResult></ListBucketResult>")
NOT_FOUND = Answer(404, b"<Error><Code>BlobNotFound</Code></Error>", {"Content-Type": "application/xml"})


def signer(authorization: str) -> str:
    """Who signed a request; a service account's own token names the account."""
    name = authorization.partition(":")[0].strip()
    if name.count(".") == 2:
        claims = name.split(".")[1]
        return str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["iss"])
    return name if name not in ("", "Bearer") else "nobody"


class CloudServices(LocalHttp):
    """`seen` has who signed the requests for objects; `asked` the requests for tokens, as paths with their queries.

    `refusal` is the answer of the token service, if it is not a token.
    """

    def __init__(self) -> None:
        services = self
        self.seen: list[str] = []
        self.asked: list[str] = []
        self.refusal: Answer | None = None
        self.lifetime = 3600

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                respond(self, services.answer(self.path, body, self.headers.get("Authorization", "")))

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

        super().__init__(Handler)
        self._lock = threading.Lock()
        self.host = self.url.removeprefix("http://")

    def answer(self, path: str, body: str, authorization: str) -> Answer:
        parts, form = urlsplit(path), {name: values[0] for name, values in parse_qs(body).items()}
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self._lock:
            if re.search(r"/(token|msi)$", parts.path):
                self.asked.append(path)
                return self.refusal or self._token(form or query, parts.path)
            signature = f"SAS {query['sig']}" if "sig" in query else ""
            self.seen.append(signature or signer(authorization))
            return NO_BLOBS if query.get("comp") == "list" else NO_KEYS if "list-type" in query else NOT_FOUND

    def _token(self, fields: dict[str, str], path: str) -> Answer:
        """A token that names the identity which asked for it."""
        machine = f"machine{path.rpartition('/')[0].replace('/', '-')}"
        how = next((fields[name] for name in SECRETS if name in fields), machine)
        names = [fields[name] for name in ("client_id", "object_id", "msi_res_id") if name in fields]
        document: dict[str, object] = {"access_token": "-".join([how, *names]), "expires_in": self.lifetime}
        if "subject_token" in fields:  # Google's exchange of tokens
            document |= {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer"}
        if how is machine:
            document["expires_on"] = str(int(time.time()) + self.lifetime)  # Azure's machines have no other time
        return Answer(200, json.dumps(document).encode())

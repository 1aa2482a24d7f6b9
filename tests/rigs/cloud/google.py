"""Google Cloud at its own host names, in the namespaces of `namespace.py`: storage, and who may read it.

    google.create_bucket("lake")
    key = google.service_account("reader")

The objects are in fake-gcs-server, which no test asks, and which asks nobody for credentials.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.rigs.cloud.front import METADATA, PUBLIC, Answer, Cloud, RefusedError, Request, json_answer
from tests.rigs.cloud.sigv4 import UNSIGNED, canonical_digest
from tests.rigs.stack.fake_gcs import FakeGcs

STORAGE, METADATA_HOST = "storage.googleapis.com", "metadata.google.internal"
_LOGINS = ("accounts.google.com", "oauth2.googleapis.com")
_IAM, _STS = "iamcredentials.googleapis.com", "sts.googleapis.com"
_SCOPES = {f"https://www.googleapis.com/auth/{name}" for name in ("cloud-platform", "devstorage.read_write")}
_PATH = "/computeMetadata/v1/instance/service-accounts/default/"


class Google(Cloud):
    """State of Google Cloud: everything that a test changes is gone after `reset`, except buckets."""

    def __init__(self, folder: Path) -> None:
        self._server = FakeGcs(folder)
        self._server.start()
        self.backend_port = self._server.port
        self.create_bucket, self.upload = self._server.create_bucket, self._server.upload
        self._key = rsa.generate_private_key(65537, 2048)
        super().__init__()

    def stop(self) -> None:
        self._server.stop()

    def reset(self) -> None:
        super().reset()
        self.accounts: set[str] = set()
        """E-mail addresses of service accounts."""
        self.refresh_tokens: dict[str, str] = {}
        """E-mail addresses of users, by their refresh tokens."""
        self.subjects: dict[str, str] = {}
        """Identities of other clouds or clusters, by their tokens."""
        self.instance = ""
        """E-mail address of the machine's service account; empty: it has none."""
        self.tokens: dict[str, tuple[str, float]] = {}

    def service_account(self, name: str) -> str:
        """Create a service account, and return its key file's content."""
        email = f"{name}@project.iam.gserviceaccount.com"
        self.accounts.add(email)
        pem = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        named = {"type": "service_account", "client_email": email, "private_key_id": "1", "private_key": pem.decode()}
        named["client_id"] = "1"
        return json.dumps(named | {"token_uri": "https://oauth2.googleapis.com/token", "project_id": "project"})

    def address_of(self, host: str) -> str | None:
        if host == METADATA_HOST:
            return METADATA
        return PUBLIC if host in (STORAGE, *_LOGINS, _IAM, _STS) or host.endswith(f".{STORAGE}") else None

    def certificate_names(self, host: str) -> tuple[str, ...]:
        return (STORAGE, f"*.{STORAGE}") if host.endswith(STORAGE) else (host,)

    def answer(self, request: Request, seen: dict[str, str]) -> Answer:
        if request.address == METADATA:
            return self._metadata(request)
        if request.host in _LOGINS:
            return self._login(request, seen)
        if request.host == _STS:
            return self._exchange(request, seen)
        seen["identity"] = self._identity(request)
        if seen["identity"] in self.without_role:
            message = f"{seen['identity']} does not have storage.objects.get access to the Google Cloud Storage object."
            raise RefusedError(403, "AccessDenied", message)
        if request.host != _IAM:
            return self._forward(request)
        return (self._impersonate if request.path.endswith(":generateAccessToken") else self._sign_blob)(request)

    def refusal(self, request: Request, refused: RefusedError) -> bytes:
        if request.host.endswith(STORAGE):
            return super().refusal(request, refused)
        return json.dumps({"error": refused.code, "error_description": refused.elements["Message"]}).encode()

    def _forward(self, request: Request) -> Answer:
        """Ask the emulator. It lacks moves: https://cloud.google.com/storage/docs/json_api/v1/objects/move."""
        assert request.ask is not None
        bucket = request.host.removesuffix(STORAGE).rstrip(".")
        path = f"/{bucket}{request.path}" if bucket else request.path
        query = "&".join(part for part in request.query.split("&") if part and not part.startswith("X-Goog-"))
        passed = {name: value for name, value in request.headers.items() if name not in ("authorization", "host")}
        source, moves, target = path.partition("/moveTo/")
        if moves:
            path = f"{source}/copyTo{source.removeprefix('/storage/v1').partition('/o/')[0]}/{target}"
        answer = request.forwarded(path, query, passed)
        if moves and answer[0] == 200:
            request.ask("DELETE", source, b"", {})
        return answer

    def _identity(self, request: Request) -> str:
        """Return whose token or signature a request has.

        https://cloud.google.com/storage/docs/authentication

        Raises:
            RefusedError: there is none, or it does not hold.
        """
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if "X-Goog-Signature" in request.parameters():
            found = self._signer(request)
        elif not kind:
            raise RefusedError(401, "AccessDenied", "Anonymous caller does not have storage.objects.get access.")
        elif token.count(".") == 2:
            found = self._issuer(token)
        else:
            email, ends = self.tokens.get(token, ("", 0.0))
            found = email if kind == "Bearer" and ends > time.time() else ""
        if not found:
            raise RefusedError(401, "AuthenticationRequired", "Invalid Credentials")
        return found

    def _issuer(self, token: str) -> str:
        """Return the service account that signed a token itself; empty: the token does not hold.

        https://developers.google.com/identity/protocols/oauth2/service-account#jwt-auth
        """
        signed, _, signature = token.rpartition(".")
        claims = json.loads(_decoded(signed.partition(".")[2]))
        holds = claims["iat"] <= time.time() + 60 and time.time() < claims["exp"] <= claims["iat"] + 3600
        known = claims["iss"] == claims.get("sub", claims["iss"]) and claims["iss"] in self.accounts
        scoped = not _SCOPES.isdisjoint(claims.get("scope", "").split())
        return claims["iss"] if holds and known and scoped and self._holds(_decoded(signature), signed) else ""

    def _signer(self, request: Request) -> str:
        """Return the service account that signed a URL; empty: the signature does not hold.

        https://cloud.google.com/storage/docs/authentication/signatures
        """
        given = request.parameters()
        email, _, scope = given["X-Goog-Credential"].partition("/")
        signed_at = time.strptime(given["X-Goog-Date"], "%Y%m%dT%H%M%SZ")
        if time.mktime(signed_at) - time.timezone + int(given["X-Goog-Expires"]) < time.time():
            raise RefusedError(400, "ExpiredToken", "Invalid argument.")
        headers = given["X-Goog-SignedHeaders"].split(";")
        digest = canonical_digest(request, headers, UNSIGNED, "X-Goog-Signature")
        text = "\n".join(("GOOG4-RSA-SHA256", given["X-Goog-Date"], scope, digest))
        if email not in self.accounts or not self._holds(bytes.fromhex(given["X-Goog-Signature"]), text):
            raise RefusedError(403, "SignatureDoesNotMatch", "Access denied.")
        return email

    def _holds(self, signature: bytes, text: str) -> bool:
        try:
            self._key.public_key().verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        return True

    def _login(self, request: Request, seen: dict[str, str]) -> Answer:
        """Answer to a refresh token of a user, or to an assertion that a service account has signed.

        https://developers.google.com/identity/protocols/oauth2/web-server
        https://developers.google.com/identity/protocols/oauth2/service-account#httprest
        """
        given = dict(parse_qsl(request.body.decode()))
        email = ""
        if given.get("grant_type") == "refresh_token":
            email = self.refresh_tokens.get(given.get("refresh_token", ""), "")
        elif given.get("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer":
            email = self._issuer(given.get("assertion", ""))
        if not email:
            raise RefusedError(400, "invalid_grant", "Bad Request")
        seen["identity"] = email
        return self._token(email)

    def _exchange(self, request: Request, seen: dict[str, str]) -> Answer:
        """Exchange a token of another cloud or cluster: https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token."""
        subject = self.subjects.get(dict(parse_qsl(request.body.decode())).get("subject_token", ""))
        if subject is None:
            raise RefusedError(400, "invalid_grant", "The given credential is rejected by the attribute condition.")
        seen["identity"] = subject
        status, headers, content = self._token(subject)
        kind = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
        return status, headers, json.dumps(json.loads(content) | kind).encode()

    def _impersonate(self, request: Request) -> Answer:
        """https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken"""
        email = request.path.rpartition("/")[2].partition(":")[0]
        token = json.loads(self._token(email)[2])["access_token"]
        ends = datetime.fromtimestamp(self.tokens[token][1], UTC)
        return json_answer({"accessToken": token, "expireTime": ends.strftime("%Y-%m-%dT%H:%M:%SZ")})

    def _metadata(self, request: Request) -> Answer:
        """Answer as the metadata server: https://cloud.google.com/compute/docs/metadata/querying-metadata."""
        if self.metadata_status is not None:
            return self.metadata_status, {}, b""
        if request.headers.get("metadata-flavor") != "Google":
            raise RefusedError(403, "forbidden", "Missing Metadata-Flavor:Google header.")
        answers: dict[str, Callable[[], Answer]] = {
            "token": lambda: self._token(self.instance),
            "email": lambda: (200, {"Metadata-Flavor": "Google"}, self.instance.encode()),
        }
        answer = answers.get(request.path.removeprefix(_PATH))
        return answer() if answer and self.instance else (404, {}, b"")

    def _sign_blob(self, request: Request) -> Answer:
        """https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/signBlob"""
        payload = base64.b64decode(json.loads(request.body)["payload"])
        signed = self._key.sign(payload, padding.PKCS1v15(), hashes.SHA256())
        return json_answer({"keyId": "1", "signedBlob": base64.b64encode(signed).decode()})

    def _token(self, email: str) -> Answer:
        token = secrets.token_urlsafe(40)
        self.tokens[token] = email, time.time() + self.lifetime
        document = {"access_token": token, "expires_in": self.lifetime, "token_type": "Bearer"}
        return json_answer(document, Metadata_Flavor="Google")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

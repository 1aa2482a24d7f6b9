"""An OAuth 2 token endpoint with the grant of client credentials, whose tokens are JWTs signed by RS256."""

from __future__ import annotations

import base64
import json
import ssl
import time
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qsl

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.local_http import Answer, LocalHttp, respond

AUDIENCE = "kafka"


class TokenServer(LocalHttp):
    """`asked` holds the forms that came, `issued` the tokens that went; of `answers` each goes instead of a token.

    Args:
        clients: the secret of each client's id. Its tokens are for the principal of that name.
        life_seconds: of each token.
        key_pem: key that signs the tokens, so that a broker accepts them by the keys of another server.
    """

    def __init__(
        self,
        clients: dict[str, str],
        life_seconds: float = 3600,
        identity: ssl.SSLContext | None = None,
        key_pem: str | None = None,
    ) -> None:
        self.clients, self.life_seconds = clients, life_seconds
        self.asked: list[dict[str, str]] = []
        self.issued: list[str] = []
        self.answers: list[Answer] = []
        self._key = _private_key(key_pem)
        super().__init__(type("Handler", (_Handler,), {"tokens": self}), identity)
        self.url, self.keys_url = (f"{self.url}/{of}" for of in ("token", "keys"))

    @property
    def key_pem(self) -> str:
        """The key that signs the tokens."""
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self._key.private_bytes(serialization.Encoding.PEM, *form).decode()

    def keys(self) -> bytes:
        """The JWKS with which a broker checks the tokens; at `keys_url`.

        Not by a file: Kafka does not find one in a folder with a blank in its name.
        """
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": _number(numbers.n), "e": _number(numbers.e)}
        return json.dumps({"keys": [key]}).encode()

    def token(self, subject: str, life_seconds: float | None = None) -> str:
        """A signed one."""
        now = time.time()
        ends = now + (self.life_seconds if life_seconds is None else life_seconds)
        claims = {"sub": subject, "aud": AUDIENCE, "iat": int(now), "exp": int(ends), "scope": "read"}
        parts = [_encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "1"}, claims)]
        signature = self._key.sign(".".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256())
        return ".".join([*parts, _encoded(signature)])

    def answer(self, authorization: str, form: dict[str, str]) -> Answer:
        """What a request gets."""
        self.asked.append(form)
        if self.answers:
            return self.answers.pop(0)
        client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if self.clients.get(client) != secret:
            said = {"error": "invalid_client", "error_description": f"no client with the secret {secret}"}
            return Answer(401, json.dumps(said).encode())
        self.issued.append(self.token(client))
        granted = {"access_token": self.issued[-1], "token_type": "Bearer", "expires_in": int(self.life_seconds)}
        return Answer(200, json.dumps(granted).encode())


def _private_key(pem: str | None) -> rsa.RSAPrivateKey:
    if pem is None:
        return rsa.generate_private_key(65537, 2048)
    key = serialization.load_pem_private_key(pem.encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


class _Handler(BaseHTTPRequestHandler):
    tokens: TokenServer

    def do_POST(self) -> None:
        form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        respond(self, self.tokens.answer(self.headers["Authorization"], form))

    def do_GET(self) -> None:
        respond(self, Answer(200, self.tokens.keys()))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(number: int) -> str:
    return _encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))

"""AWS's Signature Version 4, by the text of its documentation, in headers, URLs and chunks of a body.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn
from urllib.parse import quote, unquote

from tests.rigs.cloud.front import Request

ALGORITHM, UNSIGNED = "AWS4-HMAC-SHA256", "UNSIGNED-PAYLOAD"
_AUTHORIZATION = re.compile(rf"{ALGORITHM} Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{{64}})")
_CREDENTIAL = re.compile(r"([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request")
TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_SIGNATURE = "X-Amz-Signature"
EMPTY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Claim:
    """Parts of a signature, as the request has them. `expires` is in seconds, and None for a signature in a header."""

    key_id: str
    day: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str
    time: datetime
    token: str
    expires: int | None

    @property
    def scope(self) -> str:
        return f"{self.day}/{self.region}/{self.service}/aws4_request"


class MalformedError(ValueError):
    """Error for a signature that cannot be read."""


def claim_of(request: Request) -> Claim | None:
    """Return what the request says of its signature, or None: it is not signed.

    Raises:
        MalformedError: the signature's parts are missing or malformed.
    """
    query, headers = request.parameters(), request.headers
    if _SIGNATURE in query:
        names = ("Credential", "SignedHeaders", "Signature", "Date", "Expires")
        credential, signed, signature, time, expires = (query.get(f"X-Amz-{name}", "") for name in names)
        token, lifetime = query.get("X-Amz-Security-Token", ""), int(expires or 0)
    elif "authorization" in headers:
        match = _AUTHORIZATION.fullmatch(headers["authorization"]) or _malformed("the Authorization header")
        credential, signed, signature = match.groups()
        time, token, lifetime = headers.get("x-amz-date", ""), headers.get("x-amz-security-token", ""), None
    else:
        return None
    match = _CREDENTIAL.fullmatch(credential) or _malformed("the Credential")
    key_id, day, region, service = match.groups()
    moment = datetime.strptime(time, TIME_FORMAT).replace(tzinfo=UTC)
    return Claim(key_id, day, region, service, tuple(signed.split(";")), signature, moment, token, lifetime)


def _malformed(what: str) -> NoReturn:
    raise MalformedError(f"{what} is malformed")


def signature(request: Request, claim: Claim, secret: str, payload_hash: str) -> str:
    """Return the signature that the request should have."""
    return _sign(claim, secret, ALGORITHM, canonical_digest(request, claim.signed_headers, payload_hash, _SIGNATURE))


def canonical_digest(request: Request, signed_headers: Sequence[str], payload_hash: str, left_out: str) -> str:
    """Return the digest of the canonical request, without the parameter `left_out`; Google has the same form."""
    pairs = sorted(
        (_encode(unquote(name)), _encode(unquote(value)))
        for name, _, value in (part.partition("=") for part in request.query.split("&") if part)
        if name != left_out
    )
    canonical = [
        request.method,
        quote(unquote(request.path), safe="/-_.~"),
        "&".join(f"{name}={value}" for name, value in pairs),
        *(f"{name}:{' '.join(request.headers.get(name, '').split())}" for name in signed_headers),
        "",
        ";".join(signed_headers),
        payload_hash,
    ]
    return hashlib.sha256("\n".join(canonical).encode()).hexdigest()


def chunk_signature(claim: Claim, secret: str, previous: str, chunk: bytes) -> str:
    """Return the signature of a chunk: https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html."""
    return _sign(claim, secret, f"{ALGORITHM}-PAYLOAD", previous, EMPTY, hashlib.sha256(chunk).hexdigest())


def _sign(claim: Claim, secret: str, algorithm: str, *lines: str) -> str:
    key = f"AWS4{secret}".encode()
    for part in claim.scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join((algorithm, claim.time.strftime(TIME_FORMAT), claim.scope, *lines))
    return hmac.new(key, text.encode(), "sha256").hexdigest()


def _encode(text: str) -> str:
    return quote(text, safe="-_.~")

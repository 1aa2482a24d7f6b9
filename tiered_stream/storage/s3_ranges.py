"""Ranged GETs of a bucket's objects with botocore's signatures and connections, but without botocore's clients.

A client's work for one request takes longer than to receive 1 MiB, and a ranged GET needs little of this work. If a
response is not the requested bytes, the caller sends the request again through the client, which handles redirects,
busy services and errors.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.response import StreamingBody

from tiered_stream.model import ByteRange

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest
    from botocore.credentials import Credentials
    from botocore.httpsession import URLLib3Session
    from botocore.session import Session

_SERVICE = "s3"
_SCOPE = re.compile(rf"AWS4-HMAC-SHA256 Credential=\S+/\d{{8}}/(?P<region>[^/\s]+)/{_SERVICE}/aws4_request,")
"""Start of the Authorization header of a request signed by AWS "Signature Version 4"; the group is the region."""
_PARTIAL_CONTENT = 206
_ASK_BY_CLIENT = (301, 302, 307, 308, 400, 401, 403)
"""HTTP statuses of requests that the client may sign or send differently.

S3: PermanentRedirect, AuthorizationHeaderMalformed (wrong region), RequestTimeTooSkewed and others.
"""


@dataclass
class RangedGets:
    """Ranged GETs of the objects of one bucket, for many threads at once."""

    bucket_url: str
    """URL of the bucket; a quoted key is appended to it."""
    region: str
    credentials: Credentials
    user_agent: str
    connections: URLLib3Session
    accepted: bool = field(default=True, init=False)
    """False once the service has refused a request that it accepted from the client.

    Each further request would then only be an additional request that fails.
    """
    _refused: threading.local = field(default_factory=threading.local, init=False)

    def get(
        self, key: str, byte_range: ByteRange, on_status: Callable[[int], None] = lambda status: None
    ) -> bytes | None:
        """Return exactly the bytes of `byte_range` (not empty), or None if the service sends any other response.

        Args:
            on_status: called with the HTTP status of each response.

        Raises: botocore's errors of connections and of credentials.
        """
        self._refused.key = None
        response = self.connections.send(self._signed(key, byte_range))
        length, headers = len(byte_range), response.headers
        with closing(StreamingBody(response.raw, length)) as body:
            on_status(response.status_code)
            if response.status_code in _ASK_BY_CLIENT:
                self._refused.key = key
            is_complete = (
                response.status_code == _PARTIAL_CONTENT
                and headers.get("Content-Range", "").startswith(f"bytes {byte_range.start}-")
                and headers.get("Content-Length") == str(length)
                # A chunked response can have any length, whatever its Content-Length header says.
                and "Transfer-Encoding" not in headers
            )
            # Without a size, `read` copies the body from the socket into one bytes object, without a second copy.
            return body.read() if is_complete else None

    def given_to_client(self, key: str) -> None:
        """Set `accepted` to False if this thread's last `get` was refused for the object `key`.

        The caller calls this when the client has received the same object's bytes. A refusal alone is no proof: S3 also
        answers 403 for a missing object, to a user who may not list the bucket.
        """
        if getattr(self._refused, "key", None) == key:
            self.accepted = False  # for good, even if requests of other threads succeed

    def _signed(self, key: str, byte_range: ByteRange) -> AWSPreparedRequest:
        headers = {"Range": f"bytes={byte_range.start}-{byte_range.end - 1}", "User-Agent": self.user_agent}
        request = AWSRequest("GET", self.bucket_url + _quoted(key), headers, stream_output=True)
        S3SigV4Auth(self.credentials.get_frozen_credentials(), _SERVICE, self.region).add_auth(request)
        return request.prepare()


class SentRequest(threading.local):
    """Keeper of the last request that a client has sent in the current thread.

    `note` is the handler for the client's event `before-send`.
    """

    request: AWSPreparedRequest | None = None

    def note(self, request: AWSPreparedRequest, **_: object) -> None:
        self.request = request


def ranged_gets(session: Session, sent: AWSPreparedRequest, key: str, connections: URLLib3Session) -> RangedGets | None:
    """Build ranged GETs that copy URL form, region and signature method from `sent`.

    Return None if the client signs by another method than "Signature Version 4", or does not sign.

    Args:
        sent: a GET of the object `key` that a client of `session` has sent.
        connections: connections that send the ranged GETs.
    """
    credentials, scope = session.get_credentials(), _SCOPE.match(_text(sent.headers.get("Authorization", "")))
    bucket_url = sent.url.removesuffix(_quoted(key))
    if credentials is None or scope is None or bucket_url == sent.url:
        return None
    user_agent = _text(sent.headers.get("User-Agent", ""))
    return RangedGets(bucket_url, scope["region"], credentials, user_agent, connections)


def _quoted(key: str) -> str:
    return quote(key, safe="/~")


def _text(header: str | bytes) -> str:
    return header.decode() if isinstance(header, bytes) else header

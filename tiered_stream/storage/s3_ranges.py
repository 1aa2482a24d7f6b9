"""Ranged GETs of a bucket's objects with botocore's signatures and connections, but without its clients.

Most of what a client does for a request has no bearing on a GET of some bytes, and takes longer than to receive a MiB.
Whatever is not the bytes that were asked for is left to the client, which asks again: it knows of redirects, of
services that are busy, and of errors.
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
"""How the header Authorization begins where a request is signed so (AWS: "Signature Version 4")."""
_PARTIAL_CONTENT = 206
_ASK_OTHERWISE = (301, 302, 307, 308, 400, 401, 403)
"""S3: PermanentRedirect, AuthorizationHeaderMalformed (of another region), RequestTimeTooSkewed, …: for the client."""


@dataclass
class RangedGets:
    """Of the objects of one bucket, by many threads at once."""

    bucket_url: str
    """A key is put behind it."""
    region: str
    credentials: Credentials
    user_agent: str
    connections: URLLib3Session
    accepted: bool = field(default=True, init=False)
    """Whether the service takes such requests; otherwise each would only be one more."""
    _refused: threading.local = field(default_factory=threading.local, init=False)

    def get(self, key: str, wanted: ByteRange, on_status: Callable[[int], None] = lambda status: None) -> bytes | None:
        """Exactly these bytes, at least one; None: the service answers something else.

        Raises: botocore's errors of connections, and of credentials.
        """
        self._refused.key = None
        response = self.connections.send(self._signed(key, wanted))
        length, headers = len(wanted), response.headers
        with closing(StreamingBody(response.raw, length)) as body:
            on_status(response.status_code)
            if response.status_code in _ASK_OTHERWISE:
                self._refused.key = key
            sound = (
                response.status_code == _PARTIAL_CONTENT
                and headers.get("Content-Range", "").startswith(f"bytes {wanted.start}-")
                and headers.get("Content-Length") == str(length)
                # In chunks, an answer is as long as it likes, whatever length it gives.
                and "Transfer-Encoding" not in headers
            )
            # Without an amount, the body goes from the socket into one bytes object: no copy after that.
            return body.read() if sound else None

    def given_to_client(self, key: str) -> None:
        """The client was just given bytes of an object in this thread; if `get` was refused them, stop asking by it.

        A refusal alone says nothing: S3 also answers 403 for a missing object, to a user who may not list the bucket.
        """
        if getattr(self._refused, "key", None) == key:
            self.accepted = False  # for good, whatever other threads' requests are answered

    def _signed(self, key: str, wanted: ByteRange) -> AWSPreparedRequest:
        headers = {"Range": f"bytes={wanted.start}-{wanted.end - 1}", "User-Agent": self.user_agent}
        request = AWSRequest("GET", self.bucket_url + _quoted(key), headers, stream_output=True)
        S3SigV4Auth(self.credentials.get_frozen_credentials(), _SERVICE, self.region).add_auth(request)
        return request.prepare()


class SentRequest(threading.local):
    """What a client has sent last in this thread; `note` is for its event `before-send`."""

    request: AWSPreparedRequest | None = None

    def note(self, request: AWSPreparedRequest, **_: object) -> None:
        self.request = request


def ranged_gets(session: Session, sent: AWSPreparedRequest, key: str, connections: URLLib3Session) -> RangedGets | None:
    """Build ranged GETs with URL form, region and signature as in `sent`, a GET of `key` by a client of the session.

    None: it signs in a way of its own, or not at all.
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

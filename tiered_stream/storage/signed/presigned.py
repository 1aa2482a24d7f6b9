"""Fetcher that reads segments by signed URLs (KIP-1254's preferred way): ranged GETs without a storage credential.

Only logs have signed URLs, not indexes. A signed URL is a credential: messages show only its host and path. urllib3's
own messages show the URL, so they are not chained to our errors.

Connections lead only to checked addresses, and limit the time of each response. A socket's read timeout bounds only the
time without data: a service can prolong a response without end by sending it byte by byte. So a socket checks the clock
before each read, also before reads of headers (`timed_http.py`). A host name is resolved once, and its addresses are
both checked and connected to. So no second DNS look-up can give another address.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from typing import ClassVar
from uuid import UUID

import urllib3
from urllib3 import exceptions as http
from urllib3.connection import HTTPConnection

from tiered_stream import errors
from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.process.caches import PerProcess
from tiered_stream.process.logs import muted
from tiered_stream.storage.attempts import AttemptError, Attempts, FailureKind, RequestTimeouts
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.object_store import MAX_CONNECTIONS, too_short
from tiered_stream.storage.signed.signed_hosts import SignedHosts, parse_signed_url, signed_hosts
from tiered_stream.timed_http import TimedTlsSocket, pool_classes, system_tls, timed

_MAX_DIGITS = 19  # of a Content-Length
_SECONDS = re.compile("[0-9]{1,4}")  # of a Retry-After
_REFUSED = (400, 401, 403)
"""HTTP statuses of responses to a signed URL that the service does not accept, or no longer accepts.

S3 responds with 400 to temporary credentials that have expired.
"""
_MAX_ADDRESSES = 4
"""Maximum number of addresses tried for one host name; each may take `kafka.fetch.remote.connect.timeout.ms`."""
_KINDS = {
    http.ConnectTimeoutError: FailureKind.CONNECT_TIMEOUT,
    http.ReadTimeoutError: FailureKind.TIMEOUT,
    http.ProtocolError: FailureKind.BROKEN,
}


class AttemptTime(threading.local):
    """Clock of the time that is left for each thread's current attempt of a GET."""

    _end = inf

    def begin(self, seconds: float) -> None:
        """Start the clock for a new attempt of this thread, which has `seconds` seconds."""
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left for this thread's attempt."""
        return self._end - time.monotonic()


def open_connections(hosts: SignedHosts, timeouts: RequestTimeouts, attempt_time: AttemptTime) -> urllib3.PoolManager:
    """Open a pool of connections to addresses that `hosts` allows; urllib3 closes it when no reference to it is left.

    `attempt_time` is the clock that ends a response when the time of its attempt is over. Requests raise urllib3's
    errors, and SignedLocationError if an address is refused.
    """
    context = system_tls()
    time_left = {"time_left": staticmethod(attempt_time.left)}
    context.sslsocket_class = type("AttemptTlsSocket", (TimedTlsSocket,), time_left)
    pools = urllib3.PoolManager(
        maxsize=MAX_CONNECTIONS, retries=False, ssl_context=context,
        timeout=urllib3.Timeout(connect=timeouts.connect_ms / 1000, read=timeouts.read_ms / 1000),
    )  # fmt: skip
    pools.pool_classes_by_scheme = pool_classes(_Connection, hosts=hosts, attempt_time=attempt_time)
    return pools


class _Connection(HTTPConnection):
    """Connection that checks all addresses of its host before it connects to one of them, and keeps `attempt_time`."""

    hosts: ClassVar[SignedHosts]
    attempt_time: ClassVar[AttemptTime]

    def _new_conn(self) -> socket.socket:
        name, failure = self.host, None
        try:
            for address in self._addresses():
                self.host = address
                try:
                    return timed(super()._new_conn(), self.attempt_time.left)
                except http.HTTPError as error:
                    failure = error
        finally:
            self.host = name  # TLS and the Host header need the name
        raise failure or http.NameResolutionError(name, self, socket.gaierror("no address"))

    def _addresses(self) -> list[str]:
        """Look up at most `_MAX_ADDRESSES` addresses of the connection's host, check all of them, and return them.

        Raises:
            SignedLocationError: an address is refused.
        """
        host = self.host.strip("[]")
        try:
            infos = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)[:_MAX_ADDRESSES]
        except (OSError, UnicodeError) as error:  # UnicodeError: a label of the name is too long
            raise http.NameResolutionError(host, self, socket.gaierror(str(error))) from error
        addresses = [str(address[0]) for *_, address in infos]
        for address in addresses:
            self.hosts.check_address(host, address)
        return addresses


class SignedRequests:
    """Sender of ranged GETs for signed URLs; a URL must lead to one of `hosts`."""

    def __init__(self, hosts: SignedHosts, timeouts: RequestTimeouts) -> None:
        self._hosts = hosts
        self._time = AttemptTime()
        self._connections = open_connections(hosts, timeouts, self._time)
        self._attempts = Attempts(timeouts, lambda name, failure: f"{name} cannot be reached: {failure.code}")

    def slow_down_responses(self) -> int:
        """Return the number of responses so far that asked for fewer requests."""
        return self._attempts.slow_down_responses

    def get(self, url: str, byte_range: ByteRange) -> bytes:
        """Return exactly the bytes `byte_range` of the object that `url` names.

        Raises:
            AttemptError: the service refuses the URL (`_REFUSED`).
            SignedLocationError: the URL is malformed, or leads to a host or an address that is not allowed.
            StorageError: the object is missing, the service cannot be reached, or it does not support ranges.
            CorruptDataError: the object ends before the range does.
        """
        place = parse_signed_url(url)
        self._hosts.check(place)
        name = str(place)
        with muted("urllib3"):  # urllib3 logs URLs
            return self._attempts.send(name, lambda seconds: self._get_once(url, name, byte_range, seconds))

    def _get_once(self, url: str, name: str, byte_range: ByteRange, seconds: float) -> bytes:
        """Send one GET, and return the bytes. `name` is the URL without its credential."""
        self._time.begin(seconds)
        try:
            response = self._connections.request(
                "GET", url, headers={"Range": f"bytes={byte_range.start}-{byte_range.end - 1}"}, preload_content=False,
                decode_content=False, redirect=False,
            )  # fmt: skip
            try:
                _check(name, byte_range, response)
                data = response.read()  # `_check` has compared the length
            except BaseException:
                response.close()
                raise
            response.release_conn()
        except http.HTTPError as error:
            kind = next((kind for form, kind in _KINDS.items() if isinstance(error, form)), FailureKind.UNREACHABLE)
            raise AttemptError(kind, code=type(error).__name__) from None
        return data


_requests: PerProcess[SignedRequests] = PerProcess()


def signed_requests(options: StorageOptions) -> SignedRequests:
    """Return the process's shared sender of GETs for signed URLs, to the hosts that the options allow.

    Raises:
        ConfigurationError: `signed_hosts` raises it.
    """
    hosts, timeouts = signed_hosts(options), RequestTimeouts.of(options)
    return _requests.get({"hosts": hosts, "timeouts": timeouts}, lambda: SignedRequests(hosts, timeouts))


class PresignedFetcher(RemoteStorageFetcher):
    """Fetcher that reads the logs of segments by signed URLs.

    Indexes have no signed URLs, so the fetcher `unsigned` reads them.

    Args:
        urls: signed URLs of logs, by segment id.
        renew: returns a newly signed URL of a segment, or None if the segment has no URL; raises BrokerError. It is
            called when a URL is refused, because the URL may have expired.
        requests: sender of the GETs.
        unsigned: fetcher for segments that have no URL, and for indexes. None: they cannot be read.
    """

    def __init__(
        self,
        urls: Mapping[UUID, str],
        renew: Callable[[RemoteLogSegment], str | None],
        requests: SignedRequests,
        unsigned: RemoteStorageFetcher | None = None,
    ) -> None:
        self._urls = dict(urls)
        self._renew = renew
        self._lock = threading.Lock()
        self._requests = requests
        self._unsigned = unsigned

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        url = self._urls.get(segment.segment_id)
        if url is None:
            return self._fetcher_without_url(segment).fetch_log_segment(segment, start, end)
        byte_range = ByteRange(start, segment.size if end == -1 else end)
        if not byte_range:
            return b""
        try:
            return self._requests.get(url, byte_range)
        except AttemptError:
            url = self._renewed(segment, url)
        try:
            return self._requests.get(url, byte_range)
        except AttemptError as refused:
            raise errors.StorageAccessError(
                f"{_without_credential(url)} is refused, though its location was just signed: status {refused}"
            ) from None

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return self._fetcher_without_url(segment).fetch_indexes(segment, types)

    def request_ranges(
        self, segment: RemoteLogSegment, byte_range: ByteRange, request_bytes: int
    ) -> Sequence[ByteRange]:
        if self._unsigned is None or segment.segment_id in self._urls:  # an object with a signed URL has no chunks
            return super().request_ranges(segment, byte_range, request_bytes)
        return self._unsigned.request_ranges(segment, byte_range, request_bytes)

    def slow_down_responses(self) -> int:
        return self._requests.slow_down_responses() + (self._unsigned.slow_down_responses() if self._unsigned else 0)

    def describe(self, segment: RemoteLogSegment) -> str:
        url = self._urls.get(segment.segment_id)
        return _without_credential(url) if url is not None else self._fetcher_without_url(segment).describe(segment)

    def _fetcher_without_url(self, segment: RemoteLogSegment) -> RemoteStorageFetcher:
        if self._unsigned is None:
            raise errors.StorageAccessError(
                f"{segment} has no signed location, and no remote.storage.uri says how to read it"
            )
        return self._unsigned

    def _renewed(self, segment: RemoteLogSegment, refused: str) -> str:
        """Return a new URL of the segment in place of the URL `refused`; threads share one call of `renew`."""
        with self._lock:
            if self._urls[segment.segment_id] == refused:
                try:
                    url = self._renew(segment)
                except errors.BrokerError as error:
                    reason = f"{_without_credential(refused)} has expired and was not signed again: {error}"
                    raise errors.StorageAccessError(reason) from error
                if url is None:
                    raise errors.StorageObjectNotFoundError(
                        f"{_without_credential(refused)}: the segment has no signed location any more"
                    )
                self._urls[segment.segment_id] = url
            return self._urls[segment.segment_id]


def _check(name: str, byte_range: ByteRange, response: urllib3.BaseHTTPResponse) -> None:
    status, headers = response.status, response.headers
    after = headers.get("Retry-After", "")
    failure = AttemptError(FailureKind.STATUS, status, retry_after=int(after) if _SECONDS.fullmatch(after) else 0)
    if failure.may_pass or status in _REFUSED:
        raise failure
    if status == 404:
        raise errors.StorageObjectNotFoundError(f"{name} does not exist")
    if status == 416:
        raise too_short(name, byte_range, byte_range.start)
    if status != 206 or not headers.get("Content-Range", "").startswith(f"bytes {byte_range.start}-"):
        raise errors.StorageError(
            f"{name}: status {status} to a request for {byte_range}: the service does not support ranges"
        )
    length = headers.get("Content-Length", "")
    # A response in chunks may be longer than its Content-Length.
    if "Transfer-Encoding" in headers or not length.isdecimal() or len(length) > _MAX_DIGITS:
        raise errors.StorageError(f"{name}: the service did not give the length of its response")
    if int(length) != len(byte_range):
        raise too_short(name, byte_range, byte_range.start + int(length))


def _without_credential(url: str) -> str:
    """Return host and path of the URL, because its query holds the credential."""
    try:
        return str(parse_signed_url(url))
    except errors.SignedLocationError:
        return "a signed location that is no URL"

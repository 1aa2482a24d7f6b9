"""Segments by signed URLs (KIP-1254's preferred way): ranged GETs, no storage credential, nothing but the log itself.

A signed URL is a credential: no message shows more of it than host and path, and urllib3's own messages, which do, are
not chained.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from urllib.parse import urlsplit
from uuid import UUID

import urllib3
from urllib3 import exceptions as http

from tiered_stream.errors import (
    BrokerError,
    StorageAccessError,
    StorageConnectTimeoutError,
    StorageError,
    StorageObjectNotFoundError,
    StorageReadTimeoutError,
    StorageUnavailableError,
)
from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.process import PerProcess
from tiered_stream.storage.fetcher import IndexType, RemoteStorageFetcher
from tiered_stream.storage.object_store import ATTEMPTS, MAX_CONNECTIONS, too_short

_MAX_DIGITS = 19  # of a length
_BUSY = (429, 500, 502, 503, 504)
_REFUSED = (400, 401, 403)  # 400 is what S3 says of temporary credentials that have expired
_RETRIES = urllib3.Retry(
    total=ATTEMPTS - 1, connect=0, read=0, other=0, redirect=False, status_forcelist=_BUSY, raise_on_status=False,
    backoff_factor=0.1, backoff_jitter=0.2, respect_retry_after_header=False,
)  # fmt: skip


class _RefusedError(Exception):
    """The service does not take the URL (any more)."""


@dataclass(frozen=True, slots=True)
class SignedFetchTimeouts:
    """KIP-1254's, in milliseconds."""

    connect_ms: int
    read_ms: int


class PresignedFetcher(RemoteStorageFetcher):
    """Reads the logs of the segments in `urls`; indexes it has none.

    Args:
        renew: gives a segment's URL signed anew, None where there is none; raises BrokerError. It is asked when a URL
            is refused: it may have expired.
        others: reads the segments that have no URL.
    """

    def __init__(
        self,
        urls: Mapping[UUID, str],
        renew: Callable[[RemoteLogSegment], str | None],
        timeouts: SignedFetchTimeouts,
        others: RemoteStorageFetcher | None = None,
    ) -> None:
        self._urls = dict(urls)
        self._renew = renew
        self._lock = Lock()
        self._pool = _pools.get(timeouts, lambda: _open_pool(timeouts))
        self._others = others

    def fetch_log_segment(self, segment: RemoteLogSegment, start: int, end: int = -1) -> bytes:
        url = self._urls.get(segment.segment_id)
        if url is None:
            return self._fetcher_without_url(segment).fetch_log_segment(segment, start, end)
        wanted = ByteRange(start, segment.size if end == -1 else end)
        if not wanted:
            return b""
        try:
            return self._get(url, wanted)
        except _RefusedError:
            url = self._renewed(segment, url)
        try:
            return self._get(url, wanted)
        except _RefusedError as error:
            raise StorageAccessError(
                f"{_shown(url)} is refused, though its location was just signed: {error}"
            ) from None

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return self._fetcher_without_url(segment).fetch_indexes(segment, types)

    def describe(self, segment: RemoteLogSegment) -> str:
        url = self._urls.get(segment.segment_id)
        return _shown(url) if url is not None else self._fetcher_without_url(segment).describe(segment)

    def _fetcher_without_url(self, segment: RemoteLogSegment) -> RemoteStorageFetcher:
        if self._others is None:
            raise StorageAccessError(
                f"segment {segment.segment_id} of {segment.topic_partition} has no signed location, and no "
                "remote.storage.uri says how to read it"
            )
        return self._others

    def _renewed(self, segment: RemoteLogSegment, refused: str) -> str:
        """Another URL than the refused one; threads that want it at once share one request."""
        with self._lock:
            if self._urls[segment.segment_id] == refused:
                try:
                    url = self._renew(segment)
                except BrokerError as error:
                    reason = f"{_shown(refused)} has expired and was not signed anew: {error}"
                    raise StorageAccessError(reason) from error
                if url is None:
                    raise StorageObjectNotFoundError(f"{_shown(refused)}: the segment has no signed location any more")
                self._urls[segment.segment_id] = url
            return self._urls[segment.segment_id]

    def _get(self, url: str, wanted: ByteRange) -> bytes:
        for _ in range(ATTEMPTS - 1):
            with suppress(http.ProtocolError):  # the connection broke, perhaps in the body, which Retry does not cover
                return self._get_once(url, wanted)
        try:
            return self._get_once(url, wanted)
        except http.ProtocolError as error:
            raise StorageUnavailableError(f"{_shown(url)}: the connection broke {ATTEMPTS} times") from error

    def _get_once(self, url: str, wanted: ByteRange) -> bytes:
        """Raises _RefusedError, ProtocolError and StorageError."""
        try:
            response = self._pool.request(
                "GET", url, headers={"Range": f"bytes={wanted.start}-{wanted.end - 1}"}, preload_content=False,
                decode_content=False, redirect=False,
            )  # fmt: skip
            try:
                self._check(url, wanted, response)
                data = response.read()  # of the length that was checked
            except BaseException:
                response.close()
                raise
            response.release_conn()
        except http.HTTPError as error:
            raise _mapped(error, url) from None
        if len(data) != len(wanted):
            raise too_short(_shown(url), wanted, wanted.start + len(data))
        return data

    def _check(self, url: str, wanted: ByteRange, response: urllib3.BaseHTTPResponse) -> None:
        status, name = response.status, _shown(url)
        if status in _REFUSED:
            raise _RefusedError(f"status {status}")
        if status == 404:
            raise StorageObjectNotFoundError(f"{name} does not exist")
        if status == 416:
            raise too_short(name, wanted, wanted.start)
        if status in _BUSY:
            raise StorageUnavailableError(f"{name}: status {status} to each of {ATTEMPTS} requests")
        if status != 206 or not response.headers.get("Content-Range", "").startswith(f"bytes {wanted.start}-"):
            raise StorageError(f"{name}: status {status} to a request for {wanted}: the service does not honour ranges")
        length = response.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > _MAX_DIGITS:
            raise StorageError(f"{name}: the service did not give the length of its answer")
        if int(length) != len(wanted):
            raise too_short(name, wanted, wanted.start + int(length))


_pools: PerProcess[urllib3.PoolManager] = PerProcess()


def _open_pool(timeouts: SignedFetchTimeouts) -> urllib3.PoolManager:
    """Connections, which urllib3 closes when nobody has them any more."""
    timeout = urllib3.Timeout(connect=timeouts.connect_ms / 1000, read=timeouts.read_ms / 1000)
    return urllib3.PoolManager(maxsize=MAX_CONNECTIONS, retries=_RETRIES, timeout=timeout)


def _mapped(error: http.HTTPError, url: str) -> Exception:
    reason = error.reason if isinstance(error, http.MaxRetryError) else error
    name = _shown(url)
    if isinstance(reason, http.ConnectTimeoutError):
        return StorageConnectTimeoutError(f"no connection for {name} within kafka.fetch.remote.connect.timeout.ms")
    if isinstance(reason, http.ReadTimeoutError):
        return StorageReadTimeoutError(f"{name}: silence for kafka.fetch.remote.read.timeout.ms")
    if isinstance(reason, http.ProtocolError):
        return http.ProtocolError(type(reason).__name__)
    if isinstance(reason, (http.LocationValueError, http.LocationParseError)):
        return StorageError(f"{name}: the signed location is no URL")
    return StorageUnavailableError(f"{name} cannot be reached: {type(reason).__name__}")


def _shown(url: str) -> str:
    """Host and path: what is in the query is the credential."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

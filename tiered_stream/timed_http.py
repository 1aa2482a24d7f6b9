"""HTTP connections with a time limit for a whole response, headers included.

A socket's timeout only limits each wait for bytes, so a response that comes byte by byte could take forever.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from math import inf
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context
from urllib3.util.ssltransport import SSLTransport

from tiered_stream.process.logs import muted

RETRIABLE_STATUSES = {408, 425, 429, *range(500, 600)} - {501, 505}
"""HTTP statuses after which the same request may succeed."""
_CHUNK_BYTES = 1 << 16
_MAX_SOCKET_SECONDS = 1e6
"""Maximum timeout in seconds that is set on a socket, because a socket does not accept an infinite one."""


def timed_pools(
    connect_seconds: float,
    response_seconds: float,
    tls: ssl.SSLContext | None = None,
    headers: dict[str, str] | None = None,
    proxy: str | None = None,
) -> urllib3.PoolManager:
    """Return a pool of HTTP connections on which each response must end within `response_seconds`; nothing is retried.

    The time starts when the request has been sent. A response that takes longer raises urllib3's ReadTimeoutError. A
    proxy's response to CONNECT has the same time limit, which starts when the proxy is connected.

    Args:
        connect_seconds: time limit for making a connection.
        tls: the context for https, which this function changes: its sockets become `TimedTlsSocket`s. None: https is
            not supported. Callers that need no https give None, because a context with the certificate authorities
            takes 0.1 s of a core.
        headers: headers of each request.
        proxy: URL of a proxy for all connections, or None.
    """
    timeout = urllib3.Timeout(connect=connect_seconds, read=response_seconds)
    arguments: dict[str, Any] = {"headers": headers, "retries": False, "ssl_context": tls, "timeout": timeout}
    pools = _by_proxy(proxy, tls, arguments) if proxy else urllib3.PoolManager(**arguments)
    pools.pool_classes_by_scheme = pool_classes(_Connection, response_seconds=response_seconds)
    if tls is None:
        del pools.pool_classes_by_scheme["https"]
    else:
        tls.sslsocket_class = TimedTlsSocket
    return pools


def environment_proxy(url: str) -> str | None:
    """Return the URL of the proxy that the environment names for `url` (`HTTPS_PROXY`, `NO_PROXY`), or None."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _by_proxy(proxy: str, tls: ssl.SSLContext | None, arguments: dict[str, Any]) -> urllib3.PoolManager:
    """Return a pool of connections through the proxy with this URL, in which a user name and password may stand.

    `arguments` are urllib3's arguments for the pool.
    """
    login = unquote(urlsplit(proxy).netloc.rpartition("@")[0])
    headers = urllib3.make_headers(proxy_basic_auth=login) if login else None
    return urllib3.ProxyManager(proxy, proxy_headers=headers, proxy_ssl_context=tls, **arguments)


def pool_classes(connection: type[HTTPConnection], **attributes: object) -> dict[str, type]:
    """Return urllib3 connection pool classes by URL scheme (`http`, `https`), for `PoolManager.pool_classes_by_scheme`.

    The pools make connections of a subclass of `connection` that has the class attributes `attributes`. Class
    attributes are needed, because urllib3 passes only its own arguments to connections. The subclass has the name of
    urllib3's class, because error messages show it.
    """
    plain = type(HTTPConnection.__name__, (connection,), attributes)
    secure = type(HTTPSConnection.__name__, (connection, HTTPSConnection), attributes)
    return {
        "http": type("TimedPool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("TimedTlsPool", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }


def fetch(pools: urllib3.PoolManager, method: str, url: str, max_bytes: int, **arguments: Any) -> tuple[int, bytes]:
    """Send one request; return the response's status and body, which may have at most `max_bytes` bytes.

    A redirect is not followed, because it could send a secret to another server. urllib3's log is muted.

    Raises:
        ValueError: the body is longer than `max_bytes`.
        HTTPError, OSError: there is no response, or it breaks off (HTTPError is urllib3's class).
    """
    content = bytearray()
    with muted("urllib3"):
        response = pools.request(method, url, redirect=False, preload_content=False, **arguments)
        try:
            while chunk := response.read1(_CHUNK_BYTES):
                content += chunk
                if len(content) > max_bytes:
                    raise ValueError("its response is longer than allowed")
        finally:
            response.close()
    return response.status, bytes(content)


def json_object(content: bytes | str) -> dict[str, Any] | None:
    """Parse `content`, such as a response's body, as a JSON object; return None if it is not a JSON object."""
    try:
        document = orjson.loads(content)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def untrusted_certificate(error: Exception) -> ssl.SSLCertVerificationError | None:
    """Return the certificate error that caused urllib3's `error`; None: something else caused it."""
    causes = (error, *error.args, error.__cause__, error.__context__)
    return next((cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError)), None)


def system_tls() -> ssl.SSLContext:
    """Return a TLS context that trusts the certificate authorities of the system."""
    tls = create_urllib3_context()
    tls.load_default_certs()
    return tls


class TimedSocket(socket.socket):
    """Socket that waits for bytes for at most `time_left()` seconds, and at most for its own timeout.

    `recv` and `recv_into` raise TimeoutError if no byte has come by then, or if `time_left()` is 0 or less at the call.
    """

    time_left: Callable[[], float] = staticmethod(lambda: inf)
    """Function that returns the remaining time in seconds. By default the time is not limited."""

    def recv(self, *args: Any) -> bytes:
        self._limit_wait()
        return super().recv(*args)

    def recv_into(self, *args: Any) -> int:
        self._limit_wait()
        return super().recv_into(*args)

    def _limit_wait(self) -> None:
        left = self.time_left()
        if left <= 0:
            raise TimeoutError("the whole response took too long")
        timeout = self.gettimeout()
        if timeout is None or left < timeout:
            self.settimeout(min(left, _MAX_SOCKET_SECONDS))


class TimedTlsSocket(TimedSocket, ssl.SSLSocket):
    """TLS socket whose waits for bytes are limited by `time_left`. Python itself limits the time of the handshake."""


def timed(sock: socket.socket, time_left: Callable[[], float]) -> TimedSocket:
    """Return a `TimedSocket` with the connection and the timeout of `sock`; `sock` is detached and no longer usable."""
    timeout = sock.gettimeout()
    timed_socket = TimedSocket(sock.family, sock.type, sock.proto, sock.detach())
    timed_socket.settimeout(timeout)
    timed_socket.time_left = time_left
    return timed_socket


class _Connection(HTTPConnection):
    response_seconds: ClassVar[float]

    def _new_conn(self) -> socket.socket:
        return timed(super()._new_conn(), lambda: inf)

    def _tunnel(self) -> None:
        self._limit_response()
        super()._tunnel()  # http.client has it

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # urllib3 itself does this
        self._limit_response()
        return super().getresponse()

    def _limit_response(self) -> None:
        """Let the next response end within `response_seconds` from now, also one by TLS through a proxy's TLS."""
        sock = self.sock.socket if isinstance(self.sock, SSLTransport) else self.sock
        assert isinstance(sock, TimedSocket)
        deadline = time.monotonic() + self.response_seconds
        sock.time_left = lambda: deadline - time.monotonic()

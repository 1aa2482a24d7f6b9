"""HTTP connections on which a whole answer, headers included, must come in time.

A socket's timeout bounds each wait for bytes. Without more, an answer that comes a byte at a time lasts for ever.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from math import inf
from typing import Any, ClassVar

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context

_AT_A_TIME = 1 << 16
_LONGEST_WAIT = 1e6
"""Seconds that a socket takes as a timeout."""


def timed_pools(
    connect_seconds: float,
    answer_seconds: float,
    tls: ssl.SSLContext | None = None,
    headers: dict[str, str] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> urllib3.PoolManager:
    """Connections that do not retry by themselves; `now` is in seconds.

    An answer that takes longer raises urllib3's ReadTimeoutError. `tls` is changed: what it makes are timed sockets.
    Without it no https is spoken: loading authorities takes a tenth of a second of a core.
    """
    timeout = urllib3.Timeout(connect=connect_seconds, read=answer_seconds)
    pools = urllib3.PoolManager(headers=headers, retries=False, ssl_context=tls, timeout=timeout)
    # urllib3 makes connections of a class, and gives them nothing of ours.
    ours = {"answer_seconds": answer_seconds, "now": staticmethod(now)}
    plain = type("TimedConnection", (_Connection,), ours)
    pools.pool_classes_by_scheme = {"http": type("TimedPool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": plain})}
    if tls is not None:
        tls.sslsocket_class = TimedTlsSocket
        secure = type("TimedTlsConnection", (_Connection, HTTPSConnection), ours)
        pool = type("TimedTlsPool", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": secure})
        pools.pool_classes_by_scheme["https"] = pool
    return pools


def read_answer(answer: urllib3.BaseHTTPResponse, most_bytes: int) -> bytes:
    """Read an answer that was not read yet. Raises ValueError: it has more bytes; HTTPError: it breaks off."""
    content = bytearray()
    while piece := answer.read1(_AT_A_TIME):
        content += piece
        if len(content) > most_bytes:
            raise ValueError("its answer does not come to an end")
    return bytes(content)


def untrusted_certificate(error: Exception) -> ssl.SSLCertVerificationError | None:
    """Find in urllib3's error that TLS failed by the certificate; None: it is another error."""
    causes = (error, *error.args, error.__cause__, error.__context__)
    return next((each for each in causes if isinstance(each, ssl.SSLCertVerificationError)), None)


def system_tls() -> ssl.SSLContext:
    """TLS by the authorities that the system trusts."""
    tls = create_urllib3_context()
    tls.load_default_certs()
    return tls


class TimedSocket(socket.socket):
    """A socket that receives for so long as there is time left, whatever its timeout."""

    time_left: Callable[[], float] = staticmethod(lambda: inf)
    """In seconds."""

    def recv_into(self, *args: Any) -> int:
        left = self.time_left()
        if left <= 0:
            raise TimeoutError("the answer took too long in all")
        timeout = self.gettimeout()
        if timeout is None or left < timeout:
            self.settimeout(min(left, _LONGEST_WAIT))
        return super().recv_into(*args)


class TimedTlsSocket(TimedSocket, ssl.SSLSocket):
    """The same over TLS. Python itself bounds a handshake."""


def timed(sock: socket.socket, time_left: Callable[[], float] | None = None) -> TimedSocket:
    """The socket as one that is timed; it takes its place."""
    timeout = sock.gettimeout()
    made = TimedSocket(sock.family, sock.type, sock.proto, sock.detach())
    made.settimeout(timeout)
    if time_left is not None:
        made.time_left = time_left
    return made


class _Connection(HTTPConnection):
    answer_seconds: ClassVar[float]
    now: Callable[[], float]

    def _new_conn(self) -> socket.socket:
        return timed(super()._new_conn())

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3's own
        assert isinstance(self.sock, TimedSocket)
        ends = self.now() + self.answer_seconds
        self.sock.time_left = lambda: ends - self.now()
        return super().getresponse()

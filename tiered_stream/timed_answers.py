"""HTTP connections on which a whole answer, headers included, must come in time.

A socket's timeout bounds each wait for bytes. Without more, an answer that comes a byte at a time lasts for ever.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, ClassVar

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context


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
        tls.sslsocket_class = _TimedTlsSocket
        secure = type("TimedTlsConnection", (_Connection, HTTPSConnection), ours)
        pool = type("TimedTlsPool", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": secure})
        pools.pool_classes_by_scheme["https"] = pool
    return pools


def system_tls() -> ssl.SSLContext:
    """TLS by the authorities that the system trusts."""
    tls = create_urllib3_context()
    tls.load_default_certs()
    return tls


class _TimedSocket(socket.socket):
    """A socket that receives until a point in time, whatever its timeout."""

    ends = float("inf")
    now: Callable[[], float] = staticmethod(time.monotonic)

    def recv_into(self, *args: Any) -> int:
        left = self.ends - self.now()
        if left <= 0:
            raise TimeoutError("the answer took too long in all")
        timeout = self.gettimeout()
        if timeout is None or left < timeout:
            self.settimeout(left)
        return super().recv_into(*args)


class _TimedTlsSocket(_TimedSocket, ssl.SSLSocket):
    """The same over TLS. Python itself bounds a handshake."""


class _Connection(HTTPConnection):
    answer_seconds: ClassVar[float]
    now: Callable[[], float]

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        timeout = sock.gettimeout()
        timed = _TimedSocket(sock.family, sock.type, sock.proto, sock.detach())
        timed.settimeout(timeout)
        return timed

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3's own
        assert isinstance(self.sock, _TimedSocket)
        self.sock.now, self.sock.ends = self.now, self.now() + self.answer_seconds
        return super().getresponse()

"""Time limit of one GET with all its attempts, and sockets that keep to the limit.

A socket's read timeout bounds only the time without data: a service can prolong a response without end by sending it
byte by byte. So a socket checks the clock before each read, also before reads of headers (`timed_http.py`).
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Self

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.object_store import ATTEMPTS
from tiered_stream.timed_http import TimedTlsSocket, timed

_ATTEMPTS_BEFORE_FALLBACK = 2
"""Maximum number of attempts of a GET that times out, if brokers can serve the records instead of storage.

One timeout may come from a lost packet or a slow server, so the GET is sent again. After a second timeout, the
segment's records are read from a broker.
"""


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """KIP-1254's timeouts for connecting and reading, and the limits of a whole GET.

    Times are in milliseconds. `total_ms` limits all attempts of a GET together. `attempts` is the maximum number of
    attempts of a GET that times out.
    """

    connect_ms: int
    read_ms: int
    total_ms: int
    attempts: int

    @classmethod
    def of(cls, options: StorageOptions) -> Self:
        attempts = _ATTEMPTS_BEFORE_FALLBACK if options.has_fallback else ATTEMPTS
        return cls(options.connect_timeout_ms, options.read_timeout_ms, options.request_timeout_ms, attempts)


class RequestTime(threading.local):
    """Clock of the time that is left for each thread's current GET, and counter of the GET's timeouts.

    `now` returns seconds.
    """

    def __init__(self, timeouts: RequestTimeouts, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = timeouts.total_ms / 1000
        self._attempts = timeouts.attempts
        self._now = now
        self._end = inf
        self._timeouts_left = timeouts.attempts - 1

    def begin(self) -> None:
        """Start the clock for a new GET of this thread, and reset the counter of timeouts."""
        self._end = self._now() + self._seconds
        self._timeouts_left = self._attempts - 1

    @property
    def is_over(self) -> bool:
        return self.left() <= 0

    def repeats_after_timeout(self) -> bool:
        """Count a timeout of this thread's GET, and return whether attempts and time are left to send the GET again."""
        self._timeouts_left -= 1
        return self._timeouts_left >= 0 and not self.is_over

    def left(self) -> float:
        """Return the seconds that are left for this thread's GET."""
        return self._end - self._now()

    def describe_timeout(self) -> str:
        """Return the end of an error message that begins with an object's name: which timeout ended the GET."""
        if self.is_over:
            return f"did not come within remote.fetch.request.timeout.ms, {self._seconds:g} s in all"
        return f"was not heard of for kafka.fetch.remote.read.timeout.ms, {self._attempts} times"


class TimedConnection(HTTPConnection):
    """HTTP connection whose sockets time out when the time of the thread's GET is over (`request_time`)."""

    request_time: ClassVar[RequestTime]
    tls_sockets: ClassVar[type[ssl.SSLSocket]]

    def _new_conn(self) -> socket.socket:
        context = getattr(self, "ssl_context", None)
        if context is not None:
            context.sslsocket_class = self.tls_sockets
        return timed(super()._new_conn(), self.request_time.left)


class TimedTlsConnection(TimedConnection, HTTPSConnection):
    """HTTPS connection whose sockets time out when the time of the thread's GET is over (`request_time`)."""


def timed_pools(
    request_time: RequestTime, plain: type[HTTPConnection], tls: type[HTTPSConnection], **attributes: object
) -> dict[str, type]:
    """Return by URL scheme a class of connection pools whose connections time out when `request_time` is over.

    urllib3 passes none of our values to its connections. So new classes are made for each `request_time`.

    Args:
        plain: class of connections without TLS; a subclass of it with `attributes` as class attributes is used.
        tls: class of connections with TLS; a subclass of it with `attributes` as class attributes is used.
    """
    tls_sockets = type("RequestTlsSocket", (TimedTlsSocket,), {"time_left": staticmethod(request_time.left)})
    attributes = {"request_time": request_time, "tls_sockets": tls_sockets, **attributes}
    plain_connections, tls_connections = (
        type(f"Timed{connection.__name__}", (connection,), attributes) for connection in (plain, tls)
    )
    return {
        "http": type("TimedPool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": plain_connections}),
        "https": type("TimedTlsPool", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": tls_connections}),
    }

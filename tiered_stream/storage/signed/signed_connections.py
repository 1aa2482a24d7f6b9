"""HTTP connections for signed locations: they lead only to checked addresses, and limit the time of each response.

A socket's read timeout bounds only the time without data: a service can prolong a response without end by sending it
byte by byte. So a socket checks the clock before each read, also before reads of headers (`timed_http.py`).

A host name is resolved once, and its addresses are both checked and connected to. So no second DNS look-up can give
another address.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from math import inf
from typing import ClassVar

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError, NameResolutionError

from tiered_stream.storage.attempts import RequestTimeouts
from tiered_stream.storage.object_store import MAX_CONNECTIONS
from tiered_stream.storage.signed.signed_hosts import SignedHosts
from tiered_stream.timed_http import TimedTlsSocket, pool_classes, system_tls, timed

_MAX_ADDRESSES = 4
"""Maximum number of addresses tried for one host name; each may take `kafka.fetch.remote.connect.timeout.ms`."""


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
    """Open a pool of connections that lead only to `hosts`; urllib3 closes it when no reference to it is left.

    Requests raise urllib3's errors, and SignedLocationError if an address is refused.
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
                except HTTPError as error:
                    failure = error
        finally:
            self.host = name  # TLS and the Host header need the name
        raise failure or NameResolutionError(name, self, socket.gaierror("no address"))

    def _addresses(self) -> Iterator[str]:
        """Look up at most `_MAX_ADDRESSES` addresses of the connection's host, check all of them, and return them.

        Raises:
            SignedLocationError: an address is refused.
        """
        host = self.host.strip("[]")
        try:
            infos = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)[:_MAX_ADDRESSES]
        except (OSError, UnicodeError) as error:  # UnicodeError: a label of the name is too long
            raise NameResolutionError(host, self, socket.gaierror(str(error))) from error
        addresses = [str(address[0]) for *_, address in infos]
        for address in addresses:
            self.hosts.check_address(host, address)
        return iter(addresses)

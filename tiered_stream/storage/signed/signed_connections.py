"""HTTP connections for signed locations: they lead only to checked addresses, and limit the time of each response.

A socket's read timeout bounds only the time without data: a service can prolong a response without end by sending it
byte by byte. So a socket checks the clock before each read, also before reads of headers (`timed_http.py`).

A host name is resolved once, and its addresses are both checked and connected to. So no second DNS look-up can give
another address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import ClassVar

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError, NameResolutionError

from tiered_stream.storage.object_store import ATTEMPTS, MAX_CONNECTIONS
from tiered_stream.storage.request_time import RequestTime, RequestTimeouts
from tiered_stream.storage.signed.signed_hosts import SignedHosts
from tiered_stream.timed_http import TimedTlsSocket, pool_classes, system_tls, timed

BUSY = (429, 500, 502, 503, 504)
_RETRIES = urllib3.Retry(
    total=ATTEMPTS - 1, connect=0, read=0, other=0, redirect=False, status_forcelist=BUSY, raise_on_status=False,
    backoff_factor=0.1, backoff_jitter=0.2, respect_retry_after_header=False,
)  # fmt: skip
_MAX_ADDRESSES = 4
"""Maximum number of addresses tried for one host name; each may take `kafka.fetch.remote.connect.timeout.ms`."""


def open_connections(hosts: SignedHosts, timeouts: RequestTimeouts, request_time: RequestTime) -> urllib3.PoolManager:
    """Open a pool of connections that lead only to `hosts`; urllib3 closes it when no reference to it is left.

    Requests raise urllib3's errors, and SignedLocationError if an address is refused.
    """
    context = system_tls()
    time_left = {"time_left": staticmethod(request_time.left)}
    context.sslsocket_class = type("RequestTlsSocket", (TimedTlsSocket,), time_left)
    pools = urllib3.PoolManager(
        maxsize=MAX_CONNECTIONS, retries=_RETRIES, ssl_context=context,
        timeout=urllib3.Timeout(connect=timeouts.connect_ms / 1000, read=timeouts.read_ms / 1000),
    )  # fmt: skip
    pools.pool_classes_by_scheme = pool_classes(_Connection, hosts=hosts, request_time=request_time)
    return pools


class _Connection(HTTPConnection):
    """Connection that checks all addresses of its host before it connects to one of them, and keeps `request_time`."""

    hosts: ClassVar[SignedHosts]
    request_time: ClassVar[RequestTime]

    def _new_conn(self) -> socket.socket:
        name, failure = self.host, None
        try:
            for address in self._addresses():
                self.host = address
                try:
                    return timed(super()._new_conn(), self.request_time.left)
                except HTTPError as error:
                    failure = error
        finally:
            self.host = name  # TLS and the Host header need the name
        raise failure or NameResolutionError(name, self, socket.gaierror("no address"))

    def _addresses(self) -> Iterator[str]:
        """Return at most `_MAX_ADDRESSES` addresses of the connection's host.

        Raises:
            SignedLocationError: one of them is not allowed.
            NameResolutionError: the host's name cannot be resolved.
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

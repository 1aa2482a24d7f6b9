"""Connections on which signed locations are fetched: to addresses that were checked, and each answer within its time.

A name is resolved once, and what came of it is both checked and connected to: there is no second look-up that could
say something else. No answer, headers included, can be made to last by sending it byte by byte.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NameResolutionError
from urllib3.util.ssl_ import create_urllib3_context

from tiered_stream.errors import StorageReadTimeoutError
from tiered_stream.storage.object_store import ATTEMPTS, MAX_CONNECTIONS
from tiered_stream.storage.signed_hosts import SignedHosts

BUSY = (429, 500, 502, 503, 504)
_RETRIES = urllib3.Retry(
    total=ATTEMPTS - 1, connect=0, read=0, other=0, redirect=False, status_forcelist=BUSY, raise_on_status=False,
    backoff_factor=0.1, backoff_jitter=0.2, respect_retry_after_header=False,
)  # fmt: skip
_MOST_ADDRESSES = 4
"""Of one name; each may take `kafka.fetch.remote.connect.timeout.ms`."""


@dataclass(frozen=True, slots=True)
class SignedFetchTimeouts:
    """KIP-1254's, and that of an answer in all; in milliseconds."""

    connect_ms: int
    read_ms: int
    answer_ms: int


def open_connections(
    hosts: SignedHosts, timeouts: SignedFetchTimeouts, now: Callable[[], float] = time.monotonic
) -> urllib3.PoolManager:
    """Connections to these hosts alone, which urllib3 closes when nobody has them any more. `now` is in seconds.

    Requests raise urllib3's errors, SignedLocationError for an address that is refused, and StorageReadTimeoutError for
    an answer that takes too long.
    """
    context = create_urllib3_context()
    context.load_default_certs()
    context.sslsocket_class = _TimedTlsSocket
    pools = urllib3.PoolManager(
        maxsize=MAX_CONNECTIONS, retries=_RETRIES, ssl_context=context,
        timeout=urllib3.Timeout(connect=timeouts.connect_ms / 1000, read=timeouts.read_ms / 1000),
    )  # fmt: skip
    # urllib3 makes connections of a class, and gives them nothing of ours.
    ours = {"rules": _Rules(hosts, timeouts.answer_ms / 1000, now)}
    plain = type("SignedConnection", (_Connection,), ours)
    tls = type("SignedTlsConnection", (_Connection, HTTPSConnection), ours)
    pools.pool_classes_by_scheme = {
        "http": type("SignedPool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("SignedTlsPool", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": tls}),
    }
    return pools


@dataclass(frozen=True, slots=True)
class _Rules:
    hosts: SignedHosts
    answer_seconds: float
    now: Callable[[], float]


class _Connection(HTTPConnection):
    """One that looks at the address before it connects, and at the clock while it is answered."""

    rules: ClassVar[_Rules]

    def _new_conn(self) -> socket.socket:
        name, failure = self.host, None
        try:
            for address in self._addresses():
                self.host = address
                try:
                    return _timed(super()._new_conn())
                except HTTPError as error:
                    failure = error
        finally:
            self.host = name  # which TLS and the header Host go by
        raise failure or NameResolutionError(name, self, socket.gaierror("no address"))

    def _addresses(self) -> Iterator[str]:
        """Those of the host's name, each of them allowed."""
        host = self.host.strip("[]")
        try:
            found = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)[:_MOST_ADDRESSES]
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that is too long
            raise NameResolutionError(host, self, socket.gaierror(str(error))) from error
        addresses = [str(address[0]) for *_, address in found]
        for address in addresses:
            self.rules.hosts.check_address(host, address)
        return iter(addresses)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3's own
        sock, host, rules = self.sock, self.host, self.rules
        begin = rules.now()
        assert isinstance(sock, _TimedSocket)

        def check_time() -> None:
            if rules.now() - begin > rules.answer_seconds:
                raise StorageReadTimeoutError(
                    f"{host}: an answer took longer than remote.signed.location.timeout.ms, "
                    f"{rules.answer_seconds:g} s in all"
                )

        sock.check_time = check_time
        return super().getresponse()


class _TimedSocket(socket.socket):
    """One that asks, before each piece that it receives, whether there is still time."""

    check_time: Callable[[], None] = staticmethod(lambda: None)

    def recv_into(self, *args: Any) -> int:
        self.check_time()
        return super().recv_into(*args)


class _TimedTlsSocket(_TimedSocket, ssl.SSLSocket):
    """The same, of TLS."""


def _timed(sock: socket.socket) -> _TimedSocket:
    timeout = sock.gettimeout()
    timed = _TimedSocket(sock.family, sock.type, sock.proto, sock.detach())
    timed.settimeout(timeout)
    return timed

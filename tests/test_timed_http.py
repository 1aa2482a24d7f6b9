"""Answers that drip, over a real socket; the clock is the test's, so that nothing waits."""

from __future__ import annotations

import itertools
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest
import urllib3

from tests.broker.certificates import CertificateAuthority
from tests.dripping import BODY, CHUNKS, HEADERS, dripping
from tests.formats.scripted_registry import ScriptedRegistry
from tests.local_http import Answer, LocalHttp, respond
from tiered_stream import timed_http
from tiered_stream.timed_http import timed_pools


def let_time_be(patch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    """Give connections this clock in seconds."""
    patch.setattr(timed_http, "time", SimpleNamespace(monotonic=now))


def secured(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a client that trusts a server, and of this server."""
    authority = CertificateAuthority()
    trusting, identity = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusting.load_verify_locations(cadata=authority.certificate)
    identity.load_cert_chain(authority.issue("server").write(folder / "server.pem"))
    return trusting, identity


class SecuredProxy(BaseHTTPRequestHandler):
    """Passes on all bytes between a client, by TLS, and the server that it names with CONNECT."""

    connection: ssl.SSLSocket

    def do_CONNECT(self) -> None:
        host, port = self.path.split(":")
        with suppress(OSError), socket.create_connection((host, int(port))) as server:
            self.send_response(200)
            self.end_headers()
            while True:
                for source in [self.connection] if self.connection.pending() else self._readable(server):
                    if not (some := source.recv(1 << 16)):
                        return
                    (self.connection if source is server else server).sendall(some)

    def _readable(self, server: socket.socket) -> list[socket.socket]:
        return select.select([self.connection, server], [], [])[0]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("answer", [HEADERS, BODY, CHUNKS], ids=["headers", "body", "chunks"])
def test_an_answer_that_drips_is_given_up_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool, answer: tuple[bytes, bytes]
) -> None:
    trusting, identity = secured(tmp_path) if tls else (None, None)
    ticks = itertools.count()
    let_time_be(monkeypatch, lambda: float(next(ticks)))  # each look at the clock is a second later
    pools = timed_pools(30, 50, trusting)
    with dripping(*answer, identity) as (url, _), pytest.raises(urllib3.exceptions.ReadTimeoutError):
        found = pools.request("GET", url, preload_content=False)
        while found.read1(1):
            pass
    assert next(ticks) >= 50


def test_each_answer_on_a_connection_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    let_time_be(monkeypatch, lambda: now[0])
    with ScriptedRegistry() as server:
        server.answers = [Answer(200, b"x" * 100_000) for _ in range(3)]
        pools = timed_pools(30, 50)
        for _ in range(3):
            now[0] += 40
            assert len(pools.request("GET", server.url + "/x").data) == 100_000
    assert len(server.asked) == 3


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_proxy_whose_answer_to_connect_drips_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    trusting, identity = secured(tmp_path)
    ticks = itertools.count()
    let_time_be(monkeypatch, lambda: float(next(ticks)))
    served = dripping(*HEADERS, identity if tls else None, seconds=0.001)
    with served as (proxy, _), pytest.raises(urllib3.exceptions.HTTPError):
        pools = timed_pools(30, 50, trusting, proxy=proxy)
        pools.request("GET", "https://registry.example/x")
    assert next(ticks) >= 50


class Large(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        respond(self, Answer(200, b"x" * 100_000))


def test_answers_by_tls_come_through_a_proxy_by_tls(tmp_path: Path) -> None:
    trusting, identity = secured(tmp_path)
    with LocalHttp(SecuredProxy, identity) as proxy, LocalHttp(Large, identity) as server:
        pools = timed_pools(30, 50, trusting, proxy=proxy.url)
        for _ in range(2):
            assert len(pools.request("GET", server.url).data) == 100_000


def test_an_answer_by_tls_that_drips_through_a_proxy_by_tls_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusting, identity = secured(tmp_path)
    ticks = itertools.count()
    let_time_be(monkeypatch, lambda: float(next(ticks)))
    with LocalHttp(SecuredProxy, identity) as proxy, dripping(*BODY, identity) as (url, _):
        found = timed_pools(30, 200, trusting, proxy=proxy.url).request("GET", url, preload_content=False)
        with pytest.raises(urllib3.exceptions.ReadTimeoutError):
            while found.read1(1):
                pass
    assert next(ticks) >= 200

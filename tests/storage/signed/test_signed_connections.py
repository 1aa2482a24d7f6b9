"""Connections for signed URLs, to real sockets: which address is connected to, and how long an answer may take."""

from __future__ import annotations

import itertools
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.broker.certificates import CertificateAuthority, server_context
from tests.storage.scripted_http import ScriptedHttp, let_time_be, part
from tiered_stream.errors import SignedLocationError
from tiered_stream.options.parsing import parse_storage_options
from tiered_stream.storage.attempts import RequestTimeouts
from tiered_stream.storage.signed.presigned import AttemptTime, open_connections
from tiered_stream.storage.signed.signed_hosts import signed_hosts

LARGE = part(bytes(1 << 20))
MANY_HEADERS = LARGE.replace(b"\r\n", b"\r\n" + b"".join(b"Header-%d: %s\r\n" % (n, b"v" * 1000) for n in range(50)), 1)
TIMEOUTS = RequestTimeouts(connect_ms=20_000, read_ms=20_000, total_ms=60_000, attempts=2)


def connections(*listed: str) -> urllib3.PoolManager:
    """For a GET that begins now."""
    hosts = signed_hosts(parse_storage_options({"remote.signed.location.hosts": ",".join(listed)}))
    attempt_time = AttemptTime()
    attempt_time.begin(TIMEOUTS.total_ms / 1000)
    return open_connections(hosts, TIMEOUTS, attempt_time)


def get(pools: urllib3.PoolManager, url: str) -> bytes:
    with closing(pools.request("GET", url, preload_content=False, decode_content=False, redirect=False)) as response:
        return response.read()


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """What every name stands for from now on; the list gets the names that are asked for."""
    really, asked = socket.getaddrinfo, []

    def lookup(host: str, port: int, *args: Any, **kwargs: Any) -> list[Any]:
        asked.append(host)
        found = addresses if host == "storage.example.com" else (host,)
        return [each for address in found for each in really(address, port, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return asked


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["2130706433"], ["0x7f.1"], ["10.0.0.5", "127.0.0.1"]])
def test_a_name_that_leads_to_loopback_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    with ScriptedHttp([LARGE]) as server:
        port = server.url.rpartition(":")[2]
        resolve_to(monkeypatch, *addresses)
        with pytest.raises(SignedLocationError, match=r"storage\.example\.com .*127\.0\.0\.1"):
            get(connections(f"http://storage.example.com:{port}"), f"http://storage.example.com:{port}/k")
    assert not server.requests


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1"])
def test_loopback_in_another_form_is_not_connected_to(host: str) -> None:
    with pytest.raises(SignedLocationError, match=r"127\.0\.0\.1"):
        get(connections(f"http://{host}:1"), f"http://{host}:1/k")


def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedHttp([LARGE]) as server:
        url = server.url.replace("127.0.0.1", "storage.example.com")
        asked = resolve_to(monkeypatch, "127.0.0.1")
        assert len(get(connections(url, "127.0.0.1"), f"{url}/k")) == 1 << 20
    assert asked.count("storage.example.com") == 1
    assert f"Host: {url.removeprefix('http://')}".encode() in server.requests[0]


def test_the_next_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedHttp([LARGE]) as server:
        url = server.url.replace("127.0.0.1", "storage.example.com")
        resolve_to(monkeypatch, "::1", "127.0.0.1")
        assert get(connections(url, "127.0.0.1", "[::1]"), f"{url}/k")


@pytest.mark.parametrize("host", ["does-not-exist.invalid", "a" * 70 + ".example.com"])
def test_a_name_that_stands_for_nothing_is_an_error_of_urllib3(host: str) -> None:
    with pytest.raises(urllib3.exceptions.HTTPError):
        get(connections(f"http://{host}"), f"http://{host}/k")


@pytest.mark.parametrize("answer", [LARGE, MANY_HEADERS])
def test_an_answer_that_trickles_in_ends_with_its_time(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """Each piece that comes is 40 s after the one before it."""
    clock = itertools.count(step=40.0)
    let_time_be(monkeypatch, lambda: next(clock))
    with ScriptedHttp([answer]) as server, pytest.raises(urllib3.exceptions.HTTPError, match="timed out"):
        get(connections(server.url), f"{server.url}/k")


class TlsHttp(ScriptedHttp):
    """The same by TLS, for 127.0.0.1."""

    def __init__(self, answers: list[bytes], authority: CertificateAuthority, folder: Path) -> None:
        super().__init__(answers)
        context = server_context(authority.issue("server").write(folder / "server.pem"))
        self._server = context.wrap_socket(self._server, server_side=True)
        self.url = self.url.replace("http:", "https:")


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CertificateAuthority:
    """The one that this process trusts."""
    authority = CertificateAuthority()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.write(tmp_path / "authority.pem")))
    return authority


def test_by_tls_the_host_that_was_asked_for_is_verified(
    authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TlsHttp([LARGE], authority, tmp_path) as server:
        assert len(get(connections(server.url), f"{server.url}/k")) == 1 << 20
        other = server.url.replace("127.0.0.1", "storage.example.com")
        resolve_to(monkeypatch, "127.0.0.1")
        with pytest.raises(urllib3.exceptions.HTTPError, match="storage.example.com"):
            get(connections(other, "127.0.0.1"), f"{other}/k")


def test_by_tls_too_an_answer_ends_with_its_time(
    monkeypatch: pytest.MonkeyPatch, authority: CertificateAuthority, tmp_path: Path
) -> None:
    clock = itertools.count(step=40.0)
    let_time_be(monkeypatch, lambda: next(clock))
    with (
        TlsHttp([LARGE], authority, tmp_path) as server,
        pytest.raises(urllib3.exceptions.HTTPError, match="timed out"),
    ):
        get(connections(server.url), f"{server.url}/k")

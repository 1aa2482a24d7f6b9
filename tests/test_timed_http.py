"""Answers that drip, over a real socket; the clock is the test's, so that nothing waits."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import urllib3

from tests.broker.certificates import CertificateAuthority
from tests.dripping import BODY, CHUNKS, HEADERS, dripping
from tests.formats.scripted_registry import ScriptedRegistry
from tests.local_http import Answer
from tiered_stream import timed_http
from tiered_stream.timed_http import timed_pools


def let_time_be(patch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    """Give connections this clock in seconds."""
    patch.setattr(timed_http, "time", SimpleNamespace(monotonic=now))


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("answer", [HEADERS, BODY, CHUNKS], ids=["headers", "body", "chunks"])
def test_an_answer_that_drips_is_given_up_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool, answer: tuple[bytes, bytes]
) -> None:
    trusting, identity = None, None
    if tls:
        authority = CertificateAuthority()
        trusting, identity = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trusting.load_verify_locations(cadata=authority.certificate)
        identity.load_cert_chain(authority.issue("server").write(tmp_path / "server.pem"))
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


def test_a_proxy_whose_answer_to_connect_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    let_time_be(monkeypatch, lambda: float(next(ticks)))
    with dripping(*HEADERS, seconds=0.001) as (proxy, _), pytest.raises(urllib3.exceptions.HTTPError):
        pools = timed_pools(30, 50, ssl.create_default_context(), proxy=proxy)
        pools.request("GET", "https://registry.example/x")
    assert next(ticks) >= 50

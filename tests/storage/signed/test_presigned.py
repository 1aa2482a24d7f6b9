"""Ranged GETs on signed URLs: against a real endpoint, and against one that fails as it is told."""

from __future__ import annotations

import itertools
import logging
import socket
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.rigs.stack.processes import wait_until
from tests.storage.conftest import s3_options
from tests.storage.golden_aiven import big_segment
from tests.storage.golden_aiven import fetcher as golden_fetcher
from tests.storage.scripted_http import SILENCE, STALL, ScriptedHttp, answer, error, let_time_be, part, stalls_at_once
from tests.storage.segment import segment
from tiered_stream.errors import (
    BrokerUnavailableError,
    CorruptDataError,
    SignedLocationError,
    StorageAccessError,
    StorageConnectTimeoutError,
    StorageError,
    StorageObjectNotFoundError,
    StorageReadTimeoutError,
    StorageUnavailableError,
)
from tiered_stream.model import ByteRange, RemoteLogSegment
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.attempts import RequestTimeouts
from tiered_stream.storage.fetcher import cut
from tiered_stream.storage.local_layout import LocalLayoutFetcher, object_key
from tiered_stream.storage.open_store import open_store
from tiered_stream.storage.signed.presigned import PresignedFetcher, SignedRequests, signed_requests
from tiered_stream.storage.signed.signed_hosts import signed_hosts

if TYPE_CHECKING:
    from tests.rigs.stack.s3proxy import S3Proxy

SEGMENT = segment(1000)
SIGNATURE = "the-signature-that-nobody-may-see"
QUICK_MS, PATIENT_MS = 300, 20_000


def by_urls(
    url: str,
    renew: Callable[[RemoteLogSegment], str | None],
    endpoint: str,
    timeout_ms: int = QUICK_MS,
    *,
    has_fallback: bool = True,
) -> PresignedFetcher:
    """Of `SEGMENT` at a signed URL, where the endpoint is the configured storage."""
    options = StorageOptions(
        s3_endpoint_url=endpoint, connect_timeout_ms=timeout_ms, read_timeout_ms=timeout_ms, has_fallback=has_fallback
    )
    return PresignedFetcher({SEGMENT.segment_id: url}, renew, signed_requests(options))


def fetcher(base: str, *renewed: str | None, has_fallback: bool = True) -> PresignedFetcher:
    """Of `SEGMENT` at a base URL; what is refused is signed anew with the next of `renewed`."""
    urls = iter(renewed)
    url = f"{base}/bucket/key.log?X-Amz-Signature={SIGNATURE}"
    return by_urls(url, lambda _: next(urls), base, has_fallback=has_fallback)


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiered_stream.storage.attempts._FIRST_WAIT", 0.0)


def fails(kind: type[StorageError] | type[CorruptDataError], made: PresignedFetcher, start: int = 0) -> str:
    with pytest.raises(kind) as caught:
        made.fetch_log_segment(SEGMENT, start, start + 10)
    shown = "".join(traceback.format_exception(caught.value))
    assert SIGNATURE not in shown
    return str(caught.value)


def test_a_range_is_asked_for_and_given() -> None:
    with ScriptedHttp([part(b"0123456789", 20)]) as server:
        assert fetcher(server.url).fetch_log_segment(SEGMENT, 20, 30) == b"0123456789"
    (request,) = server.requests
    assert b"Range: bytes=20-29" in request and SIGNATURE.encode() in request


def test_nothing_is_asked_for_an_empty_range() -> None:
    assert fetcher("http://127.0.0.1:1").fetch_log_segment(SEGMENT, 5, 5) == b""


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_service_is_asked_again(status: int) -> None:
    with ScriptedHttp([answer(status), part(b"0123456789")]) as server:
        one = fetcher(server.url)
        before = one.slow_down_responses()
        assert one.fetch_log_segment(SEGMENT, 0, 10) == b"0123456789"
    assert len(server.requests) == 2
    assert one.slow_down_responses() - before == (status in (429, 503))


@pytest.mark.parametrize(
    "after,waits",
    [
        ("7", [7, 7, 6, 0, 0, 0, 0, 0]), ("3600", [20, 0, 0, 0, 0, 0, 0, 0]),
        ("Wed, 21 Oct 2026 07:28:00 GMT", [0, 0, 0]), ("", [0, 0, 0]),
    ],
)  # fmt: skip
def test_a_service_that_stays_busy_is_asked_again_when_it_says_but_for_20_seconds_in_all(
    monkeypatch: pytest.MonkeyPatch, after: str, waits: list[float]
) -> None:
    sleeps: list[float] = []
    monkeypatch.setattr("tiered_stream.storage.attempts.time.sleep", sleeps.append)
    with ScriptedHttp([answer(503, Retry_After=after)]) as server:
        assert "503" in fails(StorageUnavailableError, fetcher(server.url))
    assert sleeps == waits and len(server.requests) == len(waits) + 1


def test_a_connection_that_breaks_in_the_body_is_made_again() -> None:
    with ScriptedHttp([part(b"01234", length=10), part(b"0123456789")]) as server:
        assert fetcher(server.url).fetch_log_segment(SEGMENT, 0, 10) == b"0123456789"


@pytest.mark.parametrize("length", ["9" * 5000, "\u00b2", "-10", ""])
def test_a_length_that_is_none_is_the_services_fault(length: str) -> None:
    data = part(b"0123456789").replace(b"Content-Length: 10", b"Content-Length: " + length.encode("latin-1"))
    with ScriptedHttp([data]) as server:
        assert "length" in fails(StorageError, fetcher(server.url))


@pytest.mark.parametrize("stall", [STALL, part(b"01234" + STALL, length=10)])
@pytest.mark.parametrize("has_fallback,attempts", [(False, 4), (True, 2)])
def test_a_stall_is_waited_out_once_where_brokers_have_the_records_else_three_times(
    monkeypatch: pytest.MonkeyPatch, stall: bytes, has_fallback: bool, attempts: int
) -> None:
    stalls_at_once(monkeypatch)
    with ScriptedHttp([stall] * (attempts - 1) + [part(b"0123456789")]) as server:
        assert fetcher(server.url, has_fallback=has_fallback).fetch_log_segment(SEGMENT, 0, 10) == b"0123456789"
    with ScriptedHttp([stall]) as server:
        said = fails(StorageReadTimeoutError, fetcher(server.url, has_fallback=has_fallback))
    assert f"kafka.fetch.remote.read.timeout.ms, in {attempts} attempts" in said
    assert len(server.requests) == attempts


def test_a_response_that_trickles_in_ends_with_the_time_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece that comes is 15 s after the one before it."""
    clock = itertools.count(step=15.0)
    let_time_be(monkeypatch, lambda: next(clock))
    with ScriptedHttp([part(bytes(1 << 20))]) as server:
        options = StorageOptions(s3_endpoint_url=server.url, request_timeout_ms=60_000, read_timeout_ms=PATIENT_MS)
        requests = SignedRequests(signed_hosts(options), RequestTimeouts.of(options))
        with pytest.raises(StorageReadTimeoutError, match=r"remote\.fetch\.request\.timeout\.ms, 60 s"):
            requests.get(f"{server.url}/key", ByteRange(0, 1 << 20))
    assert len(server.requests) == 1


def test_each_request_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    let_time_be(monkeypatch, lambda: seconds[0])
    with ScriptedHttp([part(b"0123456789")]) as server:
        options = StorageOptions(s3_endpoint_url=server.url, request_timeout_ms=60_000, read_timeout_ms=PATIENT_MS)
        requests = SignedRequests(signed_hosts(options), RequestTimeouts.of(options))
        for _ in range(3):
            assert requests.get(f"{server.url}/key", ByteRange(0, 10)) == b"0123456789"
            seconds[0] += 50.0


def test_a_service_that_does_not_take_connections_is_a_connect_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        with socket.create_connection(address, timeout=5):  # the queue is full now
            fails(StorageConnectTimeoutError, fetcher(f"http://127.0.0.1:{address[1]}"))


def test_nobody_listening_is_unavailable() -> None:
    fails(StorageUnavailableError, fetcher("http://127.0.0.1:1"))


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refused_url_is_signed_anew_once(status: int) -> None:
    with ScriptedHttp([error(status, "ExpiredToken"), part(b"0123456789")]) as server:
        made = fetcher(server.url, f"{server.url}/bucket/key.log?fresh")
        assert made.fetch_log_segment(SEGMENT, 0, 10) == b"0123456789"
        assert made.fetch_log_segment(SEGMENT, 0, 10) == b"0123456789"
    assert [b"?fresh" in request for request in server.requests] == [False, True, True]


def test_a_url_that_is_refused_may_have_no_new_one_or_one_that_is_refused_too() -> None:
    with ScriptedHttp([error(403, "AccessDenied")]) as server:
        fails(StorageObjectNotFoundError, fetcher(server.url, None))
        fails(StorageAccessError, fetcher(server.url, f"{server.url}/bucket/key.log?fresh{SIGNATURE}"))
    assert len(server.requests) == 3


def test_a_broker_that_cannot_be_asked_is_an_access_error_so_that_the_split_falls_back() -> None:
    def renew(_: RemoteLogSegment) -> str | None:
        raise BrokerUnavailableError("no broker")

    with ScriptedHttp([error(403, "AccessDenied")]) as server:
        made = by_urls(f"{server.url}/key?{SIGNATURE}", renew, server.url)
        assert "no broker" in fails(StorageAccessError, made)


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (answer(200, b"0123456789"), StorageError),
        (answer(206, b"0123456789", Content_Range="bytes 5-14/1000"), StorageError),
        (answer(301, Location="http://127.0.0.1:1/"), StorageError),
        (part(b"01234"), CorruptDataError),
        (part(b"0123456789ab"), CorruptDataError),
        (answer(416), CorruptDataError),
        (error(404, "NoSuchKey"), StorageObjectNotFoundError),
        (SILENCE, StorageReadTimeoutError),
    ],
)
def test_an_answer_that_is_not_the_range_is_an_error(script: bytes, kind: type[StorageError]) -> None:
    with ScriptedHttp([script]) as server:
        fails(kind, fetcher(server.url))


@pytest.mark.parametrize(
    "url",
    [
        "", "key.log", "ftp://127.0.0.1/k", "http://[::1", "http://[::1]x/k", "http://127.0.0.1:port/k",
        "http://127.0.0.1:99999999/k", "http://127.0.0.1:-1/k", "http://127.0.0.1", "http:///k", "http://127.0.0.1\\@h/k",
        "http://user@127.0.0.1/k", "http://127.0.0.1/k#f", "http://127.0.0.1/a b", "http://127.0.0.1/\r\nHost: h",
        "http://127.0.0.1/k\n", "http://\u212a/k", f"http://127.0.0.1/{'k' * 20_000}",
    ],
)  # fmt: skip
def test_a_location_that_is_no_url_is_an_error_that_does_not_repeat_it(url: str) -> None:
    made = by_urls(f"{url}?{SIGNATURE}" if url else url, lambda _: None, "http://127.0.0.1")
    assert "URL" in fails(SignedLocationError, made)
    assert SIGNATURE not in made.describe(SEGMENT)


def test_a_location_at_another_host_than_the_storage_is_not_asked() -> None:
    with ScriptedHttp([part(b"0123456789")]) as server:
        made = by_urls(f"{server.url}/key?{SIGNATURE}", lambda _: None, "http://127.0.0.1:1")
        assert f"{server.url} " in fails(SignedLocationError, made)
    assert not server.requests


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with ScriptedHttp([part(b"0123456789")]) as elsewhere:
        with ScriptedHttp([answer(status, Location=f"{elsewhere.url}/key.log")]) as server:
            assert f"status {status}" in fails(StorageError, fetcher(server.url))
        assert not elsewhere.requests


def test_an_answer_in_chunks_is_refused_since_its_length_binds_nobody() -> None:
    chunks = answer(
        206, b"a\r\n0123456789\r\n0\r\n\r\n", 10, Content_Range="bytes 0-9/1000", Transfer_Encoding="chunked"
    )
    with ScriptedHttp([chunks]) as server:
        assert "length of its response" in fails(StorageError, fetcher(server.url))


def test_no_signature_is_logged_even_where_headers_are_damaged_and_everything_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("urllib3").debug("a line of the user's own urllib3")
    damaged = part(b"0123456789").replace(b"Content-Length", b"no header at all\r\nContent-Length")
    with ScriptedHttp([answer(503), damaged]) as server, suppress(StorageError):
        fetcher(server.url).fetch_log_segment(SEGMENT, 0, 10)
    assert len(server.requests) >= 2
    assert "user's own urllib3" in caplog.text
    assert SIGNATURE not in caplog.text


def test_without_a_url_and_without_a_storage_there_is_no_access() -> None:
    made = PresignedFetcher({}, lambda _: None, signed_requests(StorageOptions()))
    assert "no signed location" in fails(StorageAccessError, made)


def test_requests_for_a_segment_without_a_url_are_cut_as_its_layout_wants() -> None:
    signed, unsigned, wanted = segment(4 << 20), big_segment("aiven-zstd-aesgcm"), ByteRange(5, 3 << 20)
    layout = golden_fetcher("aiven-zstd-aesgcm")
    made = PresignedFetcher(
        {signed.segment_id: "http://127.0.0.1:1/key"}, lambda _: None, signed_requests(StorageOptions()), layout
    )
    assert made.request_ranges(unsigned, wanted, 1 << 19) == layout.request_ranges(unsigned, wanted, 1 << 19)
    assert made.request_ranges(signed, wanted, 1 << 19) == cut(wanted, 1 << 19)


def test_no_url_is_in_the_repr() -> None:
    assert SIGNATURE not in repr(fetcher("http://host"))
    assert SIGNATURE not in fetcher("http://host").describe(SEGMENT)


@pytest.mark.stack
def test_a_signed_url_reaches_its_one_object_and_not_after_its_lifetime(s3proxy: S3Proxy) -> None:
    client = s3proxy.client()
    client.create_bucket(Bucket="signed")
    other = segment(1000, base_offset=100)
    for each in (SEGMENT, other):
        client.put_object(Bucket="signed", Key=object_key(each, ".log"), Body=bytes(1000))
    store = open_store(s3_options(s3proxy, "s3://signed"))
    layout = LocalLayoutFetcher(store)
    url = layout.signed_location(SEGMENT, 60)
    assert url is not None

    def made(signed: str) -> PresignedFetcher:
        return by_urls(signed, lambda _: None, s3proxy.endpoint, PATIENT_MS)

    assert made(url).fetch_log_segment(SEGMENT, 10, 30) == bytes(20)
    elsewhere = url.replace(object_key(SEGMENT, ".log"), object_key(other, ".log"))
    with pytest.raises(StorageError):
        made(elsewhere).fetch_log_segment(SEGMENT, 0, 10)
    brief = layout.signed_location(SEGMENT, 1)
    assert brief is not None
    wait_until(lambda: _refused(brief), "the end of the URL's lifetime", pause=0.1)
    with pytest.raises(StorageObjectNotFoundError, match="signed location"):
        made(brief).fetch_log_segment(SEGMENT, 0, 10)


def _refused(url: str) -> bool:
    try:
        with urllib.request.urlopen(url):
            return False
    except urllib.error.HTTPError:
        return True

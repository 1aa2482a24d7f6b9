"""The contract that `CloudStore` keeps over each service, before an endpoint that answers as a test says."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.broker.certificates import CertificateAuthority, Identity, server_context
from tests.dripping import dripping
from tests.local_http import LocalHttp
from tests.storage.clouds import CLOUDS, Cloud, answer, part
from tests.storage.scripted_http import SILENCE, ScriptedHttp, error, let_time_be
from tiered_stream.data_limits import DEFAULT_LIMITS, Limit
from tiered_stream.errors import (
    ConfigurationError,
    CorruptDataError,
    StorageAccessError,
    StorageBucketNotFoundError,
    StorageConnectTimeoutError,
    StorageError,
    StorageReadTimeoutError,
    StorageUnavailableError,
)
from tiered_stream.model import ByteRange
from tiered_stream.storage import cloud_store
from tiered_stream.storage.attempts import AttemptError
from tiered_stream.storage.cloud_endpoints import SEGMENTS
from tiered_stream.storage.cloud_store import CloudStore
from tiered_stream.storage.gcs import GoogleBucket
from tiered_stream.storage.local_layout import LocalLayoutFetcher
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store, open_writable


@pytest.fixture(params=CLOUDS)
def cloud(request: pytest.FixtureRequest) -> Cloud:
    return CLOUDS[request.param]


def head_of_large(request: bytes) -> bytes:
    """The head of a large answer."""
    head = part(b"", length=1 << 20).replace(b"bytes 0--1/1000", b"bytes 0-1048575/1048576")
    return head if b"\r\nrange:" in request.lower() else head.replace(b"206", b"200")


@contextmanager
def never_accepting() -> Iterator[str]:
    """The URL of a socket whose queue of connections is full."""
    with socket.socket() as server, ExitStack() as waiting:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The backoffs between retries, which are not slept. Other threads, as of reads that were given up, do sleep."""
    slept: list[float] = []
    own, sleep = threading.get_ident(), time.sleep
    monkeypatch.setattr(time, "sleep", lambda each: slept.append(each) if threading.get_ident() == own else sleep(each))
    return slept


@pytest.mark.parametrize(
    ("name", "status", "code"), [("s3", 403, "InvalidObjectState"), ("azure", 409, "BlobArchived")]
)
def test_an_archived_object_is_no_matter_of_credentials(name: str, status: int, code: str) -> None:
    with (
        ScriptedHttp([error(status, code)]) as server,
        pytest.raises(StorageError, match=f"{status} {code}. Restore") as caught,
    ):
        CLOUDS[name].store(server.url).get("key", ByteRange(0, 1))
    assert not isinstance(caught.value, StorageAccessError) and "check" not in str(caught.value)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda authority: authority.issue("storage"), "UnknownIssuer"),
        (lambda authority: authority.issue("storage", ends=-timedelta(hours=1)), "Expired"),
        (None, "InvalidContentType"),
    ],
)
def test_tls_that_cannot_succeed_is_named_and_not_tried_again(
    cloud: Cloud, tmp_path: Path, sleeps: list[float], made: Callable[[CertificateAuthority], Identity] | None, why: str
) -> None:
    context = server_context(made(CertificateAuthority()).write(tmp_path / "server.pem")) if made else None
    with LocalHttp(BaseHTTPRequestHandler, context) as server:
        options = cloud.options(f"https://127.0.0.1:{server.port}")
        with pytest.raises(
            StorageError, match=rf"^TLS of https:\S+ failed \({why}\), asked for \S+: correct "
        ) as caught:
            open_store(options).get("key", ByteRange(0, 1))
        assert not isinstance(caught.value, StorageUnavailableError) and not sleeps
        with pytest.raises(StorageError, match=f"^TLS .*{why}"):
            open_writable(options, SEGMENTS).put("key", b"")


def test_a_small_upload_is_sent_again_if_a_service_is_silent(
    cloud: Cloud, sleeps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_store, "UPLOAD_SECONDS", 2)
    with ScriptedHttp([SILENCE]) as server:
        with pytest.raises(StorageUnavailableError, match="bucket/p/key with 1 bytes"):
            open_writable(cloud.options(server.url, read_timeout_ms=100), SEGMENTS).put("key", b"x")
        assert len(server.requests) > 1


def test_a_missing_bucket_names_the_bucket_and_the_option(cloud: Cloud) -> None:
    named = pytest.raises(StorageBucketNotFoundError, match=r" bucket \(option remote.storage.uri\)")
    with ScriptedHttp([error(404, cloud.missing_code)]) as server, named:
        cloud.store(server.url).get("key", ByteRange(0, 1))


def test_access_that_is_refused_names_options_and_role(cloud: Cloud) -> None:
    named = pytest.raises(StorageAccessError, match=f"403.*{cloud.hint}")
    with ScriptedHttp([error(403, "AccessDenied")]) as server, named:
        cloud.store(server.url).get("key", ByteRange(0, 1))


def test_an_endpoint_that_nobody_listens_on_is_named(cloud: Cloud, sleeps: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(StorageUnavailableError, match=re.escape(endpoint) + f".*endpoint.url.*{cloud.uri}/key"):
        cloud.store(endpoint).get("key", DEFAULT_LIMITS.index)
    assert len(sleeps) == 3


@pytest.mark.parametrize("status,code", [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests")])
def test_a_service_under_load_is_asked_again(cloud: Cloud, sleeps: list[float], status: int, code: str) -> None:
    with ScriptedHttp([error(status, code)] * 3 + [part(b"data")]) as server:
        assert cloud.store(server.url).get("key", ByteRange(0, 4)) == b"data"
    assert len(sleeps) == 3


@pytest.mark.parametrize(
    "status,code,requests,seconds",
    [(500, "InternalError", 4, 0.35), (408, "RequestTimeout", 4, 0.35), (503, "SlowDown", 9, 12.75),
     (503, "Unavailable", 4, 0.35), (503, "ServerBusy", 9, 12.75),
     (429, "TooManyRequests", 9, 12.75)],
)  # fmt: skip
def test_a_service_that_stays_under_load_is_given_up_and_one_that_says_so_is_given_time(
    cloud: Cloud, sleeps: list[float], status: int, code: str, requests: int, seconds: float
) -> None:
    with ScriptedHttp([error(status, code)]) as server:
        with pytest.raises(StorageUnavailableError, match=f"{status} {code} .*{cloud.uri}/key"):
            cloud.store(server.url).get("key", ByteRange(0, 4))
        assert len(server.requests) == requests
    assert seconds <= sum(sleeps) <= 2 * seconds


def test_answers_that_ask_for_fewer_requests_are_counted(cloud: Cloud, sleeps: list[float]) -> None:
    answers = [error(503, "SlowDown"), error(429, "TooManyRequests"), error(500, "InternalError"), part(b"data")]
    with ScriptedHttp(answers) as server:
        store = cloud.store(server.url)
        assert store.slow_down_responses() == 0
        assert store.get("key", ByteRange(0, 4)) == b"data"
        assert store.slow_down_responses() == LocalLayoutFetcher(store).slow_down_responses() == 2


def ask(store: ObjectStore, by: str) -> object:
    """By a ranged GET; by a GET of the whole object; by a list."""
    match by:
        case "range":
            return store.get("key", ByteRange(0, 4))
        case "whole":
            return store.get("key", DEFAULT_LIMITS.index)
    return list(store.list("key"))


ANSWERS = {"range": part(b"data"), "whole": answer(200, b"data")}


@pytest.mark.parametrize("has_fallback,attempts", [(False, 4), (True, 2)])
def test_a_request_that_stalls_is_sent_again(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, has_fallback: bool, attempts: int
) -> None:
    """Once only where brokers have the records, too."""
    monkeypatch.setattr("tiered_stream.storage.attempts._FIRST_WAIT", 0.0)

    def store(server: ScriptedHttp, timeout_ms: int) -> ObjectStore:
        return cloud.store(server.url, has_fallback=has_fallback, read_timeout_ms=timeout_ms)

    def is_answered_at_last(by: str) -> None:
        answered = ANSWERS.get(by) or answer(200, cloud.keys)
        with ScriptedHttp([*[SILENCE] * (attempts - 1), answered]) as server:
            assert ask(store(server, 500), by) in (b"data", ["key"])
            assert len(server.requests) == attempts

    def is_given_up(by: str) -> None:
        timeout = pytest.raises(
            StorageReadTimeoutError, match=rf"kafka.fetch.remote.read.timeout.ms, in {attempts} attempts"
        )
        with ScriptedHttp([SILENCE]) as server:
            with timeout:
                ask(store(server, 200), by)
            assert len(server.requests) == attempts

    ways = [*ANSWERS, "list"]
    with ThreadPoolExecutor(len(ways)) as together:
        for check in (is_answered_at_last, is_given_up):
            assert list(together.map(check, ways)) == [None] * len(ways)


@pytest.mark.parametrize("by", ["range", "whole"])
def test_a_response_that_trickles_in_ends_with_the_time_of_the_request(cloud: Cloud, by: str) -> None:
    """No piece of it keeps the reader waiting for long."""
    with dripping(head_of_large, b"x", seconds=0.05) as (url, _):
        store = cloud.store(url, request_timeout_ms=300, read_timeout_ms=200)
        with pytest.raises(StorageReadTimeoutError, match=r"remote\.fetch\.request\.timeout\.ms, 0\.3 s"):
            store.get("key", Limit("x", 1 << 30) if by == "whole" else ByteRange(0, 1 << 20))


def test_each_request_has_its_own_time(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    let_time_be(monkeypatch, lambda: seconds[0])
    with ScriptedHttp([part(b"data")]) as server:
        store = cloud.store(server.url, request_timeout_ms=60_000)
        for _ in range(3):
            assert store.get("key", ByteRange(0, 4)) == b"data"
            seconds[0] += 50.0


def test_the_first_attempt_may_take_all_the_time_of_the_request(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedHttp([part(b"data")]) as server:
        store = cloud.store(server.url, request_timeout_ms=60_000)
        connect, limits = store._service.connect, list[float | None]()
        monkeypatch.setattr(
            store._service, "connect", lambda limit, **use: limits.append(limit) or connect(limit, **use)
        )
        assert store.get("key", ByteRange(0, 4)) == b"data"
    assert limits == [60.0]


@pytest.mark.parametrize("attempts", [2, 4])
def test_a_connection_that_is_never_accepted_is_a_connect_timeout(
    cloud: Cloud, sleeps: list[float], attempts: int
) -> None:
    with never_accepting() as url:
        store = cloud.store(url, has_fallback=attempts == 2, connect_timeout_ms=50)
        with pytest.raises(StorageConnectTimeoutError, match=f"kafka.*connect.timeout.ms, .*{cloud.uri}"):
            store.get("key", DEFAULT_LIMITS.index)
    assert len(sleeps) == attempts - 1


BROKEN_OFF = answer(206, b"da", 4, Content_Range="bytes 0-3/1000")


def test_a_connection_that_breaks_in_the_body_is_made_again(cloud: Cloud, sleeps: list[float]) -> None:
    with ScriptedHttp([BROKEN_OFF] * 3 + [part(b"data")]) as server:
        assert cloud.store(server.url).get("key", ByteRange(0, 4)) == b"data"


def test_a_body_that_always_breaks_off_is_given_up_after_four_requests(cloud: Cloud, sleeps: list[float]) -> None:
    with ScriptedHttp([BROKEN_OFF]) as server:
        with pytest.raises(StorageUnavailableError, match=f"{cloud.uri}/key"):
            cloud.store(server.url).get("key", ByteRange(0, 4))
        assert len(server.requests) == 4


@pytest.mark.parametrize(
    "script,size,wrong",
    [
        (answer(200, b"all of it"), 1000, StorageError),
        (answer(206, b"da", Content_Range="bytes 2-3/4"), 4, CorruptDataError),
        (answer(206, b"da", Content_Range="bytes 2-3/1000"), 1000, StorageError),
        (part(b"data", start=1), 1000, StorageError),
        (part(b"data and more", start=2), 1000, StorageError),
    ],
)
def test_an_answer_with_other_bytes_than_those_asked_for_is_refused(
    cloud: Cloud, script: bytes, size: int, wrong: type[Exception]
) -> None:
    with ScriptedHttp([script, answer(200, bytes(size))]) as server, pytest.raises(wrong, match=f"{cloud.uri}/key"):
        cloud.store(server.url).get("key", ByteRange(2, 6))


@pytest.mark.parametrize(
    "script",
    [
        answer(200, b"12345", Last_Modified="yesterday"),
        answer(200, b"12345", x_amz_missing_meta="many"),
        answer(200, b"<ListBucketResult>"),
        answer(
            200, b"<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>", x_amz_tagging_count="-"
        ),
        b"HTTP/1.1 200 OK\r\n\r\n",
        answer(307),  # which botocore follows until its stack is full
        error(409, "Conflict"),
    ],
)
def test_whatever_an_endpoint_answers_the_error_is_ours(cloud: Cloud, script: bytes) -> None:
    with ScriptedHttp([script]) as server:
        store = cloud.store(server.url)
        for ask in (lambda: store.get("key", ByteRange(0, 5)), lambda: store.size("key"), lambda: list(store.list(""))):
            with suppress(StorageError):
                ask()


def chunked(headers: str, chunks: int) -> bytes:
    """An answer to the range 0 to 5, in chunks of five bytes each."""
    dated = "ETag: x\r\nLast-Modified: Tue, 15 Nov 1994 12:45:26 GMT\r\n"
    head = (
        f"HTTP/1.1 206 Scripted\r\n{dated}Content-Range: bytes 0-4/1000\r\nTransfer-Encoding: chunked\r\n{headers}\r\n"
    )
    return head.encode() + b"5\r\n01234\r\n" * chunks + b"0\r\n\r\n"


@pytest.mark.parametrize("headers", ["", "Content-Length: 5\r\n"])
def test_an_answer_in_chunks_gives_no_more_than_was_asked_for(cloud: Cloud, headers: str) -> None:
    with ScriptedHttp([chunked(headers, 1000)]) as server, pytest.raises(StorageError, match=cloud.uri):
        cloud.store(server.url).get("key", ByteRange(0, 5))


def test_before_each_request_but_not_before_further_attempts_a_function_is_called(
    cloud: Cloud, sleeps: list[float]
) -> None:
    with ScriptedHttp([error(503, "SlowDown"), part(b"data")]) as server:
        store, called = cloud.store(server.url), list[None]()
        store.before_request = lambda: called.append(None)
        for number in (1, 2):
            assert store.get("key", ByteRange(0, 4)) == b"data"
            assert len(called) == number


def test_an_empty_range_is_not_asked_for(cloud: Cloud) -> None:
    with ScriptedHttp([error(500, "InternalError")]) as server:
        assert cloud.store(server.url).get("key", ByteRange(5, 5)) == b""
        assert server.requests == []


class OtherRegion(GoogleBucket):
    """A bucket that is elsewhere, which its service says by status 400."""

    def shows_other_settings(self, failure: AttemptError) -> bool:
        return failure.status == 400


def test_a_region_that_is_learned_by_the_last_attempt_comes_too_late(sleeps: list[float]) -> None:
    with ScriptedHttp([*[error(503, "SlowDown")] * 3, error(400, "WrongRegion")]) as server:
        store = CloudStore(OtherRegion(CLOUDS["gcs"].options(server.url), "bucket"), "p/")
        with pytest.raises(StorageError, match="400 WrongRegion"):
            store.get("key", ByteRange(0, 4))
        assert len(server.requests) == 4


@pytest.mark.parametrize("uri,key", [("", "/a/b"), ("", "a//b"), ("/p", "/b"), ("/p//q", "b"), ("", "a/")])
def test_a_key_with_an_empty_part_is_refused_and_no_other_object_is_read(cloud: Cloud, uri: str, key: str) -> None:
    with ScriptedHttp([part(b"data")]) as server:
        store = cloud.store(server.url, uri=cloud.uri.removesuffix("/p") + uri)
        for request in (lambda: store.get(key, ByteRange(0, 4)), lambda: store.size(key)):
            with pytest.raises(ConfigurationError, match="two slashes"):
                request()
        assert not server.requests

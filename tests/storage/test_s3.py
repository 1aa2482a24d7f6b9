from __future__ import annotations

import logging
import re
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Self

import pytest

from tests.storage.conftest import s3_options
from tests.storage.scripted_http import SILENCE, ScriptedHttp, answer, error, part
from tiered_stream.errors import (
    ConfigurationError,
    CorruptDataError,
    StorageAccessError,
    StorageConnectTimeoutError,
    StorageError,
    StorageObjectNotFoundError,
    StorageReadTimeoutError,
    StorageUnavailableError,
)
from tiered_stream.limits import DEFAULT_LIMITS, Limit
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.cloud_store import CloudStore
from tiered_stream.storage.local_layout import LocalLayoutFetcher
from tiered_stream.storage.object_store import ObjectStore
from tiered_stream.storage.open_store import open_store
from tiered_stream.storage.s3 import S3Bucket

if TYPE_CHECKING:
    from tests.stack.s3proxy import S3Proxy

SECRET = "the-secret-that-nobody-may-see"


KEYS = (
    b"<ListBucketResult><Contents><Key>p/key</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    b"<ETag>x</ETag><Size>1</Size></Contents></ListBucketResult>"
)


def options_at(endpoint: str, **others: object) -> StorageOptions:
    options = {"uri": "s3://bucket/p", "s3_endpoint_url": endpoint, "s3_path_style": True, "s3_region": "eu-west-1"}
    keys = {"access_key_id": "id", "secret_access_key": SECRET}
    return StorageOptions(**(options | keys | others))  # type: ignore[arg-type]


class TricklingHttp:
    """An endpoint that sends a byte of a large answer every 50 ms."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._ended = threading.Event()
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection, suppress(OSError):
            request = connection.recv(65536)
            ranged = b"\r\nrange:" in request.lower()
            head = part(b"", length=1 << 20).replace(b"bytes 0--1/1000", b"bytes 0-1048575/1048576")
            connection.sendall(head if ranged else head.replace(b"206", b"200"))
            while not self._ended.wait(0.05):
                connection.sendall(b"x")


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


def store_at(endpoint: str, **others: object) -> ObjectStore:
    return open_store(options_at(endpoint, **others))


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The backoffs between retries, which are not slept. Other threads, as of reads that were given up, do sleep."""
    slept: list[float] = []
    own, sleep = threading.get_ident(), time.sleep
    monkeypatch.setattr(time, "sleep", lambda each: slept.append(each) if threading.get_ident() == own else sleep(each))
    return slept


@pytest.mark.stack
def test_a_missing_bucket_names_the_bucket_and_the_option(s3proxy: S3Proxy) -> None:
    store = open_store(s3_options(s3proxy, "s3://no-such-bucket"))
    with pytest.raises(StorageObjectNotFoundError, match=r"bucket no-such-bucket \(option remote.storage.uri\)"):
        store.get("key", ByteRange(0, 1))
    with pytest.raises(StorageObjectNotFoundError, match=r"bucket no-such-bucket \(option remote.storage.uri\)"):
        list(store.list(""))


@pytest.mark.stack
@pytest.mark.parametrize("wrong", ["access_key_id", "secret_access_key"])
def test_wrong_credentials_name_the_options_and_not_the_secret(s3proxy: S3Proxy, wrong: str) -> None:
    store = open_store(s3_options(s3proxy, "s3://contract", **{wrong: SECRET}))
    with pytest.raises(StorageAccessError, match="contract/key.*403.*remote.storage.aws.secret.access.key") as caught:
        store.get("key", ByteRange(0, 1))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert s3proxy.endpoint in str(caught.value)


def test_no_credentials_anywhere_name_the_options_and_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    store = store_at("http://127.0.0.1:1", access_key_id=None, secret_access_key=None)
    with pytest.raises(StorageAccessError, match="no credentials for s3://bucket.*access.key.id.*credential chain"):
        store.get("key", DEFAULT_LIMITS.index)


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidToken", "AuthorizationHeaderMalformed"])
def test_credentials_that_a_400_refuses_are_a_matter_of_access(code: str) -> None:
    with ScriptedHttp([error(400, code)]) as server, pytest.raises(StorageAccessError, match=code):
        store_at(server.url).get("key", DEFAULT_LIMITS.index)


def test_a_listing_that_is_refused_names_the_permission() -> None:
    named = pytest.raises(StorageAccessError, match="grant s3:ListBucket on arn:aws:s3:::bucket; otherwise check")
    with ScriptedHttp([error(403, "AccessDenied")]) as server, named:
        list(store_at(server.url).list("t-"))


def test_an_endpoint_that_nobody_listens_on_is_named(sleeps: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(StorageUnavailableError, match=re.escape(endpoint) + ".*endpoint.url.*s3://bucket/p/key"):
        store_at(endpoint).get("key", DEFAULT_LIMITS.index)
    assert len(sleeps) == 3


@pytest.mark.parametrize("status,code", [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests")])
def test_a_service_under_load_is_asked_again(sleeps: list[float], status: int, code: str) -> None:
    with ScriptedHttp([error(status, code)] * 3 + [part(b"data")]) as server:
        assert store_at(server.url).get("key", ByteRange(0, 4)) == b"data"
    assert len(sleeps) == 3


@pytest.mark.parametrize("status,code", [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests")])
def test_a_service_that_stays_under_load_is_given_up_after_four_requests(
    sleeps: list[float], status: int, code: str
) -> None:
    with ScriptedHttp([error(status, code)]) as server:
        with pytest.raises(StorageUnavailableError, match=f"{status} {code} to every request for s3://bucket/p/key"):
            store_at(server.url).get("key", ByteRange(0, 4))
        assert len(server.requests) == 4


def test_answers_that_ask_for_fewer_requests_are_counted(sleeps: list[float]) -> None:
    answers = [error(503, "SlowDown"), error(429, "TooManyRequests"), error(500, "InternalError"), part(b"data")]
    with ScriptedHttp(answers) as server:
        store = store_at(server.url)
        assert store.busy_answers() == 0
        assert store.get("key", ByteRange(0, 4)) == b"data"
        assert store.busy_answers() == LocalLayoutFetcher(store).busy_answers() == 2


def ask(store: ObjectStore, by: str) -> object:
    """By a ranged GET; by a GET of the whole object; by a list."""
    match by:
        case "range":
            return store.get("key", ByteRange(0, 4))
        case "whole":
            return store.get("key", DEFAULT_LIMITS.index)
    return list(store.list("key"))


ANSWERS = {"range": part(b"data"), "whole": answer(200, b"data"), "list": answer(200, KEYS)}


@pytest.mark.parametrize("has_fallback,attempts", [(False, 4), (True, 2)])
@pytest.mark.parametrize("by", ANSWERS)
def test_a_request_that_stalls_is_sent_again(sleeps: list[float], by: str, has_fallback: bool, attempts: int) -> None:
    """Once only where brokers have the records, too."""
    options = {"has_fallback": has_fallback, "read_timeout_ms": 50}
    with ScriptedHttp([*[SILENCE] * (attempts - 1), ANSWERS[by]]) as server:
        assert ask(store_at(server.url, **options), by) in (b"data", ["key"])
        assert len(server.requests) == attempts
    timeout = pytest.raises(StorageReadTimeoutError, match=rf"kafka.fetch.remote.read.timeout.ms, {attempts} times")
    with ScriptedHttp([SILENCE]) as server:
        with timeout:
            ask(store_at(server.url, **options), by)
        assert len(server.requests) == attempts


@pytest.mark.parametrize("by", ["range", "whole"])
def test_a_response_that_trickles_in_ends_with_the_time_of_the_request(by: str) -> None:
    """No piece of it keeps the reader waiting for long."""
    with TricklingHttp() as server:
        store = store_at(server.url, request_timeout_ms=300, read_timeout_ms=200)
        with pytest.raises(StorageReadTimeoutError, match=r"remote\.fetch\.request\.timeout\.ms, 0\.3 s in all"):
            store.get("key", Limit("x", 1 << 30) if by == "whole" else ByteRange(0, 1 << 20))


def test_each_request_has_its_own_time() -> None:
    seconds = [0.0]
    with ScriptedHttp([part(b"data")]) as server:
        options = options_at(server.url, request_timeout_ms=60_000)
        store = CloudStore(S3Bucket(options, "bucket"), "p/", now=lambda: seconds[0])
        for _ in range(3):
            assert store.get("key", ByteRange(0, 4)) == b"data"
            seconds[0] += 50.0


@pytest.mark.parametrize("attempts", [2, 4])
def test_a_connection_that_is_never_accepted_is_a_connect_timeout(sleeps: list[float], attempts: int) -> None:
    with never_accepting() as url:
        store = store_at(url, has_fallback=attempts == 2, connect_timeout_ms=50)
        with pytest.raises(
            StorageConnectTimeoutError, match=r"no connection within kafka.*connect.timeout.ms, for s3:"
        ):
            store.get("key", DEFAULT_LIMITS.index)
    assert len(sleeps) == attempts - 1


BROKEN_OFF = answer(206, b"da", 4, Content_Range="bytes 0-3/1000")


def test_a_connection_that_breaks_in_the_body_is_made_again() -> None:
    with ScriptedHttp([BROKEN_OFF] * 3 + [part(b"data")]) as server:
        assert store_at(server.url).get("key", ByteRange(0, 4)) == b"data"


def test_a_body_that_always_breaks_off_is_given_up_after_four_requests() -> None:
    with ScriptedHttp([BROKEN_OFF]) as server:
        with pytest.raises(StorageUnavailableError, match="s3://bucket/p/key"):
            store_at(server.url).get("key", ByteRange(0, 4))
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
    script: bytes, size: int, wrong: type[Exception]
) -> None:
    with ScriptedHttp([script, answer(200, bytes(size))]) as server, pytest.raises(wrong, match="s3://bucket/p/key"):
        store_at(server.url).get("key", ByteRange(2, 6))


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
def test_whatever_an_endpoint_answers_the_error_is_ours(script: bytes) -> None:
    with ScriptedHttp([script]) as server:
        store = store_at(server.url)
        for ask in (lambda: store.get("key", ByteRange(0, 5)), lambda: store.size("key"), lambda: list(store.list(""))):
            with suppress(StorageError):
                ask()


def chunked(headers: str, chunks: int) -> bytes:
    """An answer to the range 0 to 5, in chunks of five bytes each."""
    head = f"HTTP/1.1 206 Scripted\r\nContent-Range: bytes 0-4/1000\r\nTransfer-Encoding: chunked\r\n{headers}\r\n"
    return head.encode() + b"5\r\n01234\r\n" * chunks + b"0\r\n\r\n"


@pytest.mark.parametrize("headers", ["", "Content-Length: 5\r\n"])
def test_an_answer_in_chunks_gives_no_more_than_was_asked_for(headers: str) -> None:
    with ScriptedHttp([chunked(headers, 1000)]) as server, pytest.raises(StorageError, match="s3://bucket"):
        store_at(server.url).get("key", ByteRange(0, 5))


def test_neither_credentials_nor_signatures_are_logged_when_everything_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = f"{SECRET}-token"
    with ScriptedHttp([error(500, "InternalError"), part(b"01234"), error(403, "AccessDenied")]) as server:
        store = store_at(server.url, access_key_id="the-key-id", session_token=token)
        store.get("key", ByteRange(0, 5))
        with pytest.raises(StorageAccessError):
            store.get("key", ByteRange(0, 5))
        signed = store.signed_url("key", 60)
    logging.getLogger("botocore.auth").debug("a line of the user's own botocore")
    assert signed is not None and "the-key-id" in signed and token.encode() in server.requests[0]
    assert "user's own botocore" in caplog.text
    assert not [each for each in ("the-key-id", SECRET, "Signature=", "x-amz-") if each in caplog.text]


def test_an_empty_range_is_not_asked_for() -> None:
    with ScriptedHttp([error(500, "InternalError")]) as server:
        assert store_at(server.url).get("key", ByteRange(5, 5)) == b""
        assert server.requests == []


@pytest.mark.parametrize(
    "others,message",
    [
        ({"uri": "s3://"}, "'' is not the name of a bucket"),
        ({"uri": "s3://a b"}, "'a b' is not the name of a bucket"),
        ({"secret_access_key": None}, "go together"),
        ({"s3_endpoint_url": "nonsense"}, "no S3 client"),
    ],
)
def test_what_no_client_can_be_made_of_is_a_configuration_error(others: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        store_at("http://127.0.0.1:1", **others)


def test_the_region_that_a_service_names_is_used_from_then_on() -> None:
    body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>us-east-1</Region></Error>"
    with ScriptedHttp([answer(400, body), part(b"data"), part(b"data")]) as server:
        store = store_at(server.url)
        assert [store.get("key", ByteRange(0, 4)) for _ in range(2)] == [b"data"] * 2
    regions = [re.search(rb"Credential=[^/]+/\d+/([a-z0-9-]+)/s3", request)[1] for request in server.requests]  # type: ignore[index]
    assert regions == [b"eu-west-1", b"us-east-1", b"us-east-1"]

from __future__ import annotations

import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from botocore.session import get_session

from tests.storage.scripted_http import ScriptedHttp, answer, error, part
from tests.storage.test_s3_store import store_at
from tiered_stream.errors import StorageAccessError, StorageObjectNotFoundError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.request_time import RequestTime, RequestTimeouts
from tiered_stream.storage.s3_connections import S3Connections
from tiered_stream.storage.s3_ranges import RangedGets, SentRequest, ranged_gets

DATA = ByteRange(0, 4)


class _NotSentError(Exception):
    pass


def ranges_like(config: Config, endpoint: str | None = None, key: str = "p/a b") -> RangedGets | None:
    """As a client so configured would send a GET, which it does not."""
    session, sent = get_session(), SentRequest()
    session.set_credentials("id", "secret")
    client = session.create_client("s3", region_name="eu-west-1", endpoint_url=endpoint, config=config)

    def stop(request: AWSPreparedRequest, **_: object) -> None:
        sent.note(request)
        raise _NotSentError

    client.meta.events.register("before-send.s3.GetObject", stop)
    with pytest.raises(_NotSentError):
        client.get_object(Bucket="bucket", Key=key)
    assert sent.request is not None
    timeouts = RequestTimeouts.of(StorageOptions(connect_timeout_ms=1000, read_timeout_ms=1000))
    connections = S3Connections(session, endpoint or "https://s3.amazonaws.com", timeouts, RequestTime(timeouts))
    return ranged_gets(session, sent.request, key, connections)


PATH_STYLE = {"addressing_style": "path"}


@pytest.mark.parametrize(
    "s3,endpoint,url",
    [
        ({}, None, "https://bucket.s3.eu-west-1.amazonaws.com/"),
        ({"use_dualstack_endpoint": True}, None, "https://bucket.s3.dualstack.eu-west-1.amazonaws.com/"),
        (PATH_STYLE, None, "https://s3.eu-west-1.amazonaws.com/bucket/"),
        (PATH_STYLE, "http://localhost:9000", "http://localhost:9000/bucket/"),
        (PATH_STYLE, "http://localhost/s3", "http://localhost/s3/bucket/"),
    ],
)
def test_ranges_are_asked_for_where_the_client_asks(s3: dict[str, str], endpoint: str | None, url: str) -> None:
    found = ranges_like(Config(s3=s3), endpoint)
    assert found is not None
    assert (found.bucket_url, found.region) == (url, "eu-west-1")


@pytest.mark.parametrize("version", ["s3", "UNSIGNED"])
def test_a_client_that_signs_in_another_way_asks_itself(version: str) -> None:
    from botocore import UNSIGNED

    assert ranges_like(Config(signature_version=UNSIGNED if version == "UNSIGNED" else version)) is None


def test_a_range_is_asked_for_by_one_signed_request_as_the_clients_is() -> None:
    with ScriptedHttp([part(b"data")]) as server:
        store = store_at(server.url, session_token="a-token")
        assert [store.get("a b+c%20d", DATA) for _ in range(2)] == [b"data"] * 2
    by_client, ours = (dict(_lines(request)) for request in server.requests)
    for name in (b"", b"Host", b"Range", b"X-Amz-Security-Token", b"X-Amz-Content-SHA256"):
        assert ours[name] == by_client[name]
    assert ours[b"User-Agent"].startswith(b"tiered_stream ")
    assert b"/eu-west-1/s3/aws4_request" in ours[b"Authorization"]
    assert len(by_client) > len(ours)


def _lines(request: bytes) -> list[tuple[bytes, bytes]]:
    first, *others = request.rstrip().split(b"\r\n")
    return [(b"", first), *((name, value) for name, _, value in (line.partition(b": ") for line in others))]


def test_a_redirect_is_not_followed_with_the_signature() -> None:
    with ScriptedHttp([part(b"data")]) as other, ScriptedHttp([answer(302, Location=other.url)]) as server:
        ranges = ranges_like(Config(s3=PATH_STYLE), server.url)
        assert ranges is not None
        assert ranges.get("key", DATA) is None
        ranges.given_to_client("key")
        assert not ranges.accepted
        assert other.requests == []


def test_a_service_that_gives_only_the_client_what_it_refused_is_asked_by_the_client_alone_from_then_on() -> None:
    with ScriptedHttp([part(b"data"), error(403, "AccessDenied"), part(b"data")]) as server:
        store = store_at(server.url)
        for _ in range(4):
            assert store.get("key", DATA) == b"data"
        assert len(server.requests) == 1 + 2 + 1 + 1


def test_an_object_that_is_refused_to_the_client_too_does_not_change_how_others_are_asked_for() -> None:
    """S3 answers 403 for a missing object, as one that retention has removed, to a user who may not list the bucket."""
    refused = error(403, "AccessDenied")
    with ScriptedHttp([part(b"data"), refused, refused, part(b"data")]) as server:
        store = store_at(server.url)
        assert store.get("key", DATA) == b"data"
        with pytest.raises(StorageAccessError, match="s3://bucket/p/gone"):
            store.get("gone", DATA)
        for _ in range(3):
            assert store.get("key", DATA) == b"data"
        assert len(server.requests) == 1 + 2 + 3
    assert [b"amz-sdk-request" in request for request in server.requests] == [True, False, True, False, False, False]


def test_an_answer_to_a_request_that_was_under_way_does_not_take_that_back() -> None:
    with ScriptedHttp([error(403, "AccessDenied"), part(b"data")]) as server:
        ranges = ranges_like(Config(s3=PATH_STYLE), server.url)
        assert ranges is not None
        assert ranges.get("key", DATA) is None
        ranges.given_to_client("key")
        assert ranges.get("key", DATA) == b"data"
        assert not ranges.accepted


def test_a_missing_object_does_not_change_how_others_are_asked_for() -> None:
    missing = error(404, "NoSuchKey")
    with ScriptedHttp([part(b"data"), missing, missing, part(b"data")]) as server:
        store = store_at(server.url)
        assert store.get("key", DATA) == b"data"
        with pytest.raises(StorageObjectNotFoundError, match="s3://bucket/p/gone"):
            store.get("gone", DATA)
        assert store.get("key", DATA) == b"data"
        assert len(server.requests) == 4


@pytest.mark.parametrize(
    "script",
    [
        answer(200, b"data"),
        part(b"data", start=1),
        part(b"data and more"),
        part(b"da"),
        part(b"data").replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n") + b"\r\n0\r\n\r\n",
        error(503, "SlowDown"),
        answer(200, b"<Error>"),
    ],
)
def test_what_is_not_the_wanted_bytes_is_left_to_the_client(script: bytes) -> None:
    with ScriptedHttp([script]) as server:
        ranges = ranges_like(Config(s3=PATH_STYLE), server.url)
        assert ranges is not None
        statuses: list[int] = []
        assert ranges.get("key", DATA, statuses.append) is None
        assert (len(statuses), ranges.accepted) == (1, True)

"""What an S3 endpoint may answer to a ranged GET, to a whole one and to a listing. boto3 reads it, and ranged GETs of
botocore's connections, too; nothing connects.

The case is a status (int16), headers as lines, an empty line, and the body.
"""

from __future__ import annotations

from functools import cache
from io import BytesIO
from random import Random
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.httpsession import URLLib3Session
from urllib3 import HTTPResponse

from tests.fuzz.mutation import fixed, number, one, spoiled
from tests.fuzz.target import Target
from tiered_stream.limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage.request_time import RequestTime, RequestTimeouts
from tiered_stream.storage.s3_ranges import RangedGets
from tiered_stream.storage.s3_store import S3Store, s3_client

MOST = Limit("an option", 1000)
WANTED = ByteRange(0, 100)
_LISTING = (
    b'<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
    b"<KeyCount>1</KeyCount><MaxKeys>9</MaxKeys><IsTruncated>false</IsTruncated><Contents><Key>p/a</Key><Size>3</Size>"
    b"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
)
_ERROR = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
ANSWERS = (
    (206, b"Content-Length: 100\nContent-Range: bytes 0-99/1\nLast-Modified: Sun, 22 Nov 2026 1:00:00 GMT", bytes(100)),
    (206, b"Content-Length: 100\nContent-Range: bytes 0-99/1000\nx-amz-checksum-crc32: AAAAAA==", bytes(90)),
    (200, b"Content-Length: 400\nx-amz-meta-a: b", _LISTING),
    (200, b"Content-Length: %d\nContent-Type: application/xml" % len(_LISTING), _LISTING),
    (403, b"Content-Length: 10", _ERROR), (404, b"", b""), (416, b"", b""), (301, b"Location: http://x/", _ERROR),
)  # fmt: skip


class _Endpoint(URLLib3Session):
    """Answers every request with the same bytes, a client's and those that are sent on connections."""

    def __init__(self) -> None:
        super().__init__()
        options = StorageOptions(
            s3_endpoint_url="http://s3.example.com", s3_region="us-east-1", access_key_id="a", secret_access_key="b"
        )
        retries = {"total_max_attempts": 1}
        config = Config(signature_version="s3v4", retries=retries, response_checksum_validation="when_required")  # type: ignore[arg-type]
        client = s3_client(options, config)
        client.meta.events.register_first("before-send.s3", self._answered)  # type: ignore[arg-type]  # gives a response
        credentials = Credentials("a", "b")
        self.ranges = RangedGets("http://s3.example.com/bucket/", "us-east-1", credentials, "tiered_stream", self)
        time = RequestTime(RequestTimeouts.of(options))
        connections: Any = self
        self.store = S3Store(client, "bucket", "p", connections, time, lambda sent, key: self.ranges)
        self.answer = ANSWERS[0]
        self.store.get("a", WANTED)  # of which it learns how to ask for ranges

    def send(self, request: Any) -> AWSResponse:
        return self._answered()

    def _answered(self, **_: Any) -> AWSResponse:
        status, lines, body = self.answer
        headers: Any = dict(line.split(": ", 1) for line in lines.decode("latin-1").split("\n") if ": " in line)
        return AWSResponse(
            "http://s3.example.com/", status, headers, HTTPResponse(BytesIO(body), preload_content=False)
        )


@cache
def endpoint() -> _Endpoint:
    return _Endpoint()


def answer(random: Random) -> bytes:
    status, lines, body = one(random, ANSWERS)
    way = random.random()
    if way < 0.15:
        status = one(random, (100, 204, 206, 200, 302, 400, 416, 500, 503, 999, 0))
    elif way < 0.3:
        lines = lines.replace(b": 100", b": %d" % number(random))
    elif way < 0.5:
        lines = spoiled(random, lines)
    elif way < 0.8:
        body = spoiled(random, body)
    return fixed(status, 2) + lines + b"\n\n" + body


def _answering(data: bytes) -> _Endpoint:
    found = endpoint()
    lines, _, body = data[2:].partition(b"\n\n")
    found.answer = (int.from_bytes(data[:2], "big"), lines, body)
    return found


def read(data: bytes) -> None:
    found = _answering(data)
    found.ranges.accepted = False
    if data[:2] == b"\x00\xce":
        assert len(found.store.get("a", WANTED)) == len(WANTED)
    elif b"List" in data:
        assert all(isinstance(key, str) for key in found.store.list("a"))
    else:
        assert len(found.store.get("a", MOST)) <= MOST.maximum


def read_range(data: bytes) -> None:
    found = _answering(data)
    found.ranges.accepted = True
    assert len(found.store.get("a", WANTED)) == len(WANTED)


TARGETS = (Target("s3-answers", answer, read), Target("s3-ranges", answer, read_range))

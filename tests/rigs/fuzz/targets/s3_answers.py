"""What an S3 endpoint may answer to a ranged GET, to a whole one and to a listing, over a real connection.

The case is a status (int16), headers as lines, an empty line, and the body.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from functools import cache
from random import Random
from unittest.mock import patch

from tests.rigs.fuzz.mutation import fixed, number, one, spoiled
from tests.rigs.fuzz.target import Target
from tiered_stream.data_limits import Limit
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage import attempts
from tiered_stream.storage.cloud_store import CloudStore
from tiered_stream.storage.s3 import S3Bucket

MOST = Limit("an option", 1000)
WANTED = ByteRange(0, 100)
_LISTING = (
    b'<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
    b"<KeyCount>1</KeyCount><MaxKeys>9</MaxKeys><IsTruncated>false</IsTruncated><Contents><Key>p/a</Key><Size>3</Size>"
    b"<ETag>x</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
)
_BODY = bytes(100)
_ERROR = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
ANSWERS = (
    (206, b"Content-Length: 100\nContent-Range: bytes 0-99/1000\nLast-Modified: Sun, 22 Nov 2026 1:00:00 GMT", _BODY),
    (206, b"Content-Length: 100\nContent-Range: bytes 0-99/1000\nx-amz-checksum-crc32: AAAAAA==", bytes(90)),
    (200, b"Content-Length: 400\nx-amz-meta-a: b", _LISTING),
    (200, b"Content-Length: %d\nContent-Type: application/xml" % len(_LISTING), _LISTING),
    (403, b"Content-Length: 10", _ERROR), (404, b"", b""), (416, b"", b""), (301, b"Location: http://x/", _ERROR),
)  # fmt: skip


class _Endpoint:
    """Answers every request with the same bytes, and closes the connection. Waits between attempts are left out."""

    def __init__(self) -> None:
        self.answer = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        options = StorageOptions(
            s3_endpoint_url=f"http://127.0.0.1:{self._server.getsockname()[1]}", s3_path_style=True,
            s3_region="us-east-1", access_key_id="a", secret_access_key="b", read_timeout_ms=1000,
        )  # fmt: skip
        self.store = CloudStore(S3Bucket(options, "bucket"), "p/")

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            with connection, suppress(OSError):
                request = b""
                while b"\r\n\r\n" not in request and (data := connection.recv(65536)):
                    request += data
                connection.sendall(self.answer)


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


def read(data: bytes) -> None:
    lines, _, body = data[2:].partition(b"\n\n")
    head = b"HTTP/1.1 %d Answer\nConnection: close\n%s" % (int.from_bytes(data[:2], "big"), lines)
    used = endpoint()
    used.answer = head.replace(b"\n", b"\r\n") + b"\r\n\r\n" + body
    with patch.object(attempts, "_FIRST_WAIT", 0.0):
        if data[:2] == b"\x00\xce":
            assert len(used.store.get("a", WANTED)) == len(WANTED)
        elif b"List" in data:
            assert all(isinstance(key, str) for key in used.store.list("a"))
        else:
            assert len(used.store.get("a", MOST)) <= MOST.maximum


TARGETS = (Target("s3-answers", answer, read),)

"""Signed URLs as a gateway may name them, and what an HTTP server may answer. No connection is made."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from random import Random
from typing import Any
from unittest.mock import patch

import urllib3
from urllib3.connection import HTTPConnection

from tests.rigs.fuzz.mutation import number, one, spoiled, spoiled_text
from tests.rigs.fuzz.target import Target
from tests.rigs.fuzz.targets.aiven import SEGMENT
from tests.storage.scripted_http import answer, error, part
from tiered_stream.errors import SignedLocationError
from tiered_stream.model import ByteRange
from tiered_stream.options.parsing import StorageOptions
from tiered_stream.storage import attempts
from tiered_stream.storage.attempts import RequestTimeouts
from tiered_stream.storage.signed import presigned
from tiered_stream.storage.signed.presigned import PresignedFetcher, SignedRequests
from tiered_stream.storage.signed.signed_hosts import parse_signed_url, signed_hosts

URL = "http://s3.example.com:9000/bucket/prefix/t-0/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ.log?X-Amz-Signature=0af"
URLS = (
    URL, "https://bucket.s3.eu-central-1.amazonaws.com/prefix/a%20b.log?X-Amz-Expires=900", "https://[::1]:9000/bucket/k",
    "http://169.254.169.254/latest/meta-data", "https://s3.amazonaws.com/bucket/key",
)  # fmt: skip
WORDS = ("@", "#", "\\", "[", "]", "%00", "127.0.0.1", "0x7f.1", "localhost", ":99999", ":0", "//", "http://", ".")
ADDRESSES = (
    "127.0.0.1",
    "::1",
    "fe80::1%eth0",
    "10.0.0.1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "::",
)
HOSTS = tuple(
    signed_hosts(StorageOptions(uri="s3://bucket/prefix", s3_endpoint_url=endpoint, signed_hosts=more))
    for endpoint, more in (("http://s3.example.com:9000", ("https://*.example.org",)), (None, ()))
)
PART = ByteRange(0, 100)
ANSWERS = (
    part(bytes(100)), part(bytes(100), start=1), part(bytes(90), length=100), part(bytes(100), length=90),
    answer(200, bytes(100)), error(403, "AccessDenied"), error(404, "NoSuchKey"), answer(416), error(503, "SlowDown"),
    answer(301, Location="http://169.254.169.254/"), answer(206, bytes(100), Transfer_Encoding="chunked"),
    answer(206, bytes(100), Content_Encoding="gzip", Content_Range="bytes 0-99/100"),
)  # fmt: skip


def url(random: Random) -> bytes:
    return spoiled_text(random, one(random, URLS), WORDS).encode(errors="replace")


def check_url(data: bytes) -> None:
    """It may lead to one of the hosts; what addresses its host may stand for is looked at, too."""
    text = data.decode(errors="replace")
    found = parse_signed_url(text)
    str(found)
    for hosts in HOSTS:
        with suppress(SignedLocationError):
            hosts.check_address(found.host, ADDRESSES[len(text) % len(ADDRESSES)])
    with suppress(SignedLocationError):
        HOSTS[0].check(found)
        return
    HOSTS[1].check(found)


class _CannedSocket:
    """A socket that has received everything already."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self._received)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def canned(received: bytes) -> urllib3.PoolManager:
    """Connections each of which gives these bytes."""

    class Connection(HTTPConnection):
        def connect(self) -> None:
            self.sock = _CannedSocket(received)

        @property
        def is_connected(self) -> bool:
            return False

    pools = urllib3.PoolManager(retries=False)
    pool = type("Pool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": Connection})
    pools.pool_classes_by_scheme = {"http": pool}
    return pools


def http_answer(random: Random) -> bytes:
    made = one(random, ANSWERS)
    if random.random() < 0.3:
        made = made.replace(b"Content-Length: 100", b"Content-Length: %d" % number(random))
    return spoiled(random, made, ANSWERS) if random.random() < 0.8 else made


def read_answer(data: bytes) -> None:
    timeouts = RequestTimeouts.of(StorageOptions())
    with patch.object(presigned, "open_connections", lambda *_: canned(data)):
        requests = SignedRequests(HOSTS[0], timeouts)
    fetcher = PresignedFetcher({SEGMENT.segment_id: URL}, lambda _: URL + "1", requests)
    with patch.multiple(attempts, _FIRST_WAIT=0.0, _MOST_RETRY_AFTER=0.0):
        assert len(fetcher.fetch_log_segment(SEGMENT, PART.start, PART.end)) == len(PART)


TARGETS = (
    Target("signed-urls", url, check_url),
    Target("signed-url-answers", http_answer, read_answer),
)

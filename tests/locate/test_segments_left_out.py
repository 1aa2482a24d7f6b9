"""Planning while the storage fails: what cannot be located is left to the brokers, and no more."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler
from itertools import chain
from threading import Event
from uuid import UUID

import pytest

from tests.local_http import LocalHttp
from tests.locate.log_model import PARTITION, Log, tiered_of
from tests.locate.test_log_model import History, ModelLocator
from tests.plan.planned_splits import plan_splits
from tests.reading import options, tier_segments
from tests.rigs.stack.tiered_stack import TieredStack
from tests.tier.layouts import MemoryBucket
from tiered_stream.data_limits import Limit
from tiered_stream.errors import (
    ConfigurationError,
    StorageAccessError,
    StorageBucketNotFoundError,
    StorageError,
    StorageObjectNotFoundError,
    StorageReadTimeoutError,
)
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import ByteRange, OffsetRange, Split, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.parsing import StorageOptions, parse_options
from tiered_stream.storage.aiven.aiven_fetcher import AivenLayoutFetcher
from tiered_stream.storage.aiven.encryption import KeyRing
from tiered_stream.storage.open_store import open_store

SEGMENTS, RECORDS = 40, 10
ALL = {PARTITION: OffsetRange(0, SEGMENTS * RECORDS)}


class FailingBucket(MemoryBucket):
    """A bucket of which some objects are not given; `asked` counts the requests."""

    fails: Callable[[str], StorageError | None] = staticmethod(lambda key: None)
    asked = 0

    def get(self, key: str, wanted: ByteRange | Limit) -> bytes:
        self.asked += 1
        error = self.fails(key)
        if error is not None:
            raise error
        return super().get(key, wanted)


@pytest.fixture(scope="module")
def history() -> History:
    """Segments of ten records, the indexes of each of which are needed to plan its read."""
    log = Log()
    for number in range(SEGMENTS):
        log.cuts.add(number * RECORDS)
        log.append("plain", RECORDS, -1)
    log.cuts.add(log.end)
    log.append("plain", 1, -1)
    ids = (UUID(int=number + 1) for number in range(SEGMENTS))
    segments = tiered_of(log, ids, index_interval=0, says_empty=False)
    assert len(segments) == SEGMENTS
    return History(log, tuple(segments), ())


def located(
    history: History, fails: Callable[[str], StorageError | None], *, falls_back: bool = True
) -> tuple[list[int], FailingBucket]:
    """The numbers of the segments that are located, and the bucket that was asked."""
    bucket = FailingBucket(history.segments)
    bucket.fails = fails  # type: ignore[method-assign]
    locator = ModelLocator(history, bucket.fetcher(), IsolationLevel.READ_COMMITTED, falls_back=falls_back)
    with closing(locator):
        return [location.offsets.start // RECORDS for location in locator.locate(ALL)[PARTITION]], bucket


def of_segment(*numbers: int, error: type[StorageError], suffix: str = "") -> Callable[[str], StorageError | None]:
    """These segments' objects fail."""
    names = tuple(f"/{number * RECORDS:020d}-" for number in numbers)
    return lambda key: error(key) if any(name in key for name in names) and key.endswith(suffix) else None


EVERY = range(SEGMENTS)


@pytest.mark.parametrize(
    "error", [StorageObjectNotFoundError, StorageAccessError, StorageReadTimeoutError, StorageError]
)
@pytest.mark.parametrize("gone", [(0,), (7, 8, 31), (SEGMENTS - 1,)])
@pytest.mark.parametrize("suffix", ["", ".indexes"])
def test_only_the_segments_that_are_missing_are_left_to_the_broker(
    history: History, gone: tuple[int, ...], error: type[StorageError], suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S3 answers 403, too, for what is missing: to who may not list the bucket."""
    found, _ = located(history, of_segment(*gone, error=error, suffix=suffix))
    assert found == [number for number in EVERY if number not in gone]
    (said,) = caplog.messages
    assert f"modelled-0: {len(gone)} segment" in said and f"{gone[0] * RECORDS:020d}" in said


@pytest.mark.parametrize(
    ("gone", "error", "suffix", "falls_back"),
    [
        ((7,), StorageObjectNotFoundError, "", False),
        ((7,), StorageAccessError, "", False),
        ((7,), StorageReadTimeoutError, "", False),
        *((EVERY, error, suffix, True) for error in (StorageAccessError, StorageError) for suffix in ("", ".indexes")),
        ((7,), StorageBucketNotFoundError, "", True),
    ],
)
def test_without_a_fallback_and_where_no_segment_is_given_nor_its_bucket_known_it_stays_an_error(
    history: History, gone: Collection[int], error: type[StorageError], suffix: str, falls_back: bool
) -> None:
    with pytest.raises(error, match=r"/\d{20}-" if gone is EVERY else f"/{70:020d}-"):
        located(history, of_segment(*gone, error=error, suffix=suffix), falls_back=falls_back)


def test_a_storage_that_is_out_of_reach_is_not_asked_for_every_segment(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request may last until a timeout. Sixteen are under way at once."""
    found, bucket = located(history, of_segment(*EVERY, error=StorageReadTimeoutError))
    assert found == [] and bucket.asked <= 2 * 16
    assert f"{PARTITION}: {SEGMENTS} segments " in caplog.text


STALLING = 3


class _StallingOnce(BaseHTTPRequestHandler):
    """Gives ranges of a bucket's objects, as S3; the first request for each of `STALLING` indexes stalls."""

    bucket: MemoryBucket
    stalled: set[str]
    ended: Event

    def do_GET(self) -> None:
        key = self.path.removeprefix("/tier/")
        if key.endswith(".indexes") and key not in self.stalled and len(self.stalled) < STALLING:
            self.stalled.add(key)
            self.ended.wait()
            self.close_connection = True
            return
        data, asked = self.bucket.objects[key], self.headers["Range"]
        if asked:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            data = data[first : last + 1]
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(self.bucket.objects[key])}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def test_an_index_that_stalls_once_does_not_give_its_segment_to_the_broker(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    bucket, stalled, ended = MemoryBucket(history.segments), set[str](), Event()
    handler = type("Handler", (_StallingOnce,), {"bucket": bucket, "stalled": stalled, "ended": ended})
    with LocalHttp(handler) as server, ExitStack() as at_end:
        at_end.callback(ended.set)
        options = StorageOptions(
            uri="s3://tier", s3_endpoint_url=server.url, s3_region="eu-west-1", s3_path_style=True, access_key_id="id",
            secret_access_key="secret", has_fallback=True, read_timeout_ms=3_000,
        )  # fmt: skip
        fetcher = AivenLayoutFetcher(open_store(options), "", KeyRing({}))
        locator = ModelLocator(history, fetcher, IsolationLevel.READ_COMMITTED, falls_back=True)
        with closing(fetcher), closing(locator):
            found = [location.offsets.start // RECORDS for location in locator.locate(ALL)[PARTITION]]
    assert found == list(EVERY) and len(stalled) == STALLING
    assert not [said for said in caplog.messages if "read from the broker" in said]


def test_segments_that_cannot_be_cut_stay_whole_and_a_storage_that_is_out_of_reach_is_not_asked_for_all_of_them(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = FailingBucket(history.segments)
    locator = ModelLocator(history, bucket.fetcher(), IsolationLevel.READ_UNCOMMITTED, falls_back=True)
    with closing(locator):
        whole = list(locator.locate(ALL)[PARTITION])
        bucket.fails = of_segment(*EVERY, error=StorageReadTimeoutError)  # type: ignore[method-assign]
        before = bucket.asked
        for look_up in (
            lambda: chain(*locator.cut_all([(location, 10) for location in whole])),
            lambda: chain(*locator.cut_at([(location, [location.offsets.start + 5]) for location in whole])),
            lambda: locator.since_all(whole, 1 << 50),
        ):
            assert list(look_up()) == whole
        assert bucket.asked - before <= 2 * 16
        assert str(whole[0].segment.segment_id) in caplog.text
        bucket.fails = lambda key: None  # type: ignore[method-assign]
        assert locator.cut(whole[0], 10) == [whole[0]], "all splits of a micro-batch share the count"
        locator.locate(ALL)
        assert len(locator.cut_at([(whole[0], [5])])[0]) == 2


class _WithoutListing(BaseHTTPRequestHandler):
    """Hands requests on to an S3 endpoint, and says 403 where that says 404, as S3 does without `s3:ListBucket`."""

    endpoint: str

    def do_GET(self) -> None:
        with closing(http.client.HTTPConnection(self.endpoint)) as connection:
            connection.putrequest("GET", self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            body = answer.read()
        if answer.status == 404:
            body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.send_response(403 if answer.status == 404 else answer.status)
        for name in ("Content-Type", "Content-Range"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def without_listing(stack: TieredStack) -> Iterator[str]:
    """The stack's S3 endpoint, as it is to who may not list buckets."""
    handler = type("Handler", (_WithoutListing,), {"endpoint": stack.s3_endpoint.removeprefix("http://")})
    with LocalHttp(handler) as server:
        yield server.url


def planned(stack: TieredStack, topic: str, wanted: OffsetRange, **given: str) -> list[Split]:
    named = {name.replace("__", "."): value for name, value in given.items()}
    parsed = parse_options(options(stack, topic, named), streaming=False)
    with closing(open_log_source(parsed)) as tier:
        return plan_splits({TopicPartition(topic, 0): wanted}, tier.locator, split_bytes=parsed.split_bytes)


@pytest.mark.stack
@pytest.mark.parametrize(
    "given",
    [{"remote__storage__layout": "aiven"}, {"remote__storage__uri": "s3://{bucket}/backup"}],
    ids=lambda given: "-".join(given),
)
def test_a_query_whose_settings_lead_elsewhere_fails_with_those_that_lead_to_the_segments(
    stack: TieredStack, topic: str, given: dict[str, str]
) -> None:
    end = tier_segments(stack, topic, [30, 30]) - 1
    wrong = {name: value.format(bucket=stack.bucket) for name, value in given.items()}
    setting = next(iter(given)).replace("__", r"\.")
    with pytest.raises(ConfigurationError, match=rf"set {setting}=(local|s3://{stack.bucket})"):
        planned(stack, topic, OffsetRange(0, end), **wrong)


@pytest.mark.stack
@pytest.mark.parametrize("suffix", ["index", "*"])
def test_an_object_that_is_missing_without_leave_to_list_concerns_its_segment(
    stack: TieredStack, topic: str, without_listing: str, suffix: str
) -> None:
    """The first segment is read in part, for which its offset index is needed."""
    end = tier_segments(stack, topic, [30, 30, 30]) - 1
    for path in stack.tier_dir.glob(f"{topic}-0-*/{0:020d}-*.{suffix}"):
        path.unlink()
    wanted, given = OffsetRange(5, end), {"remote__storage__s3__endpoint__url": without_listing}

    splits = planned(stack, topic, wanted, **given)
    assert [(split.offsets, bool(split.locations)) for split in splits] == [
        (OffsetRange(5, 30), False),
        (OffsetRange(30, 90), True),
    ]
    with pytest.raises(StorageAccessError, match=rf"{topic}-0-.*/{0:020d}-.*\.index"):
        planned(stack, topic, wanted, remote__fallback="fail", **given)
    with pytest.raises(StorageAccessError, match=r"remote\.storage\.aws\.secret\.access\.key"):
        planned(stack, topic, wanted, remote__storage__aws__secret__access__key="wrong", **given)

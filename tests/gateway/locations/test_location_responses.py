"""Answers to location requests; the segments are made up, and signed by nobody."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

import pytest
from prometheus_client import Counter

from tests.gateway.requests import TOPIC_ID, asked, location_fetch
from tests.storage.segment import segment
from tiered_stream.broker.wire.location_messages import decode_segments
from tiered_stream.errors import StorageUnavailableError
from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.locations import location_responses
from tiered_stream.gateway.locations.location_responses import LocationResponses
from tiered_stream.gateway.locations.signing import LocationSigner, SignedLocation
from tiered_stream.gateway.locations.tiered_segments import TieredSegments
from tiered_stream.gateway.protocol.authorization import PartitionResponse, ReadablePartition
from tiered_stream.gateway.protocol.location_requests import TopicIdPartition
from tiered_stream.locate.visible_segments import VisibleSegment, VisibleSegments
from tiered_stream.model import ByteRange, OffsetRange, RemoteLogSegment, SegmentLocation, TopicPartition
from tiered_stream.storage.fetcher import RemoteStorageFetcher

WHERE = TopicIdPartition(TOPIC_ID, 3)
REQUEST = asked(location_fetch({3: (0, 30)}, local_segments_wanted=True))
READABLE = [ReadablePartition(WHERE, 0, 30, 30)]


class Segments:
    """Three of ten offsets each. Those whose base offsets are in `failing` cannot be located."""

    def __init__(self) -> None:
        self.failing: set[int] = set()
        self.located: list[int] = []
        self.expected: list[OffsetRange] = []
        self.requests = 0
        self.bytes: ByteRange | None = None
        self.locator = self
        self.tier((0, 10, 20))

    def tier(self, bases: Iterable[int]) -> None:
        """Segments have come or gone: all are made anew, as the locator does."""
        parts = (VisibleSegment(segment(100, base), OffsetRange(base, base + 10)) for base in bases)
        self._visible = VisibleSegments.of(parts)

    def topic_names(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        return dict.fromkeys(topic_ids, "orders")

    def visible(self, topic_ids: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, Any]:
        return dict.fromkeys(topic_ids, self._visible)

    def prefetch(self, visible: Mapping[TopicPartition, Any], ranges: Mapping[TopicPartition, OffsetRange]) -> None:
        self.expected += ranges.values()

    def location(self, visible: Any, at: int, part: OffsetRange, *, committed: bool) -> SegmentLocation:
        self.located.append(part.start)
        if part.start in self.failing:
            raise StorageUnavailableError("busy")
        return SegmentLocation(visible[at].segment, part, self.bytes or ByteRange(0, 100))

    def cut(self, location: SegmentLocation, target_bytes: int) -> list[SegmentLocation]:
        """One part a `target_bytes` and offset, and a request to the storage for each."""
        count = -(-len(location.bytes) // target_bytes)
        self.requests += count
        offsets, first = location.offsets, location.bytes.start
        step = max(1, len(offsets) // count)
        edges = [*list(range(offsets.start, offsets.end, step))[:count], offsets.end]
        return [
            replace(
                location,
                offsets=OffsetRange(start, end),
                bytes=ByteRange(first + at * target_bytes, min(first + (at + 1) * target_bytes, location.bytes.end)),
            )
            for at, (start, end) in enumerate(pairwise(edges))
        ]


def answers(segments: Segments, metrics: GatewayMetrics, kept_bytes: int = 1 << 20) -> LocationResponses:
    nobody = LocationSigner(cast(RemoteStorageFetcher, None), 0, Counter("made", "", registry=None))
    return LocationResponses(cast(TieredSegments, segments), nobody, kept_bytes, metrics)


def decoded(response: PartitionResponse) -> list[SegmentLocation]:
    """The segments that a response names."""
    return decode_segments(response.segments or b"\x01", TopicPartition("orders", 3), TOPIC_ID)


def named(made: LocationResponses) -> list[int]:
    """The first offsets of the segments that an answer names; it must be complete."""
    (answer,) = made.locate(REQUEST, READABLE).values()
    assert answer.located_end == 30
    return [each.offsets.start for each in decoded(answer)]


def test_an_answer_is_kept_for_the_next_request() -> None:
    segments, metrics = Segments(), GatewayMetrics()
    made = answers(segments, metrics)
    assert named(made) == named(made) == [0, 10, 20]
    assert segments.located == [0, 10, 20]
    assert segments.expected == [OffsetRange(0, 30)], "together, before the first, and not again"
    assert metrics.registry.get_sample_value("tiered_stream_gateway_named_segments_total") == 3


def test_an_answer_with_a_hole_is_not_kept() -> None:
    segments, metrics = Segments(), GatewayMetrics()
    made = answers(segments, metrics)
    segments.failing = {10}
    assert named(made) == [0, 20]
    segments.failing.clear()
    assert named(made) == [0, 10, 20]
    assert metrics.registry.get_sample_value("tiered_stream_gateway_failed_segments_total") == 1


def test_where_nothing_can_be_located_the_client_is_sent_to_the_broker() -> None:
    segments = Segments()
    segments.failing = {0, 10, 20}
    assert named(answers(segments, GatewayMetrics())) == []


def test_an_answer_does_not_hold_when_segments_have_come() -> None:
    segments = Segments()
    made = answers(segments, GatewayMetrics())
    assert named(made) == [0, 10, 20]
    segments.tier((0, 20))
    assert named(made) == [0, 20]


def grown(ask: Callable[[], object], times: int) -> int:
    """By how many bytes the process grows from one time to another, when caches of others are warm."""
    ask()
    tracemalloc.start()
    try:
        for _ in range(times):
            ask()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_what_is_kept_stays_within_its_bytes_however_often_segments_come() -> None:
    segments, kept_bytes = Segments(), 64 << 10
    made = answers(segments, GatewayMetrics(), kept_bytes)
    starts = itertools.count(0, 10)

    def ask() -> None:
        segments.tier(range(0, 3000, 10))
        start = next(starts)
        made.locate(REQUEST, [ReadablePartition(WHERE, start, start + 10, 3000)])

    assert grown(ask, 200) < 1 << 20, "that, and one list of the segments"


def test_a_query_that_asks_for_new_offsets_again_and_again_leaves_nothing_where_nothing_is_tiered() -> None:
    made = answers(Segments(), GatewayMetrics())
    starts = itertools.count(1000, 10)

    def ask() -> None:
        start = next(starts)
        made.locate(REQUEST, [ReadablePartition(WHERE, start, start + 10, start + 10)])

    assert grown(ask, 200) < 20_000


MANY = 4_000
LARGE = 1 << 30
WITH_PARTS_OF_A_BYTE = asked(
    location_fetch({3: (0, 10 * MANY)}, local_segments_wanted=True, remote_log_segment_part_bytes=1,
                   max_remote_log_segments=(1 << 31) - 1)
)  # fmt: skip


def test_an_answer_names_no_more_and_asks_no_more_of_the_storage_than_it_may_and_its_rest_can_be_asked_for() -> None:
    """Parts of one byte of a thousand large segments: an answer used to name 150,000, by as many requests."""
    segments = Segments()
    segments._visible = VisibleSegments.of(
        VisibleSegment(replace(segment(LARGE, base), end_offset=base + 99_999), OffsetRange(base, base + 100_000))
        for base in range(0, 1_000_000, 100_000)
    )
    segments.bytes = ByteRange(0, LARGE)
    made = answers(segments, GatewayMetrics())
    (answer,) = made.locate(WITH_PARTS_OF_A_BYTE, [ReadablePartition(WHERE, 0, 1_000_000, 1_000_000)]).values()
    named = decoded(answer)
    assert len(named) <= 1_000 + 64 and segments.requests < 2_000
    assert named[0].offsets.start == 0 and named[-1].offsets.end == answer.located_end < 1_000_000
    assert all(before.offsets.end == after.offsets.start for before, after in pairwise(named))
    (rest,) = made.locate(
        WITH_PARTS_OF_A_BYTE, [ReadablePartition(WHERE, answer.located_end, 1_000_000, 1_000_000)]
    ).values()
    assert decoded(rest)[0].offsets.start == answer.located_end


def test_an_answer_ends_where_its_bytes_do() -> None:
    segments = Segments()
    segments.tier(range(0, 10 * MANY, 10))
    made, metrics = answers(segments, GatewayMetrics()), [ReadablePartition(WHERE, 0, 10 * MANY, 10 * MANY)]
    request = asked(location_fetch({3: (0, 10 * MANY)}, local_segments_wanted=True, max_remote_log_segments=MANY))
    (whole,) = made.locate(request, metrics).values()
    assert whole.located_end == 10 * MANY and len(whole.segments or b"") > 100_000
    for max_bytes in (1, 50_000):  # though the whole answer is kept
        (answer,) = made.locate(request, metrics, max_bytes).values()
        assert answer.segments and 0 < len(answer.segments) < 60_000
        assert 0 < answer.located_end < 10 * MANY


def test_a_long_answer_ends_when_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location_responses, "_TURN_SECONDS", 0)
    segments = Segments()
    made = answers(segments, GatewayMetrics())
    (answer,) = made.locate(REQUEST, READABLE, others_wait=lambda: True).values()
    assert answer.located_end == 10, "something is named in any case"
    assert named(made) == [0, 10, 20]


class Signer:
    """Signs for ten seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def sign(self, of: RemoteLogSegment) -> SignedLocation:
        return SignedLocation(f"https://storage/{self._clock() // 10 * 10}", self._clock() // 10 * 10 + 10)


def test_a_response_is_given_out_as_long_as_each_of_its_locations_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(location_responses.time, "monotonic", lambda: now[0])
    signer = cast(LocationSigner, Signer(lambda: now[0]))
    responses = LocationResponses(cast(TieredSegments, Segments()), signer, 1 << 20, GatewayMetrics())
    for second in range(100):
        now[0] = second * 0.9
        urls = {each.signed_url for each in decoded(responses.locate(REQUEST, READABLE)[WHERE])}
        assert urls == {f"https://storage/{now[0] // 10 * 10}"}

"""Answers to location requests; the segments are made up, and signed by nobody."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast
from uuid import UUID

from prometheus_client import Counter

from tests.gateway.requests import TOPIC_ID, asked, location_fetch
from tests.storage.segment import segment
from tiered_stream.broker.location_messages import decode_segments
from tiered_stream.errors import StorageUnavailableError
from tiered_stream.gateway.authorization import ReadablePartition
from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.gateway.location_answers import LocationAnswers
from tiered_stream.gateway.location_requests import TopicIdIndex
from tiered_stream.gateway.signing import LocationSigner
from tiered_stream.gateway.tiered_segments import TieredSegments
from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.model import ByteRange, OffsetRange, SegmentLocation, TopicPartition
from tiered_stream.storage.fetcher import RemoteStorageFetcher

WHERE = TopicIdIndex(TOPIC_ID, 3)
REQUEST = asked(location_fetch({3: (0, 30)}, local_segments_wanted=True))
READABLE = [ReadablePartition(WHERE, 0, 30, 30)]


class Segments:
    """Three of ten offsets each. Those whose base offsets are in `failing` cannot be located."""

    def __init__(self) -> None:
        self.failing: set[int] = set()
        self.located: list[int] = []
        self._visible = [VisibleSegment(segment(100, base), OffsetRange(base, base + 10)) for base in (0, 10, 20)]

    def topic_names(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        return dict.fromkeys(topic_ids, "orders")

    def visible(self, topic_ids: Mapping[TopicPartition, UUID]) -> dict[TopicPartition, Any]:
        return dict.fromkeys(topic_ids, self._visible)

    def location(self, visible: Any, at: int, part: OffsetRange, topic_id: UUID, committed: bool) -> SegmentLocation:
        self.located.append(part.start)
        if part.start in self.failing:
            raise StorageUnavailableError("busy")
        return SegmentLocation(visible[at].segment, part, ByteRange(0, 100))


def answers(segments: Segments, metrics: GatewayMetrics) -> LocationAnswers:
    nobody = LocationSigner(cast(RemoteStorageFetcher, None), 0, Counter("made", "", registry=None))
    return LocationAnswers(cast(TieredSegments, segments), nobody, 1 << 20, metrics)


def named(made: LocationAnswers) -> list[int]:
    """The first offsets of the segments that an answer names; it must be complete."""
    (answer,) = made.answer(REQUEST, READABLE).values()
    assert answer.located_end == 30
    return [each.start_offset for each in decode_segments(answer.segments or b"\x01")]


def test_an_answer_is_kept_for_the_next_request() -> None:
    segments, metrics = Segments(), GatewayMetrics()
    made = answers(segments, metrics)
    assert named(made) == named(made) == [0, 10, 20]
    assert segments.located == [0, 10, 20]
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

"""Segment locations for responses, encoded, and cached as long as they are valid."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from cachetools import TTLCache

from tiered_stream.broker.wire.location_messages import (
    RemoteLogSegmentLocation,
    encode_segments,
)
from tiered_stream.errors import BrokerError, TieredStreamError
from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.gateway.locations.signing import LocationSigner
from tiered_stream.gateway.locations.tiered_segments import TieredSegments
from tiered_stream.gateway.locations.turns import TURN_SECONDS
from tiered_stream.gateway.protocol.authorization import PartitionAnswer, ReadablePartition
from tiered_stream.gateway.protocol.location_requests import LocationRequest, TopicIdIndex
from tiered_stream.locate.lineage import VisibleSegment
from tiered_stream.locate.segment_metadata_locator import Visible, overlapping
from tiered_stream.model import STORAGE_FORMAT, ByteRange, OffsetRange, SegmentLocation, TopicPartition
from tiered_stream.process.heap_and_gc import collection_paused

log = logging.getLogger(__name__)

LARGEST_ANSWER = 100_000
"""Maximum number of segment locations in one response."""

LARGEST_ANSWER_BYTES = 64 << 20
"""Maximum size of the encoded segment locations in one response."""

_MOST_REQUESTS = 1_000  # storage requests that one response may cost
_CUT_TOGETHER = 64  # parts that are cut off a segment before the budget is checked again
_COARSE_PARTS = 8  # a large segment is first cut into about this many parts, and only the first of them is cut further
_ENTRY_BYTES = 160  # bytes of an encoded segment location without its fields of variable length
_EPOCH_BYTES, _TRANSACTION_BYTES = 13, 25
_ANSWER_SECONDS = 10.0  # after this time the response ends, and the client asks again for the rest
_NOWHERE = -1  # earliest local offset of a leader that has nothing of the log on its own disk
_KEPT_BYTES = 800  # memory of a cached response without its encoded segments, as measured
_CUT_AT = 1.5  # times the wanted part size: smaller segments are left whole


@dataclass(frozen=True, slots=True)
class _Kept:
    """Cached response for a partition, with the number of its segments and a mark of its validity.

    `newest` is the partition's last visible segment. All visible segments become new objects when one of them changes,
    so the same object means that the response is still valid. Each response would keep an old list of the partition's
    segments alive if it referred to all of them.
    """

    newest: VisibleSegment
    answer: PartitionAnswer
    count: int

    def fits(self, visible: Visible, budget: _Budget) -> bool:
        if not visible or visible[-1] is not self.newest:
            return False
        return self.count <= budget.segments and len(self.answer.segments or b"") <= budget.bytes


@dataclass(slots=True)
class _Budget:
    """Limits that are left for a response: segments, their encoded bytes, storage requests, and time.

    A part of a segment counts as a storage request. A response always has at least one segment, so that a client that
    keeps asking for the rest makes progress.
    """

    segments: int
    bytes: int
    others_wait: Callable[[], bool]
    requests: int = _MOST_REQUESTS
    began: float = field(default_factory=time.monotonic)
    begun: bool = False

    def is_spent(self) -> bool:
        """Return whether the response must end here."""
        if not self.begun:
            return False
        if min(self.segments, self.bytes, self.requests) <= 0:
            return True
        seconds = time.monotonic() - self.began
        return seconds > _ANSWER_SECONDS or (seconds > TURN_SECONDS and self.others_wait())

    def spend(self, entries: Sequence[RemoteLogSegmentLocation], requests: int) -> None:
        """Subtract segment locations that were added to the response, and the storage requests that they cost."""
        self.begun = True
        self.segments -= len(entries)
        self.bytes -= sum(map(_entry_bytes, entries))
        self.requests -= requests


@dataclass(slots=True)
class _Named:
    """Segment locations found so far for one partition's response."""

    segments: list[RemoteLogSegmentLocation] = field(default_factory=list)
    located_end: int = 0
    complete: bool = True
    holes: bool = False
    """True if a segment in between could not be located. The response is not cached, so that the next request tries."""


class LocationAnswers:
    """Maker and cache of responses with segment locations. Thread-safe.

    Args:
        kept_bytes: maximum memory of the cached responses.
        requests_made: returns how many storage requests the calling thread has made.
    """

    def __init__(
        self,
        segments: TieredSegments,
        signer: LocationSigner,
        kept_bytes: int,
        metrics: GatewayMetrics,
        requests_made: Callable[[], int] = lambda: 0,
    ) -> None:
        self._segments = segments
        self._signer = signer
        self._requests_made = requests_made
        self._lock = threading.Lock()
        lifetime = signer.fresh_seconds if signer.enabled else float("inf")
        self._kept: TTLCache[tuple[object, ...], _Kept] = TTLCache(kept_bytes, lifetime, time.monotonic, _cost)
        self._metrics = metrics

    def log_ends(self, partitions: Collection[TopicIdIndex]) -> dict[TopicIdIndex, int]:
        """Return the current end offsets of the partitions that exist and whose leaders answer.

        The gateway asks the brokers with its own login, so callers pass only topics that the client may read.

        Raises:
            BrokerError: the brokers cannot be asked.
        """
        named = self._segments.existing(self._named(partitions))
        ends = self._segments.log_ends(list(named.values()))
        return {where: ends[partition] for where, partition in named.items() if partition in ends}

    def answer(
        self,
        request: LocationRequest,
        readable: Collection[ReadablePartition],
        most_bytes: int = LARGEST_ANSWER_BYTES,
        others_wait: Callable[[], bool] = lambda: False,
    ) -> dict[TopicIdIndex, PartitionAnswer]:
        """Return the segment locations of the partitions that the client may read, with the offset where they end.

        Args:
            most_bytes: maximum bytes of encoded segments in the response.
            others_wait: returns whether other clients wait for their turn; the response is then kept short.

        Raises:
            BrokerError: the brokers cannot be asked.
        """
        named = self._named([each.partition for each in readable])
        topic_ids = {partition: where.topic_id for where, partition in named.items()}
        visible = self._segments.visible(topic_ids)
        starts = {} if request.local_too else self._segments.local_starts(list(named.values()))
        budget = _Budget(min(request.max_segments, LARGEST_ANSWER), min(most_bytes, LARGEST_ANSWER_BYTES), others_wait)
        asked: dict[TopicPartition, tuple[ReadablePartition, OffsetRange]] = {}
        for each in readable:
            partition = named.get(each.partition)
            if partition is None or partition not in visible:
                continue
            if not request.local_too and partition not in starts:
                continue
            asked[partition] = each, _tiered(each, visible[partition], starts.get(partition, _NOWHERE))
        if request.committed and not request.offsets_only:
            self._segments.expect(visible, self._new(request, visible, asked, budget))
        answers: dict[TopicIdIndex, PartitionAnswer] = {}
        with collection_paused():  # not earlier: garbage of other threads is collected while brokers are asked
            for partition, (each, wanted) in asked.items():
                answers[each.partition] = self._partition(request, visible[partition], wanted, each, budget)
        return answers

    def _new(
        self,
        request: LocationRequest,
        visible: Mapping[TopicPartition, Visible],
        asked: Mapping[TopicPartition, tuple[ReadablePartition, OffsetRange]],
        budget: _Budget,
    ) -> dict[TopicPartition, OffsetRange]:
        """Return the offset ranges of the requested partitions that have no valid cached response."""
        return {
            partition: wanted
            for partition, (each, wanted) in asked.items()
            if len(wanted) and self._kept_of(_key(request, wanted, each), visible[partition], budget) is None
        }

    def _kept_of(self, key: tuple[object, ...], visible: Visible, budget: _Budget) -> _Kept | None:
        with self._lock:
            kept = self._kept.get(key)
        return kept if kept is not None and kept.fits(visible, budget) else None

    def _named(self, partitions: Collection[TopicIdIndex]) -> dict[TopicIdIndex, TopicPartition]:
        names = self._segments.topic_names({each.topic_id for each in partitions})
        return {
            each: TopicPartition(names[each.topic_id], each.partition) for each in partitions if each.topic_id in names
        }

    def _partition(
        self, request: LocationRequest, visible: Visible, wanted: OffsetRange, each: ReadablePartition, budget: _Budget
    ) -> PartitionAnswer:
        key = _key(request, wanted, each)
        if kept := self._kept_of(key, visible, budget):
            budget.begun = True
            budget.segments -= kept.count
            budget.bytes -= len(kept.answer.segments or b"")
            return kept.answer
        named = self._name(request, visible, wanted, each, budget)
        located_end = named.located_end if not named.complete else max(each.end, wanted.start)
        answer = PartitionAnswer(encode_segments(named.segments) if named.segments else None, located_end)
        count = len(named.segments)
        self._metrics.segments.inc(count)
        if count and named.complete and not named.holes:
            with self._lock, suppress(ValueError):  # raised for a response that is larger than the whole cache
                self._kept[key] = _Kept(visible[-1], answer, count)
        return answer

    def _name(
        self, request: LocationRequest, visible: Visible, wanted: OffsetRange, each: ReadablePartition, budget: _Budget
    ) -> _Named:
        named = _Named()
        for at in overlapping(visible, wanted):
            part = wanted.intersect(visible[at].offsets)
            try:
                position = self._name_segment(request, visible, at, part, each.partition.topic_id, budget, named)
            except TieredStreamError as error:  # the client reads this segment's offsets from the broker
                named.holes = True
                self._metrics.failed_segments.inc()
                log.warning("no location for %s of %s: %s", part, visible[at].segment.topic_partition, error)
                if isinstance(error, BrokerError):  # later segments would fail on the same broker's answer
                    break
                continue
            if position < part.end:
                named.complete, named.located_end = False, position if named.segments else wanted.start
                break
        return named

    def _name_segment(
        self,
        request: LocationRequest,
        visible: Visible,
        at: int,
        part: OffsetRange,
        topic_id: UUID,
        budget: _Budget,
        named: _Named,
    ) -> int:
        """Add one segment's locations to `named` until the budget is spent; return the offset where they end."""
        position = part.start
        while position < part.end and not budget.is_spent():
            entries: list[RemoteLogSegmentLocation] = []
            before = self._requests_made()
            rest = OffsetRange(position, part.end)
            try:
                entries = self._entries(request, visible, at, rest, topic_id, budget)
            finally:
                # An additional part costs no storage request, but work, so it counts as a request.
                budget.spend(entries, self._requests_made() - before + max(0, len(entries) - 1))
            named.segments += entries
            position = entries[-1].end_offset
        return position

    def _entries(
        self, request: LocationRequest, visible: Visible, at: int, part: OffsetRange, topic_id: UUID, budget: _Budget
    ) -> list[RemoteLogSegmentLocation]:
        """Return locations for the beginning of `part` of a segment: one, or several if the client wants it cut."""
        segment = visible[at].segment
        if request.offsets_only:
            return [_entry(SegmentLocation(segment, part, ByteRange(0, 0)), None)]
        location = self._segments.location(visible, at, part, topic_id, request.committed)
        url = self._signer.sign(location.segment)
        if request.part_bytes and len(location.bytes) > _CUT_AT * request.part_bytes:
            return [_entry(each, url) for each in self._cut(location, request.part_bytes, budget)]
        return [_entry(location, url)]

    def _cut(self, location: SegmentLocation, part_bytes: int, budget: _Budget) -> Sequence[SegmentLocation]:
        """Cut the first parts of about `part_bytes` off a location: only a few, to limit the work for one response."""
        most = max(1, min(_CUT_TOGETHER, budget.segments, budget.requests))
        together = most * part_bytes
        while len(location.bytes) > _CUT_AT * together:
            coarse = self._segments.cut(location, max(together, len(location.bytes) // _COARSE_PARTS))
            budget.requests -= len(coarse) - 1
            if len(coarse) == 1:  # the offset index has no place to cut at
                break
            location = coarse[0]
        return self._segments.cut(location, part_bytes)[:most]


def _entry_bytes(entry: RemoteLogSegmentLocation) -> int:
    """Return an upper estimate of the encoded size of a segment location, in bytes."""
    texts = (entry.remote_log_segment_custom_metadata, entry.signed_remote_log_segment_location)
    lists = _EPOCH_BYTES * len(entry.leader_epochs) + _TRANSACTION_BYTES * len(entry.aborted_transactions)
    return _ENTRY_BYTES + sum(len(text) for text in texts if text) + lists


def _tiered(each: ReadablePartition, visible: Visible, local_start: int) -> OffsetRange:
    """Return the requested offsets that are tiered and inside the log, and not on the leader's own disk.

    Args:
        local_start: first offset on the leader's own disk; -1: leave out no offset because of the disk.
    """
    ends = [each.end, each.log_end_offset, visible[-1].offsets.end if visible else 0]
    end = min(ends if local_start == _NOWHERE else [*ends, local_start])
    return OffsetRange(each.start, max(each.start, end))


def _key(request: LocationRequest, wanted: OffsetRange, each: ReadablePartition) -> tuple[object, ...]:
    """Return the cache key of a partition's response: everything that it depends on except the segments."""
    return (
        each.partition, wanted.start, wanted.end, each.end,
        request.committed, request.part_bytes, request.offsets_only,
    )  # fmt: skip


def _cost(kept: _Kept) -> int:
    return _KEPT_BYTES + len(kept.answer.segments or b"")


def _entry(location: SegmentLocation, url: str | None) -> RemoteLogSegmentLocation:
    segment = location.segment
    return RemoteLogSegmentLocation(
        remote_log_segment_id=segment.segment_id,
        remote_log_segment_custom_metadata=segment.custom_metadata,
        signed_remote_log_segment_location=url,
        storage_format_version=STORAGE_FORMAT,
        base_offset=segment.base_offset,
        last_offset=segment.end_offset,
        size_in_bytes=segment.size,
        start_offset=location.offsets.start,
        end_offset=location.offsets.end,
        start_position=location.bytes.start,
        end_position=location.bytes.end,
        following_offset_min=location.following[0] if location.following else -1,
        following_offset_max=location.following[1] if location.following else -1,
        leader_epochs=segment.leader_epochs,
        aborted_transactions=location.aborted_transactions,
    )

"""Builder of the encoded segment locations in a response, with a cache for each partition's locations."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf

from cachetools import TLRUCache

from tiered_stream.broker.wire.location_messages import encode_segment
from tiered_stream.errors import BrokerError, TieredStreamError
from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.locations.signing import LocationSigner
from tiered_stream.gateway.locations.tiered_segments import TieredSegments
from tiered_stream.gateway.protocol.authorization import PartitionResponse, ReadablePartition
from tiered_stream.gateway.protocol.location_requests import LocationRequest, TopicIdPartition
from tiered_stream.locate.segment_metadata_locator import overlapping
from tiered_stream.locate.visible_segments import VisibleSegment, VisibleSegments
from tiered_stream.model import ByteRange, OffsetRange, SegmentLocation, TopicPartition
from tiered_stream.process.heap_and_gc import collection_paused
from tiered_stream.records.flexible_versions import compact_array

log = logging.getLogger(__name__)

MAX_SEGMENTS = 100_000
"""Maximum number of segment locations in one response."""

MAX_RESPONSE_BYTES = 64 << 20
"""Maximum number of bytes of the encoded segment locations in one response."""

_MAX_REQUESTS = 1_000  # storage requests that one response may cost
_PARTS_AT_ONCE = 64  # parts that are cut off a segment before the budget is checked again
_COARSE_PARTS = 8  # a large segment is first cut into about this many parts, and only the first part is cut again
_MAX_SECONDS = 10.0  # after this time the response ends, and the client asks again for the rest
_TURN_SECONDS = 0.05  # after this time the response ends if other clients wait
_NOT_LOCAL = -1  # earliest local offset of a leader that has nothing of the log on its own disk
_CACHED_RESPONSE_BYTES = 800  # memory of a cached response without its encoded segments, as measured
_CUT_ABOVE = 1.5  # times the wanted part size: smaller segments are left whole


@dataclass(frozen=True, slots=True)
class _CachedResponse:
    """Cached response for one partition. `count` is the number of segment locations in the response.

    The response is valid until `fresh_until` (`time.monotonic`), when one of its URLs must be signed again.

    `newest` is the partition's last visible segment when the response was made. If any visible segment changes, all
    visible segments become new objects. So the response is valid as long as the last visible segment is the same
    object. A reference to all segments would keep old lists of segments in memory.
    """

    newest: VisibleSegment
    response: PartitionResponse
    count: int
    fresh_until: float

    def fits(self, tiered: _TieredRange) -> bool:
        """Return whether the response is valid for the visible segments of `tiered`, and within its budget's limits."""
        if not tiered.visible or tiered.visible[-1] is not self.newest:
            return False
        return self.count <= tiered.budget.segments and len(self.response.segments or b"") <= tiered.budget.bytes


@dataclass(slots=True)
class _Budget:
    """Remaining limits of one response: segment locations, their encoded bytes, storage requests, and seconds.

    If a segment is cut, each part after the first counts as a storage request. The response ends after 10 s, or after
    50 ms if `others_wait` returns True. No limit applies before the first `spend`, so that each response has a segment,
    and a client that repeats its request makes progress.
    """

    segments: int
    bytes: int
    others_wait: Callable[[], bool]
    requests: int = _MAX_REQUESTS
    began: float = field(default_factory=time.monotonic)
    begun: bool = False

    def is_spent(self) -> bool:
        """Return whether a limit is reached, so that the response must end; False before the first `spend`."""
        if not self.begun:
            return False
        if min(self.segments, self.bytes, self.requests) <= 0:
            return True
        seconds = time.monotonic() - self.began
        return seconds > _MAX_SECONDS or (seconds > _TURN_SECONDS and self.others_wait())

    def spend(self, segments: int, size: int, requests: int = 0) -> None:
        """Subtract the `segments` (a number) added to the response, their encoded `size`, and storage `requests`."""
        self.begun = True
        self.segments -= segments
        self.bytes -= size
        self.requests -= requests


@dataclass(frozen=True, slots=True)
class _TieredRange:
    """Requested offsets of one readable partition that are tiered, and the partition's visible segments.

    `request` and `budget` are the same for all partitions of a response.
    """

    request: LocationRequest
    budget: _Budget
    readable: ReadablePartition
    offsets: OffsetRange
    visible: VisibleSegments

    @property
    def cache_key(self) -> tuple[object, ...]:
        """Key of the partition's response in the cache: all values on which it depends, except the segments."""
        return (
            self.readable.partition, self.offsets.start, self.offsets.end, self.readable.end,
            self.request.committed, self.request.part_bytes, self.request.message.offsets_only,
        )  # fmt: skip


@dataclass(slots=True)
class _Located:
    """Encoded segment locations for one partition's response, and whether the response is complete.

    `end` is the offset before which an incomplete response ends, because the budget is spent. It is None if the budget
    sufficed. `has_holes` is True if a segment in the range could not be located because of an error. A response with
    `end` or with holes is not cached, so that the next request tries again. `fresh_until` is the earliest time at which
    a URL is signed again.
    """

    segments: list[bytes] = field(default_factory=list)
    end: int | None = None
    has_holes: bool = False
    fresh_until: float = inf


class LocationResponses:
    """Builder and cache of partitions' responses with segment locations. Thread-safe.

    Args:
        segments: looks up the segments, and the bytes of a segment that hold given offsets.
        signer: signs the segments' URLs.
        cache_bytes: maximum memory of the cached responses.
        metrics: counts located segments and failures.
        requests_made: returns how many storage requests the calling thread has made so far.
    """

    def __init__(
        self,
        segments: TieredSegments,
        signer: LocationSigner,
        cache_bytes: int,
        metrics: GatewayMetrics,
        requests_made: Callable[[], int] = lambda: 0,
    ) -> None:
        self._segments = segments
        self._locator = segments.locator
        self._signer = signer
        self._requests_made = requests_made
        self._lock = threading.Lock()
        self._cache: TLRUCache[tuple[object, ...], _CachedResponse] = TLRUCache(
            cache_bytes, lambda _, cached, __: cached.fresh_until, time.monotonic, _cached_bytes
        )
        self._metrics = metrics

    def log_ends(self, partitions: Collection[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        """Return the high watermark by partition, without partitions that do not exist or whose leaders do not respond.

        The gateway asks the brokers with its own login, so callers pass only partitions that the client may READ.

        Raises:
            BrokerError: the brokers cannot be asked.
        """
        topic_partitions = self._topic_partitions(partitions)
        ends = self._segments.log_ends(list(topic_partitions.values()))
        return {by_id: ends[partition] for by_id, partition in topic_partitions.items() if partition in ends}

    def locate(
        self,
        request: LocationRequest,
        readable: Collection[ReadablePartition],
        max_bytes: int = MAX_RESPONSE_BYTES,
        others_wait: Callable[[], bool] = lambda: False,
    ) -> dict[TopicIdPartition, PartitionResponse]:
        """Return the response for each readable partition: its segment locations, and the offset where they end.

        A partition is left out if it does not exist, its segments cannot be looked up, or its leader does not respond.

        Args:
            readable: the partitions that the client may read.
            max_bytes: number of encoded bytes after which no more segments are added, for all partitions together.
            others_wait: returns whether other clients wait for their turn; the response then ends after 50 ms.

        Raises:
            BrokerError: the brokers cannot be asked.
        """
        partitions = self._topic_partitions([partition.partition for partition in readable])
        visible = self._segments.visible({partition: by_id.topic_id for by_id, partition in partitions.items()})
        local_starts = dict.fromkeys(partitions.values(), _NOT_LOCAL)
        if not request.message.local_segments_wanted:
            local_starts = self._segments.local_starts(list(partitions.values()))
        budget = _Budget(min(request.max_segments, MAX_SEGMENTS), max_bytes, others_wait)
        ranges: dict[TopicPartition, _TieredRange] = {}
        for readable_partition in readable:
            partition = partitions.get(readable_partition.partition)
            if partition in visible and partition in local_starts:
                offsets = _tiered_offsets(readable_partition, visible[partition], local_starts[partition])
                ranges[partition] = _TieredRange(request, budget, readable_partition, offsets, visible[partition])
        if request.committed and not request.message.offsets_only:
            uncached = {
                partition: tiered.offsets
                for partition, tiered in ranges.items()
                if len(tiered.offsets) and self._cached(tiered) is None
            }
            self._locator.prefetch(visible, uncached)
        with collection_paused():  # only here, so that garbage is collected while brokers are asked
            return {tiered.readable.partition: self._partition(tiered) for tiered in ranges.values()}

    def _cached(self, tiered: _TieredRange) -> _CachedResponse | None:
        """Return the cached response for the partition in `tiered`; None: no valid response is within the budget."""
        with self._lock:
            cached = self._cache.get(tiered.cache_key)
        return cached if cached is not None and cached.fits(tiered) else None

    def _topic_partitions(self, partitions: Collection[TopicIdPartition]) -> dict[TopicIdPartition, TopicPartition]:
        """Return each partition with its topic's name, by the partition with its topic's id.

        Partitions whose topic does not exist are left out.
        """
        names = self._segments.topic_names({partition.topic_id for partition in partitions})
        return {
            by_id: TopicPartition(names[by_id.topic_id], by_id.partition)
            for by_id in partitions
            if by_id.topic_id in names
        }

    def _partition(self, tiered: _TieredRange) -> PartitionResponse:
        """Return the response for the partition and offsets in `tiered`, from the cache or newly built.

        A new response ends where the budget is spent. It is cached if it is complete.
        """
        if cached := self._cached(tiered):
            tiered.budget.spend(cached.count, len(cached.response.segments or b""))
            return cached.response
        located = self._locate(tiered)
        end = max(tiered.readable.end, tiered.offsets.start) if located.end is None else located.end
        response = PartitionResponse(compact_array(located.segments) if located.segments else None, end)
        count = len(located.segments)
        self._metrics.segments.inc(count)
        if count and located.end is None and not located.has_holes:
            with self._lock, suppress(ValueError):  # raised for a response that is larger than the whole cache
                cached = _CachedResponse(tiered.visible[-1], response, count, located.fresh_until)
                self._cache[tiered.cache_key] = cached
        return response

    def _locate(self, tiered: _TieredRange) -> _Located:
        """Locate the offsets of `tiered`, one segment after the other, until the budget is spent.

        If a segment has an error, the error is logged, and the segment is left out. After a BrokerError, all later
        segments are left out, too.
        """
        located = _Located()
        for at in overlapping(tiered.visible, tiered.offsets):
            part = tiered.offsets.intersect(tiered.visible[at].offsets)
            try:
                position = self._locate_part(tiered, at, part, located)
            except TieredStreamError as error:  # the client reads this segment's offsets from the broker
                located.has_holes = True
                self._metrics.failed_segments.inc()
                log.warning("no location for %s of %s: %s", part, tiered.visible[at].segment.topic_partition, error)
                if isinstance(error, BrokerError):  # the next segments would fail with the same error
                    break
                continue
            if position < part.end:
                located.end = position if located.segments else tiered.offsets.start
                break
        return located

    def _locate_part(self, tiered: _TieredRange, at: int, part: OffsetRange, located: _Located) -> int:
        """Append locations of the offsets `part`, which lie in the segment `tiered.visible[at]`, to `located`.

        Return the offset (exclusive) where the locations end. This offset is below the end of `part` if the budget is
        spent earlier.
        """
        position = part.start
        while position < part.end and not tiered.budget.is_spent():
            encoded: list[bytes] = []
            before = self._requests_made()
            try:
                parts = self._parts(tiered, at, OffsetRange(position, part.end), located)
                encoded = list(map(encode_segment, parts))
            finally:
                # Each part after the first costs no storage request, but CPU time, so it counts as a request.
                requests = self._requests_made() - before + max(0, len(encoded) - 1)
                tiered.budget.spend(len(encoded), sum(map(len, encoded)), requests)
            located.segments += encoded
            position = parts[-1].offsets.end
        return position

    def _parts(self, tiered: _TieredRange, at: int, part: OffsetRange, located: _Located) -> Sequence[SegmentLocation]:
        """Return the location of the offsets `part`, or several locations that cover all or the first of them.

        `part` lies in the segment `tiered.visible[at]`. There are several locations if the request has `part_bytes`,
        and the bytes of `part` are more than 1.5 times `part_bytes`. If the request asks for offsets only, the location
        has no bytes and no URL. `located.fresh_until` is reduced to the time at which the URL must be signed again.
        """
        request = tiered.request
        if request.message.offsets_only:
            return [SegmentLocation(tiered.visible[at].segment, part, ByteRange(0, 0))]
        location = self._locator.location(tiered.visible, at, part, committed=request.committed)
        signed = self._signer.sign(location.segment)
        located.fresh_until = min(located.fresh_until, signed.fresh_until)
        if signed.url is not None:
            location = replace(location, signed_url=signed.url)
        if request.part_bytes and len(location.bytes) > _CUT_ABOVE * request.part_bytes:
            return self._cut(location, request.part_bytes, tiered.budget)
        return [location]

    def _cut(self, location: SegmentLocation, part_bytes: int, budget: _Budget) -> Sequence[SegmentLocation]:
        """Cut a location into parts of about `part_bytes` each, and return as many first parts as the budget allows.

        The number of parts is at least 1 and at most 64.
        """
        limit = max(1, min(_PARTS_AT_ONCE, budget.segments, budget.requests))
        while len(location.bytes) > _CUT_ABOVE * limit * part_bytes:
            coarse = self._locator.cut(location, max(limit * part_bytes, len(location.bytes) // _COARSE_PARTS))
            budget.requests -= len(coarse) - 1
            if len(coarse) == 1:  # the offset index has no offset to cut at
                break
            location = coarse[0]
        return self._locator.cut(location, part_bytes)[:limit]


def _tiered_offsets(readable: ReadablePartition, visible: VisibleSegments, local_start: int) -> OffsetRange:
    """Return the requested offsets that are tiered, inside the log, and not on the leader's own disk.

    The range is empty if there are no such offsets.

    Args:
        local_start: first offset on the leader's own disk. If it is -1, no offset is left out because of the disk.
    """
    end = min(readable.end, readable.log_end_offset, visible[-1].offsets.end if visible else 0)
    if local_start != _NOT_LOCAL:
        end = min(end, local_start)
    return OffsetRange(readable.start, max(readable.start, end))


def _cached_bytes(cached: _CachedResponse) -> int:
    return _CACHED_RESPONSE_BYTES + len(cached.response.segments or b"")

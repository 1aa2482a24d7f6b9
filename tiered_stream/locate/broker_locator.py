"""Locator by KIP-1248: the broker that leads a partition reports where the partition's segments are in the storage."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.location_fetch import LocationTerms, locate_segments
from tiered_stream.broker.wire.location_messages import LocatedPartition, decode_segments
from tiered_stream.errors import CorruptDataError
from tiered_stream.locate.locator import Locator, SegmentFilter, SegmentShare, every_segment
from tiered_stream.locate.visible_segments import VisibleSegment, VisibleSegments
from tiered_stream.model import (
    ByteRange,
    OffsetRange,
    PartitionLocations,
    PartitionRanges,
    SegmentLocation,
    TopicPartition,
)
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.process.heap_and_gc import collection_paused

log = logging.getLogger(__name__)

_MAX_ROUNDS = 10_000
"""Maximum number of rounds of location requests for one call of `BrokerLocator._request`.

A response may locate only the beginning of an offset range. The next round then requests the rest of the range.
"""

T = TypeVar("T")

Locations = tuple[SegmentLocation, ...]


class BrokerLocator(Locator):
    """Locator that takes segments, byte ranges and aborted transactions from the responses of the partitions' leaders.

    If a topic was deleted and created again, the segments of the new topic are located. `close` does not close the
    client.

    Args:
        part_bytes: approximate size in bytes of the parts into which brokers cut larger segments.
        local_too: also locate segments that the brokers still have on their own disks.
        signed_only: return only locations with a signed URL, so that brokers serve all other offsets.
        falls_back: if a leader fails with a retriable error, return for its partitions only the locations that earlier
            responses named. The other offsets are then read from the brokers. If false, the error is raised.
    """

    name = "broker"

    def __init__(
        self,
        client: BrokerClient,
        isolation: IsolationLevel,
        *,
        part_bytes: int,
        local_too: bool = True,
        signed_only: bool = False,
        falls_back: bool = False,
    ) -> None:
        self._client = client
        self._falls_back = falls_back
        # As long as one whole request may take, because a response that names very many segments takes long.
        self._patience_ms = client.config.request_timeout_ms if falls_back else None
        self._terms = LocationTerms(isolation, local_too, part_bytes)
        self._offsets_terms = LocationTerms(isolation, local_too, offsets_only=True)
        self._signed_only = signed_only
        self._known: dict[tuple[TopicPartition, LocationTerms], tuple[bytes, UUID, Locations]] = {}
        self._warned = False

    @collection_paused()
    def find_locations(self, ranges: PartitionRanges, needed: SegmentFilter = every_segment) -> PartitionLocations:
        located = self._request(ranges, self._terms)
        if not self._signed_only:
            return located
        signed = {
            partition: tuple(location for location in locations if location.signed_url)
            for partition, locations in located.items()
        }
        if not self._warned and sum(map(len, signed.values())) < sum(map(len, located.values())):
            self._warned = True
            log.warning(
                "segments are read through the brokers: their locations are not signed, and no remote.storage.uri or "
                "kafka.remote.storage.fetcher.class says how to read them"
            )
        return signed

    def segments(self, ranges: PartitionRanges) -> dict[TopicPartition, VisibleSegments]:
        return {
            partition: VisibleSegments.of(VisibleSegment(each.segment, each.offsets) for each in locations)
            for partition, locations in self._request(ranges, self._offsets_terms).items()
        }

    def ends_inside(self, shares: Mapping[TopicPartition, SegmentShare]) -> dict[TopicPartition, int]:
        """Return by partition an end offset (exclusive): about `SegmentShare.bytes` bytes of its segment lie before it.

        See `Locator.ends_inside`. A returned offset is an offset at which a broker has cut the segment. Partitions with
        similar numbers of bytes are requested together. The brokers cut the segments into parts of a quarter of the
        smallest number of bytes in a request. A partition is left out of the result if the response has no part of its
        segment.
        """
        ends = {}
        for similar in _by_similar_size([(partition, share.bytes) for partition, share in shares.items()]):
            part_bytes = max(1, min(size for _, size in similar) // 4)
            ranges = {partition: shares[partition].offsets for partition, _ in similar}
            located = self._request(ranges, replace(self._terms, part_bytes=part_bytes))
            for partition, size in similar:
                segment_id = shares[partition].segment.segment_id
                parts = [part for part in located[partition] if part.segment.segment_id == segment_id]
                fitting = [part for part in parts if part.bytes.end - parts[0].bytes.start <= size] or parts[:1]
                if fitting:
                    ends[partition] = fitting[-1].offsets.end
        return ends

    def cut_all(self, cuts: Sequence[tuple[SegmentLocation, int]]) -> list[Sequence[SegmentLocation]]:
        """Let brokers cut each location into parts of about the given size in bytes (see `Locator.cut_all`).

        `cuts` has pairs of a location and a size. Pairs of similar sizes are requested together, with the smallest of
        their sizes. A location that has no more bytes than its size stays whole. A location also stays whole if its
        parts in the response do not have exactly its offsets.
        """
        locations = [location for location, _ in cuts]
        parts: list[Sequence[SegmentLocation]] = [[location] for location in locations]
        large = [(number, size) for number, (location, size) in enumerate(cuts) if len(location.bytes) > size]
        for similar in _by_similar_size(large):
            terms = replace(self._terms, part_bytes=min(size for _, size in similar))
            for runs in _rounds_of_adjacent([number for number, _ in similar], locations):
                self._cut_round(runs, terms, parts)
        return parts

    def cut_at(self, cuts: Sequence[tuple[SegmentLocation, Sequence[int]]]) -> list[Sequence[SegmentLocation]]:
        """Cut each location at the given offsets, and return each location's parts (see `Locator.cut_at`).

        `cuts` has pairs of a location and offsets. To find byte ranges, brokers cut the locations into smaller parts of
        a quarter of the average size of the returned parts. If brokers do not cut a location, each of its returned
        parts has all bytes of the location.
        """
        sizes = [max(1, len(location.bytes) // (4 * (len(starts) + 1))) for location, starts in cuts]
        fine = self.cut_all([(location, size) for (location, _), size in zip(cuts, sizes, strict=True)])
        return [_cut_at(location, parts, starts) for (location, starts), parts in zip(cuts, fine, strict=True)]

    def _cut_round(
        self, runs: Mapping[TopicPartition, Sequence[int]], terms: LocationTerms, parts: list[Sequence[SegmentLocation]]
    ) -> None:
        """Let brokers cut some locations, and replace each of these locations in the list `parts` by its parts.

        An entry of `parts` stays unchanged if the broker's parts do not have exactly its offsets and segment.

        Args:
            runs: by partition, the indexes in `parts` of adjacent locations that are to be cut.
            terms: settings of the request, with the size of the parts.
            parts: changed in place; an entry that `runs` names holds one location.
        """
        ranges = {
            partition: OffsetRange(parts[numbers[0]][0].offsets.start, parts[numbers[-1]][0].offsets.end)
            for partition, numbers in runs.items()
        }
        for partition, located in self._request(ranges, terms).items():
            starts = [part.offsets.start for part in located]
            for number in runs[partition]:
                (location,) = parts[number]
                own = located[bisect_left(starts, location.offsets.start) : bisect_left(starts, location.offsets.end)]
                if own and _is_cut_of(location, own):
                    parts[number] = own

    def signed_url(self, location: SegmentLocation) -> str | None:
        """Return a new signed URL of the location; None if the segment no longer exists, or the broker signs no URL."""
        partition, segment_id = location.segment.topic_partition, location.segment.segment_id
        renewed = self._request({partition: location.offsets}, replace(self._terms, part_bytes=0))[partition]
        return next((part.signed_url for part in renewed if part.segment.segment_id == segment_id), None)

    def _request(self, ranges: PartitionRanges, terms: LocationTerms) -> PartitionLocations:
        """Request the segment locations of all ranges from the partitions' leaders, and return them by partition.

        A response may locate only the beginning of a range. Then the rest of the range is requested, for all partitions
        together. With `falls_back`, a partition whose leader fails with a retriable error has only the locations that
        earlier responses named.

        Raises:
            TieredStreamError: a leader fails, unless `falls_back` is true and the error is retriable.
            CorruptDataError: responses do not reach the end of a range, or contradict the request.
        """
        located: PartitionLocations = dict.fromkeys(ranges, ())
        left = {partition: offsets for partition, offsets in ranges.items() if len(offsets)}
        for _ in range(_MAX_ROUNDS):
            if not left:
                return located
            answers = locate_segments(self._client, left, terms, self._patience_ms)
            for partition, fault in answers.faults.items():
                if not (self._falls_back and fault.retriable):
                    raise fault
                log.warning(
                    "%s is read from the broker, from offset %d on: %s", partition, left[partition].start, fault
                )
            rest: dict[TopicPartition, OffsetRange] = {}
            for partition, answer in answers.found.items():
                located[partition] += self._locations(partition, answer, left[partition], terms)
                if 0 <= answer.located_end_offset < left[partition].end:
                    rest[partition] = OffsetRange(answer.located_end_offset, left[partition].end)
            if rest == left:
                break
            left = rest
        raise CorruptDataError(f"the broker's responses do not reach the end of {next(iter(left))}: {left}")

    def _locations(
        self, partition: TopicPartition, answer: LocatedPartition, offsets: OffsetRange, terms: LocationTerms
    ) -> Locations:
        """Return the locations in `answer`, the response for one partition; empty if the response names no segment.

        `offsets` is the requested range, and `terms` are the settings of the request. Bytes that are equal to the bytes
        of the last response for the partition are not decoded again.

        Raises:
            CorruptDataError: the response names offsets outside of `offsets`, or beyond its `located_end_offset`. A
                later response would name these offsets again.
        """
        end, segments = answer.located_end_offset, answer.remote_log_segments
        if 0 <= end < offsets.start:
            raise CorruptDataError(f"{partition}: located up to {end}, though asked from {offsets.start}")
        metadata = self._client.topic(partition.topic)
        assert metadata is not None, "it was asked by its id"
        if not segments:
            return ()
        known = self._known.get((partition, terms))
        # Most responses name what an earlier response named, and equal bytes decode to equal locations.
        if known is None or known[:2] != (segments, metadata.topic_id):
            known = segments, metadata.topic_id, _decode_locations(partition, metadata.topic_id, segments)
            if terms in (self._terms, self._offsets_terms):
                self._known[partition, terms] = known
        locations = known[2]
        named = offsets if end < 0 else OffsetRange(offsets.start, min(end, offsets.end))
        if locations[0].offsets.start < named.start or locations[-1].offsets.end > named.end:
            raise CorruptDataError(f"{partition}: the broker names offsets outside of {named}")
        return locations


def _is_cut_of(location: SegmentLocation, parts: Sequence[SegmentLocation]) -> bool:
    """Return whether `parts` begin and end at the offsets of `location`, and all belong to its segment."""
    whole = OffsetRange(parts[0].offsets.start, parts[-1].offsets.end) == location.offsets
    return whole and all(part.segment.segment_id == location.segment.segment_id for part in parts)


def _by_similar_size(sizes: Sequence[tuple[T, int]]) -> list[list[tuple[T, int]]]:
    """Group the (key, size) pairs `sizes` so that within a group, each size is less than twice any other size."""
    groups: dict[int, list[tuple[T, int]]] = defaultdict(list)
    for entry in sizes:
        groups[entry[1].bit_length()].append(entry)
    return list(groups.values())


def _rounds_of_adjacent(
    numbers: Sequence[int], locations: Sequence[SegmentLocation]
) -> list[dict[TopicPartition, list[int]]]:
    """Distribute locations over rounds of requests; return for each round, by partition, indexes in `locations`.

    In a round, all locations of a partition are adjacent, so that one offset range covers them.

    Args:
        numbers: indexes in `locations` of the locations to distribute.
    """
    runs: dict[TopicPartition, list[list[int]]] = defaultdict(list)
    for number in numbers:
        partition_runs = runs[locations[number].segment.topic_partition]
        if partition_runs and locations[partition_runs[-1][-1]].offsets.end == locations[number].offsets.start:
            partition_runs[-1].append(number)
        else:
            partition_runs.append([number])
    rounds = max(map(len, runs.values()), default=0)
    return [
        {partition: partition_runs[at] for partition, partition_runs in runs.items() if at < len(partition_runs)}
        for at in range(rounds)
    ]


def _cut_at(
    location: SegmentLocation, parts: Sequence[SegmentLocation], starts: Sequence[int]
) -> Sequence[SegmentLocation]:
    """Cut `location` at the offsets `starts`, and return the pieces; byte ranges come from the smaller `parts`.

    Each piece begins with the bytes of the part that holds its first offset, and ends with the bytes of the part that
    holds its last offset.

    Args:
        parts: smaller parts of the location, in offset order.
        starts: ascending offsets inside the location.
    """
    pieces = []
    for start, end in pairwise((location.offsets.start, *starts, location.offsets.end)):
        first = bisect_right(parts, start, key=lambda part: part.offsets.start) - 1
        last = bisect_left(parts, end, key=lambda part: part.offsets.end)
        byte_range = ByteRange(parts[first].bytes.start, parts[last].bytes.end)
        pieces.append(location.part(OffsetRange(start, end), byte_range, parts[last].following))
    return pieces


def _decode_locations(partition: TopicPartition, topic_id: UUID, data: bytes) -> Locations:
    """Decode the segment locations `data` in the response for one partition.

    Raises:
        CorruptDataError: the bytes are malformed, name no segment, or name segments that overlap.
    """
    try:
        locations = tuple(decode_segments(data, partition, topic_id))
    except ValueError as error:
        raise CorruptDataError(f"{partition}: the broker's response describes a segment wrongly: {error}") from error
    if any(before.offsets.end > after.offsets.start for before, after in pairwise(locations)):
        raise CorruptDataError(f"{partition}: the broker's response has segments that overlap")
    if not locations:
        raise CorruptDataError(f"{partition}: the broker's response has an empty list of segments")
    return locations

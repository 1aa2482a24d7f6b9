"""Requests to partition leaders for the segment locations of offset ranges (KIP-1248, see `location_messages`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.leader_requests import LeaderRequest, ask_each_leader
from tiered_stream.broker.list_offsets import isolation_code
from tiered_stream.broker.wire.location_messages import (
    FetchPartition,
    FetchTopic,
    LocatedPartition,
    LocationFetchRequest,
    LocationFetchResponse,
)
from tiered_stream.errors import UnsupportedDataError
from tiered_stream.model import NO_TOPIC_ID, STORAGE_FORMAT, OffsetRange, PartialAnswer, TopicPartition
from tiered_stream.options.choices import IsolationLevel

MAX_SEGMENTS = 100_000
"""Maximum number of segments in one response: about 10 MB without signed URLs, 60 MB with signed URLs."""


@dataclass(frozen=True, slots=True)
class LocationTerms:
    """Settings of a request for segment locations.

    Args:
        local_too: the response also names segments that the broker still has on its own disk.
        part_bytes: the broker cuts larger segments at batch starts into parts of about this many bytes; 0: the broker
            cuts no segment.
        offsets_only: the response has no byte positions, aborted transactions or signed URLs.
    """

    isolation: IsolationLevel
    local_too: bool = True
    part_bytes: int = 0
    offsets_only: bool = False


def locate_segments(
    client: BrokerClient,
    ranges: Mapping[TopicPartition, OffsetRange],
    terms: LocationTerms,
    patience_ms: int | None = None,
) -> PartialAnswer[TopicPartition, LocatedPartition]:
    """Ask the leaders for the tiered segments in each partition's offset range; return for each a response or an error.

    All leaders are asked at once, each with one request for all its partitions. Each partition of `ranges` is in the
    result: in `found` with its response, or in `faults` with its error. A partition that a leader leaves out of a
    response is requested again for `patience_ms`, and then gets an error.

    A response names the segments from the start of the range up to the offset `located_end_offset` (exclusive). That
    offset may lie before the end of the range. There may then be further segments from that offset on.

    Args:
        patience_ms: time limit in ms; None: `default.api.timeout.ms`.

    Raises:
        BrokerError, ConfigurationError: the topics' metadata cannot be read, for example because a topic does not
            exist.
    """
    request = _Locations(client, ranges, terms)
    return client.run(lambda: ask_each_leader(client, request, ranges, patience_ms))


@dataclass(frozen=True)
class _Locations(LeaderRequest[LocatedPartition]):
    needed_acl = "READ on the topic"

    _client: BrokerClient
    _ranges: Mapping[TopicPartition, OffsetRange]
    _terms: LocationTerms

    def request(self, topics: list[Any]) -> LocationFetchRequest:
        terms = self._terms
        return LocationFetchRequest(
            isolation_level=isolation_code(terms.isolation),
            topics=topics,
            remote_log_segment_location_requested=True,
            supported_storage_format_versions=[STORAGE_FORMAT],
            max_remote_log_segments=MAX_SEGMENTS,
            local_segments_wanted=terms.local_too,
            remote_log_segment_part_bytes=terms.part_bytes,
            offsets_only=terms.offsets_only,
        )

    def topic(self, name: str, partitions: list[Any]) -> FetchTopic[FetchPartition]:
        topic_id = self._client.topic_id(name)
        if topic_id == NO_TOPIC_ID:
            raise UnsupportedDataError(f"topic {name!r} has no id: the brokers are too old for tiered storage")
        return FetchTopic(topic_id, partitions)

    def partition(self, partition: TopicPartition, leader_epoch: int) -> FetchPartition:
        offsets = self._ranges[partition]
        return FetchPartition(partition.partition, leader_epoch, offsets.start, offsets.end)

    def response_error(self, response: LocationFetchResponse) -> int:
        return response.error_code

    def results(self, response: LocationFetchResponse) -> Iterable[tuple[TopicPartition, int, LocatedPartition]]:
        names = {self._client.topic_id(partition.topic): partition.topic for partition in self._ranges}
        return [
            (TopicPartition(names[topic.topic_id], located.partition_index), located.error_code, located)
            for topic in response.responses
            if topic.topic_id in names
            for located in topic.partitions
        ]

    def subject(self, partition: TopicPartition) -> str:
        return f"partition {partition}, offset {self._ranges[partition].start}"

"""Where the tiered bytes of offset ranges are, asked of the partitions' leaders (KIP-1248, see `location_messages`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import NO_TOPIC_ID
from tiered_stream.broker.leaders import LeaderRequest, Leaders, ask_each_leader, by_topic
from tiered_stream.broker.list_offsets import isolation_code
from tiered_stream.broker.location_messages import (
    FetchTopic,
    LocatedPartition,
    LocationFetchRequest,
    LocationFetchResponse,
    WantedPartition,
)
from tiered_stream.errors import UnsupportedDataError
from tiered_stream.model import STORAGE_FORMAT, OffsetRange, PartialAnswer, TopicPartition
from tiered_stream.options.choices import IsolationLevel

MAX_SEGMENTS = 100_000
"""How many segments one answer may name: about 10 MB without signed locations, 60 MB with them."""


@dataclass(frozen=True, slots=True)
class LocationTerms:
    """What the answer is to say.

    `local_too`: also segments that the broker still has on its own disk. `part_bytes`: cut larger segments at batch
    starts into parts of about that many bytes; 0: do not. `offsets_only`: without byte positions, aborted transactions
    and signed locations.
    """

    isolation: IsolationLevel
    local_too: bool = True
    part_bytes: int = 0
    offsets_only: bool = False


@dataclass(frozen=True, slots=True)
class LocatedSegments:
    """One answer for a partition: `segments` (for `location_messages.decode_segments`; None: it names none) are complete up to `located_end`,
    from where on there may be more; None: the broker does not say where segments are.
    """  # noqa: E501

    segments: bytes | None = field(repr=False)
    located_end: int | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


def locate_segments(
    client: BrokerClient,
    ranges: Mapping[TopicPartition, OffsetRange],
    terms: LocationTerms,
    patience_ms: int | None = None,
) -> PartialAnswer[TopicPartition, LocatedSegments]:
    """One answer for each partition, from its range's start; leaders at once, all partitions of one in one request.

    Raises: as `leaders.ask_each_leader`.
    """
    request = _Locations(client, ranges, terms)
    return client.run(lambda: ask_each_leader(client, request, ranges, patience_ms))


class _Locations(LeaderRequest[LocatedSegments]):
    needed_acl = "READ on the topic"

    def __init__(
        self, client: BrokerClient, ranges: Mapping[TopicPartition, OffsetRange], terms: LocationTerms
    ) -> None:
        self._client = client
        self._ranges = ranges
        self._terms = terms

    def message(self, leaders: Leaders) -> LocationFetchRequest:
        terms = self._terms
        return LocationFetchRequest(
            isolation_level=isolation_code(terms.isolation),
            topics=[self._topic(topic, listed, leaders) for topic, listed in by_topic(leaders).items()],
            remote_log_segment_location_requested=True,
            supported_storage_format_versions=[STORAGE_FORMAT],
            max_remote_log_segments=MAX_SEGMENTS,
            local_segments_wanted=terms.local_too,
            remote_log_segment_part_bytes=terms.part_bytes,
            offsets_only=terms.offsets_only,
        )

    def _topic(self, topic: str, partitions: list[TopicPartition], leaders: Leaders) -> FetchTopic[WantedPartition]:
        topic_id = self._topic_id(topic)
        if topic_id is None or topic_id == NO_TOPIC_ID:
            raise UnsupportedDataError(f"topic {topic!r} has no id: the brokers are too old for tiered storage")
        ranges = self._ranges
        return FetchTopic(
            topic_id,
            [
                WantedPartition(each.partition, leaders[each].leader_epoch, ranges[each].start, ranges[each].end)
                for each in partitions
            ],
        )

    def error_of_all(self, response: LocationFetchResponse) -> int:
        return response.error_code

    def answers(self, response: LocationFetchResponse) -> Iterable[tuple[TopicPartition, int, LocatedSegments]]:
        names = {self._topic_id(partition.topic): partition.topic for partition in self._ranges}
        return [
            (TopicPartition(names[topic.topic_id], answer.partition_index), answer.error_code, _located(answer))
            for topic in response.responses
            if topic.topic_id in names
            for answer in topic.partitions
        ]

    def _topic_id(self, topic: str) -> UUID | None:
        known = self._client.topic(topic)
        return known.topic_id if known else None

    def subject(self, partition: TopicPartition) -> str:
        return f"partition {partition}, offset {self._ranges[partition].start}"


def _located(answer: LocatedPartition) -> LocatedSegments:
    end = answer.located_end_offset
    return LocatedSegments(
        answer.remote_log_segments or None, end if end >= 0 else None,
        answer.high_watermark, answer.last_stable_offset, answer.log_start_offset,
    )  # fmt: skip

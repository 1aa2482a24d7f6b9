"""From times to offsets, as Kafka understands them; what cannot be replayed is refused here.

A partition begins at its first offset whose timestamp is at or after `from`, and ends before its first at or after
`to` (Kafka: `Consumer.offsetsForTimes`, ListOffsets). Timestamps go back and forth, so records with an earlier one may
lie behind that end; an exact replay therefore goes on to the log's end. Nor does it trust the start where records were
deleted within a segment: if the first that is late enough was one of them, Kafka's lookup gives up on every other
segment of its kind, tiered or local (`RemoteLogManager.findOffsetByTimestamp`, `UnifiedLog`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from tiered_stream.broker.client import open_client
from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.broker.record_fetch import fetch_records
from tiered_stream.errors import ConfigurationError, UnknownTopicError
from tiered_stream.locate.locator import Locator
from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition, listed
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.parsing import Options, Subscription
from tiered_stream.options.positions import TimeRange, show_time
from tiered_stream.plan.data_loss import DataLossPolicy
from tiered_stream.plan.lookup import Assignment, OffsetLookup
from tiered_stream.plan.partitions import check_topic_ids


@dataclass(frozen=True, slots=True)
class Resolved:
    """The ranges to read, and the topics' ids."""

    ranges: dict[TopicPartition, OffsetRange]
    topic_ids: dict[str, UUID]


def resolve(options: Options, source: LogSource, times: TimeRange, *, exact: bool) -> Resolved:
    """What the subscription's partitions hold of the times, at this moment.

    Raises:
        ConfigurationError: nothing is subscribed to.
        UnknownTopicError: a topic or partition that is named is not there.
        DataLossError: a topic's id is not the one that the options pin it to, or an archive ends before `to`.
        BrokerAuthorizationError: the brokers do not let the user read a topic.
        BrokerError, StorageError: the offsets cannot be looked up.
    """
    reader = source.offset_reader
    lookup = OffsetLookup.of(options, reader)
    assignment = lookup.assignment()
    _check_there(options.subscription, assignment)
    data_loss = DataLossPolicy(options.fail_on_data_loss)
    check_topic_ids(options.topic_ids, assignment.topic_ids, data_loss)
    ranges, latest = lookup.retrying(lambda: _ranges(reader, assignment.partitions, times, exact))
    topic_ids = {**options.topic_ids, **assignment.topic_ids}
    if options.locator is LocatorName.ARCHIVE:
        _check_archive(reader, latest, times, data_loss)
        return Resolved(ranges, topic_ids)
    if exact:
        ranges = _from_where_sure(ranges, lookup.retrying(lambda: reader.earliest(ranges.keys())), source.locator)
    _check_readable(options, latest, topic_ids)
    return Resolved(ranges, topic_ids)


def _ranges(
    reader: OffsetReader, partitions: Collection[TopicPartition], times: TimeRange, exact: bool
) -> tuple[dict[TopicPartition, OffsetRange], PartitionOffsets]:
    """The ranges, and where the logs end."""
    starts = reader.for_timestamps(dict.fromkeys(partitions, times.from_ms))
    ends: Mapping[TopicPartition, int | None] = {}
    if times.to_ms is not None and not exact:
        ends = reader.for_timestamps(dict.fromkeys(partitions, times.to_ms))
    # Last, so that nothing that was found lies beyond the ends.
    earliest, latest = reader.earliest(partitions), reader.latest(partitions)
    ranges = {}
    for partition in sorted(partitions):
        found, start = ends.get(partition), starts[partition]
        end = max(earliest[partition], latest[partition] if found is None else min(found, latest[partition]))
        ranges[partition] = OffsetRange(end if start is None else min(max(start, earliest[partition]), end), end)
    return ranges, latest


def _from_where_sure(
    ranges: Mapping[TopicPartition, OffsetRange], earliest: PartitionOffsets, locator: Locator | None
) -> dict[TopicPartition, OffsetRange]:
    """The ranges, from the log's start unless it is known to be a segment's, where nothing was deleted within one."""
    unsure = {
        partition: OffsetRange(first, first + 1)
        for partition, first in earliest.items()
        if 0 < first < ranges[partition].start
    }
    located = locator.locate(unsure) if locator and unsure else {}
    moved = {
        partition: OffsetRange(first.start, ranges[partition].end)
        for partition, first in unsure.items()
        if not any(location.segment.base_offset == first.start for location in located.get(partition, ()))
    }
    return {**ranges, **moved}


def _check_there(subscription: Subscription, assignment: Assignment) -> None:
    missing = set(subscription.assigned) - assignment.partitions
    if missing:
        raise UnknownTopicError(f"the partitions {listed(missing)} do not exist: correct the option assign")
    if not assignment.partitions:
        found = (
            "assign names no partition"
            if subscription.pattern is None
            else (f"no topic is found by the pattern {subscription.pattern!r}")
        )
        raise ConfigurationError(f"{found}: there is nothing to replay")


def _check_archive(reader: OffsetReader, latest: PartitionOffsets, times: TimeRange, data_loss: DataLossPolicy) -> None:
    """An archive holds what was tiered: what was written after that, nobody has."""
    if times.to_ms is None:
        return
    found = reader.for_timestamps(dict.fromkeys(latest, times.to_ms))
    early = [partition for partition, offset in found.items() if offset is None]
    if early:
        ends = ", ".join(f"{partition} (offset {latest[partition]})" for partition in sorted(early))
        data_loss.report(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"the archive ends before {show_time(times.to_ms)}: it has nothing as new in {ends}. Give an earlier --to, "
            "or none to replay up to the archive's end.",
        )


def _check_readable(options: Options, latest: PartitionOffsets, topic_ids: Mapping[str, UUID]) -> None:
    """Leave to READ, which only a Fetch asks for: at the log's end, where the broker has nothing to send."""
    client = open_client(options.kafka)
    for partition in {partition.topic: partition for partition in sorted(latest, reverse=True)}.values():
        fetch_records(
            client, partition, latest[partition], isolation=options.isolation_level, max_bytes=1, max_wait_ms=0,
            topic_id=topic_ids.get(partition.topic),
        )  # fmt: skip

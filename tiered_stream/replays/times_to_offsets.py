"""New plan of a replay: Kafka's lookup converts times to offsets, and checks show that the replay is possible.

The range of a partition begins at the first offset whose timestamp is at or after `from`. It ends before the first
offset whose timestamp is at or after `to` (Kafka: `Consumer.offsetsForTimes`, ListOffsets). Timestamps are not always
ascending, so records between the two times may lie after the range. An exact replay (`--exact`) therefore reads up to
the log's end.

An exact replay also cannot rely on Kafka's start offset if records at the beginning of a segment were deleted. If the
first record at or after `from` was deleted, Kafka does not search the next segments of the same kind, tiered or local.
So Kafka may skip records (`RemoteLogManager.findOffsetByTimestamp`, `UnifiedLog`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import closing
from uuid import UUID

from tiered_stream.broker.client import open_client
from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.broker.record_fetch import check_authorized_to_read
from tiered_stream.delta.settings.ingest_settings import source_options
from tiered_stream.delta.settings.query_settings import check_all_columns
from tiered_stream.locate.locator import Locator
from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.model import OffsetRange, PartitionOffsets, PartitionRanges, TopicPartition
from tiered_stream.options.choices import LocatorName
from tiered_stream.options.parsing import Options, parse_options, parse_subscription
from tiered_stream.options.positions import TimeRange, show_time
from tiered_stream.options.settings_files import POSITIONS, SUBSCRIPTION, without
from tiered_stream.plan.data_loss import DataLossPolicy, check_topic_ids
from tiered_stream.plan.offset_lookup import OffsetLookup, check_chosen
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan

log = logging.getLogger(__name__)


def new_plan(options: Mapping[str, str], name: str, arguments: ReplayArguments, times: TimeRange) -> ReplayPlan:
    """Return the plan of a replay that has no checkpoint yet.

    Raises:
        ConfigurationError: an option is wrong or does not fit a replay, or the options choose no partition.
        UnknownTopicError: a topic or partition that the options name does not exist.
        DataLossError: a topic's id differs from the id in `remote.topic.id`, or an archive has no record at or after
            the end of `times`. With `failOnDataLoss=false`, a warning is logged instead.
        BrokerAuthorizationError: the user is not authorized to READ a topic.
        BrokerError, StorageError: the offsets cannot be looked up.
    """
    reading = without(source_options(options), POSITIONS) | dict([arguments.reads])
    parsed = parse_options(reading, streaming=True)
    check_all_columns(parsed)
    with closing(open_log_source(parsed)) as source:
        return ReplayPlan(name, arguments, times, *resolve(parsed, source, times, exact=arguments.exact))


def subscription(options: Mapping[str, str]) -> tuple[str, str]:
    """Return the name and the value of the option that names the topics (`subscribe`, `subscribePattern`, `assign`).

    Raises:
        ConfigurationError: there is no such option, or more than one, or it is malformed.
    """
    parse_subscription(options)
    values = {name.lower(): value for name, value in options.items()}
    return next((name, values[name.lower()]) for name in SUBSCRIPTION if name.lower() in values)


def resolve(
    options: Options, source: LogSource, times: TimeRange, *, exact: bool
) -> tuple[dict[TopicPartition, OffsetRange], dict[str, UUID]]:
    """Convert a range of times to offset ranges of the partitions that the options choose, as the logs are now.

    Return the offset ranges by partition, and the topics' ids by the topic's name.

    Args:
        options: options of the source, which choose the partitions.
        source: log source that looks up the offsets.
        exact: True to extend the ranges so that they have every record with a timestamp in `times`.

    Raises:
        ConfigurationError: the options choose no partition.
        UnknownTopicError: a topic or partition that the options name does not exist.
        DataLossError: a topic's id differs from the id in `remote.topic.id`, or an archive has no record at or after
            the end of `times`. With `failOnDataLoss=false`, a warning is logged instead.
        BrokerAuthorizationError: the user is not authorized to READ a topic.
        BrokerError, StorageError: the offsets cannot be looked up.
    """
    reader = source.offset_reader
    lookup = OffsetLookup.of(options, reader)
    assignment = lookup.assignment()
    check_chosen(options.subscription, assignment.partitions)
    data_loss = DataLossPolicy(options.fail_on_data_loss)
    check_topic_ids(options.topic_ids, assignment.topic_ids, data_loss)
    ranges, latest = lookup.retrying(lambda: _ranges(reader, assignment.partitions, times, exact))
    if not exact and not any(ranges.values()):
        _warn_of_skipped_records(ranges, latest, times)
    topic_ids = {**options.topic_ids, **assignment.topic_ids}
    if options.locator is LocatorName.ARCHIVE:
        _check_archive(reader, latest, times, data_loss)
        return ranges, topic_ids
    if exact:
        ranges = _begin_at_sure_offsets(ranges, lookup.retrying(lambda: reader.earliest(ranges.keys())), source.locator)
    client = open_client(options.kafka)
    for topic, partition in {partition.topic: partition for partition in sorted(latest, reverse=True)}.items():
        check_authorized_to_read(client, partition, options.isolation_level, topic_ids.get(topic), latest[partition])
    return ranges, topic_ids


def _ranges(
    reader: OffsetReader, partitions: Collection[TopicPartition], times: TimeRange, exact: bool
) -> tuple[dict[TopicPartition, OffsetRange], PartitionOffsets]:
    """Return the offset range of each partition for the times, and the end offset of each partition's log.

    A range ends at the partition's first record at or after `times.to_ms`. It ends at the log's end if there is no such
    record, or if `exact` is True. A range is empty if its partition has no record at or after `times.from_ms`.
    """
    starts = reader.for_timestamps(dict.fromkeys(partitions, times.from_ms))
    ends: Mapping[TopicPartition, int | None] = {}
    if times.to_ms is not None and not exact:
        ends = reader.for_timestamps(dict.fromkeys(partitions, times.to_ms))
    # Looked up last, so that no offset for a time lies beyond the log ends.
    earliest, latest = reader.earliest(partitions), reader.latest(partitions)
    ranges = {}
    for partition in sorted(partitions):
        first, last = earliest[partition], latest[partition]
        start, end_at_time = starts[partition], ends.get(partition)
        end = max(first, last if end_at_time is None else min(end_at_time, last))
        ranges[partition] = OffsetRange(end if start is None else min(max(start, first), end), end)
    return ranges, latest


def _warn_of_skipped_records(ranges: PartitionRanges, latest: PartitionOffsets, times: TimeRange) -> None:
    """Log a warning if all ranges are empty, but records after the ranges may have timestamps within `times`.

    A range ends at the first record at or after the end of `times`. If timestamps are not ascending, later offsets may
    have earlier records.
    """
    behind = {partition: offsets.end for partition, offsets in ranges.items() if offsets.end < latest[partition]}
    if behind and times.to_ms is not None:
        partition, offset = min(behind.items())
        log.warning(
            "no record is copied: the first record of %s at or after %s, at offset %d, is already at or after %s. If "
            "timestamps are out of order, later records may be of these times: --exact copies them",
            partition, show_time(times.from_ms), offset, show_time(times.to_ms),
        )  # fmt: skip


def _begin_at_sure_offsets(
    ranges: Mapping[TopicPartition, OffsetRange], earliest: PartitionOffsets, locator: Locator | None
) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges, with the start moved down to the log start offset if Kafka's lookup by time may be wrong.

    A start is moved if the log start offset is above 0 and not the base offset of a tiered segment. Then records may
    have been deleted at the beginning of the log's first segment, and Kafka's lookup may have skipped later records.

    Args:
        earliest: log start offset of each partition.
        locator: locator of the tiered segments, or None if the replay uses no locator.
    """
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


def _check_archive(reader: OffsetReader, latest: PartitionOffsets, times: TimeRange, data_loss: DataLossPolicy) -> None:
    """Report data loss if a partition in an archive (a bucket without its cluster) has no record at or after the end.

    The end is `times.to_ms`. Without a record at or after the end, the archive may lack records from before the end.
    """
    if times.to_ms is None:
        return
    offsets = reader.for_timestamps(dict.fromkeys(latest, times.to_ms))
    early = [partition for partition, offset in offsets.items() if offset is None]
    if early:
        ends = ", ".join(f"{partition} (offset {latest[partition]})" for partition in sorted(early))
        data_loss.report(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"the archive ends before {show_time(times.to_ms)}: it has no record as new in {ends}. Give an earlier "
            "--to, or none to replay up to the archive's end.",
        )

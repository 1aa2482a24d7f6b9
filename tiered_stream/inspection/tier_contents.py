"""Tiered segments of the chosen partitions, and the offsets that are read from each segment.

The option `remote.log.locator` chooses where the segments are listed. The metadata topic (`__remote_log_metadata`) has
every copy of a segment. Some copies are not finished, are being deleted, or belong to other leader epochs than the log.
In an archive (a bucket without its cluster), the objects' manifests name finished copies. A broker or gateway with
KIP-1248 names only segments that are read. The storage itself is listed only for an archive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from tiered_stream.broker.broker_check import meet_brokers
from tiered_stream.broker.client import BrokerClient, open_client, supported_feature
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.broker.leader_epochs import BrokerLineages, Lineage
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.broker.offset_reader import OffsetReader
from tiered_stream.broker.wire.location_messages import LOCATION_FEATURE
from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.locate.log_source import no_location_feature
from tiered_stream.locate.metadata_topic.metadata_log import MetadataLog, check_readable
from tiered_stream.locate.metadata_topic.metadata_snapshots import open_snapshots
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    REMOTE_LOG_METADATA_TOPIC,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tiered_stream.locate.metadata_topic.segment_table import TrackedSegment
from tiered_stream.locate.visible_segments import VisibleSegment, visible_segments
from tiered_stream.model import ByteRange, OffsetRange, PartialAnswer, SegmentLocation, TopicPartition
from tiered_stream.options.choices import IsolationLevel, LocatorName
from tiered_stream.options.offset_json import EARLIEST, LATEST
from tiered_stream.options.offset_ranges import ranges_between
from tiered_stream.options.parsing import Options
from tiered_stream.options.remote_options import LOCATOR
from tiered_stream.plan.offset_lookup import OffsetLookup

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_ISOLATION = IsolationLevel.READ_UNCOMMITTED  # with this level, a log ends at the high watermark

Partitions = Collection[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionTier:
    """Tiered segments of one partition, with their states, in any order.

    `visible` are the segments that are read, each with the offsets that are read from it. `log` is the range from the
    log start offset to the high watermark, or in an archive to the last segment's end. `lineage` has the leader epochs
    of the log. It is None if the locator names only segments that are read.
    """

    segments: tuple[TrackedSegment, ...]
    visible: Sequence[VisibleSegment]
    log: OffsetRange
    lineage: Lineage | None


@dataclass(frozen=True, slots=True)
class TierContents:
    """Tiered segments, or an error, for each partition (`tiers`).

    `located_by` is the name of the locator that has listed the segments.
    """

    located_by: str
    tiers: PartialAnswer[TopicPartition, PartitionTier]


def tier_contents(options: Options) -> TierContents:
    """Return the tiered segments of the partitions that the options choose, with the offsets that are read from each.

    Start and end positions in the options are ignored. An error of one partition is in the result.

    Raises:
        ConfigurationError: `remote.log.locator` is `none`, or is `broker` and the brokers lack KIP-1248.
        UnknownTopicError: a topic that the options name does not exist.
        BrokerError: the brokers cannot be reached.
        StorageError: the archive cannot be read.
    """
    match options.locator:
        case LocatorName.ARCHIVE:
            return TierContents(LocatorName.ARCHIVE, PartialAnswer(_from_archive(options), {}))
        case LocatorName.NONE:
            raise ConfigurationError(
                f"option {LOCATOR.name} is {LocatorName.NONE}, so nothing reports what is tiered: remove the option"
            )
    client = open_client(options.kafka)
    meet_brokers(client)
    located = options.locator is not LocatorName.METADATA_TOPIC and supported_feature(client, LOCATION_FEATURE) > 0
    if options.locator is LocatorName.BROKER and not located:
        raise no_location_feature()
    partitions = _assigned(options, BrokerOffsetReader(client, _ISOLATION))
    if located:
        return TierContents(LocatorName.BROKER, _from_brokers(client, partitions))
    check_readable(client)
    return TierContents(LocatorName.METADATA_TOPIC, _from_metadata_topic(options, client, partitions))


def check_objects(options: Options, contents: TierContents) -> None:
    """Check that the storage returns segments, by one byte of at most two segments in `contents`.

    Nothing is checked if the segments were not listed from the metadata topic, or if the options name no storage.

    Raises:
        ConfigurationError: the settings name a wrong place.
        StorageError: the storage refuses access, cannot be reached, or does not have a segment.
    """
    if contents.located_by != LocatorName.METADATA_TOPIC:
        return  # an archive's manifests were read there, and a gateway's segments may have signed locations
    if options.storage.uri is None and options.fetcher_class is None:
        return
    # Imported here, because the list of segments needs no storage.
    from tiered_stream.locate.storage_failures import StorageCheck
    from tiered_stream.storage.open_fetcher import fetcher_for

    locations = [
        SegmentLocation(part.segment, part.offsets, ByteRange(0, part.segment.size))
        for tier in contents.tiers.found.values()
        for part in tier.visible
    ]
    StorageCheck(fetcher_for(options), falls_back=False).check(locations)


def _assigned(options: Options, reader: OffsetReader) -> Partitions:
    return OffsetLookup.of(options, reader).assignment().partitions


def _logs(client: BrokerClient, partitions: Partitions) -> PartialAnswer[TopicPartition, OffsetRange]:
    """Return the range from the log start offset to the high watermark for each partition, or the partition's error."""
    reader = BrokerOffsetReader(client, _ISOLATION)
    starts = reader.special_offsets(EARLIEST, partitions, None)
    ends = reader.special_offsets(LATEST, starts.found, None)
    return PartialAnswer(ranges_between(starts.found, ends.found), {**starts.faults, **ends.faults})


def _from_metadata_topic(
    options: Options, client: BrokerClient, partitions: Partitions
) -> PartialAnswer[TopicPartition, PartitionTier]:
    topics = client.metadata([*{partition.topic for partition in partitions}, REMOTE_LOG_METADATA_TOPIC])
    ids = {partition: topics[partition.topic].topic_id for partition in partitions}
    log = MetadataLog(client, snapshots=open_snapshots(options.metadata_snapshot_dir))
    tracked = _tracked(log, ids, topics[REMOTE_LOG_METADATA_TOPIC])
    epochs = {
        partition: {entry.epoch for segment, _ in segments for entry in segment.leader_epochs}
        for partition, segments in tracked.found.items()
    }
    lineages = BrokerLineages(client).of(epochs, topics)
    logs = _logs(client, lineages.found.keys())
    tiers = {
        partition: _tier(tracked.found[partition], lineages.found[partition], log)
        for partition, log in logs.found.items()
    }
    return PartialAnswer(tiers, {**tracked.faults, **lineages.faults, **logs.faults})


def _tracked(
    log: MetadataLog, ids: Mapping[TopicPartition, UUID], metadata_topic: TopicMetadata
) -> PartialAnswer[TopicPartition, tuple[TrackedSegment, ...]]:
    """Return each partition's segments from the metadata topic, with their states, or the partition's error.

    Args:
        log: reader of the metadata topic.
        ids: topic ids by partition.
        metadata_topic: description of the metadata topic by the brokers.
    """
    partitions = [TopicIdPartition(topic_id, partition) for partition, topic_id in ids.items()]
    tables = log.tables(partitions, metadata_topic)
    return PartialAnswer(
        {key.topic_partition: table.tracked(key) for key, table in tables.found.items()},
        {key.topic_partition: fault for key, fault in tables.faults.items()},
    )


def _tier(tracked: tuple[TrackedSegment, ...], lineage: Lineage, log: OffsetRange) -> PartitionTier:
    finished = [segment for segment, state in tracked if state is _FINISHED]
    return PartitionTier(tracked, visible_segments(finished, lineage, log.start), log, lineage)


def _from_brokers(client: BrokerClient, partitions: Partitions) -> PartialAnswer[TopicPartition, PartitionTier]:
    """Return the segments that brokers name (KIP-1248), or an error, for each partition.

    Each partition has a separate request, so that its error does not affect other partitions.
    """
    logs = _logs(client, partitions)
    answer: PartialAnswer[TopicPartition, PartitionTier] = PartialAnswer({}, dict(logs.faults))
    locator = BrokerLocator(client, _ISOLATION, part_bytes=0)
    for partition, log in sorted(logs.found.items()):
        try:
            visible = tuple(_whole(locator.locate({partition: log})[partition]))
        except TieredStreamError as error:
            answer.faults[partition] = error
            continue
        segments = tuple((part.segment, _FINISHED) for part in visible)
        answer.found[partition] = PartitionTier(segments, visible, log, None)
    return answer


def _whole(locations: tuple[SegmentLocation, ...]) -> Iterator[VisibleSegment]:
    """Yield each segment of `locations` once, with the range of all offsets that are read from the segment.

    Args:
        locations: locations in offset order; several locations may be parts of one segment.
    """
    for _, parts in groupby(locations, key=lambda location: location.segment.segment_id):
        first, *others = parts
        last = others[-1] if others else first
        yield VisibleSegment(first.segment, OffsetRange(first.offsets.start, last.offsets.end))


def _from_archive(options: Options) -> dict[TopicPartition, PartitionTier]:
    # Imported here, because a read from a cluster does not need the package `cryptography`.
    from tiered_stream.locate.archive.archive_offsets import ArchiveOffsetReader
    from tiered_stream.locate.archive.archived_partitions import open_archive
    from tiered_stream.storage.open_fetcher import fetcher_for

    archive = open_archive(options.storage, options.topic_ids)
    with closing(archive):
        reader = ArchiveOffsetReader(archive, fetcher_for(options), _ISOLATION, options.limits)
        archived = archive.partitions(_assigned(options, reader))
        return {
            partition: PartitionTier(
                tuple((segment, _FINISHED) for segment in contents.segments),
                contents.visible, OffsetRange(contents.log_start_offset, contents.end_offset), contents.lineage,
            )
            for partition, contents in archived.items()
        }  # fmt: skip

"""Checks for records that were lost between a micro-batch's start and end, for example in a deleted partition.

Partitions may be added, deleted, truncated or recreated (Spark:
`KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets`). Then the query fails if the option `failOnDataLoss` is
true; otherwise a warning is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from dataclasses import dataclass
from uuid import UUID

from tiered_stream.errors import DataLossError
from tiered_stream.model import OffsetRange, PartitionOffsets, PartitionRanges, TopicPartition, listed, uuid_to_text

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataLossPolicy:
    """Reaction to data loss: the query fails if `fail` is true; otherwise a warning is logged and the query goes on."""

    fail: bool

    def report(self, condition: str, reason: str) -> None:
        """Raise an error or log a warning that records are gone.

        Args:
            condition: Spark's name of the error under `KAFKA_DATA_LOSS`.
            reason: whole sentence that names the records, ending with a full stop.

        Raises:
            DataLossError: the policy is to fail.
        """
        if self.fail:
            raise DataLossError(
                f"[KAFKA_DATA_LOSS.{condition}] Records may be lost: {reason} "
                "To go on without them, set failOnDataLoss to false."
            )
        logger.warning(
            "[KAFKA_DATA_LOSS.%s] Records may be lost: %s To fail then, set failOnDataLoss to true.", condition, reason
        )


def offset_ranges(
    start: PartitionOffsets,
    end: PartitionOffsets,
    earliest_of_new: PartitionOffsets,
    data_loss: DataLossPolicy,
    *,
    group_id_given: bool = False,
) -> dict[TopicPartition, OffsetRange]:
    """Return by partition the offset range that the micro-batch from `start` to `end` reads; a range may be empty.

    New partitions are read from their log starts. If the policy lets the query go on, deleted partitions are left out,
    and a truncated partition gets an empty range.

    Args:
        earliest_of_new: log starts of the partitions that are not in `start` and still exist.
        group_id_given: the option `kafka.group.id` is set; the error for deleted partitions then has another name.

    Raises:
        DataLossError: the policy is to fail, and a partition was deleted or truncated, or a new partition has no log
            start or does not start at offset 0.
    """
    _check_new(end.keys() - start.keys(), earliest_of_new, data_loss)
    deleted = start.keys() - end.keys()
    if deleted:
        condition = "PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT" if group_id_given else "PARTITIONS_DELETED"
        data_loss.report(condition, f"partitions {listed(deleted)} have been deleted.")
    first = {**start, **earliest_of_new}
    return {
        partition: _range(partition, first[partition], until, data_loss)
        for partition, until in end.items()
        if partition in first
    }


def ends_within(
    latest: PartitionOffsets, ends: PartitionOffsets, data_loss: DataLossPolicy
) -> dict[TopicPartition, int]:
    """Return for each partition that is in both `latest` and `ends` the lower of its two offsets.

    Args:
        latest: current log ends (exclusive), by partition.
        ends: offsets (exclusive) up to which the user wants to read, by partition.

    Raises:
        DataLossError: a log's end in `latest` is missing or below the offset in `ends`, and the policy is to fail.
    """
    short = [partition for partition, end in ends.items() if latest.get(partition, 0) < end]
    if short:
        ends_of_short = ", ".join(
            f"{partition} ({ends[partition]}, not {latest.get(partition, 'there')})" for partition in sorted(short)
        )
        data_loss.report(
            "COULD_NOT_READ_OFFSET_RANGE", f"partitions end before the offset to read up to: {ends_of_short}."
        )
    return {partition: min(end, ends[partition]) for partition, end in latest.items() if partition in ends}


def within_log(
    ranges: PartitionRanges, earliest: PartitionOffsets, latest: PartitionOffsets, data_loss: DataLossPolicy
) -> dict[TopicPartition, OffsetRange]:
    """Return `ranges`, cut to the offsets from `earliest` to `latest` that the logs hold.

    If `earliest` lacks a partition, its range is not cut at its start. If `latest` lacks a partition, its range is not
    cut at its end. Spark notices missing offsets only while it reads (`KafkaDataConsumer`), but this check comes before
    the read.

    Raises:
        DataLossError: a range that is not empty reaches beyond its log, and the policy is to fail.
    """
    within = {}
    for partition, offsets in ranges.items():
        first, end = earliest.get(partition, offsets.start), latest.get(partition, offsets.end)
        start = max(offsets.start, first)
        within[partition] = OffsetRange(start, max(start, min(offsets.end, end)))
        if within[partition] != offsets and len(offsets):
            data_loss.report(
                "COULD_NOT_READ_OFFSET_RANGE",
                f"offsets {offsets.start} to {offsets.end} of {partition} are wanted, but it holds {first} to {end}.",
            )
    return within


def check_topic_ids(known: Mapping[str, UUID], now: Mapping[str, UUID], data_loss: DataLossPolicy) -> None:
    """Check that no topic was deleted and created again, because the new topic has other records at the same offsets.

    Args:
        known: topic ids from earlier look-ups or from the options, by topic.
        now: current topic ids; a topic that `known` does not have is not checked.

    Raises:
        DataLossError: a topic's id has changed, and the policy is to fail.
    """
    for topic, topic_id in now.items():
        if known.get(topic, topic_id) != topic_id:
            data_loss.report(
                "TOPIC_RECREATED",
                f"topic {topic} was deleted and made again: its id was {uuid_to_text(known[topic])} and is "
                f"{uuid_to_text(topic_id)}. "
                "To read the new one from its start, take a new checkpoint.",
            )


def _check_new(new: Set[TopicPartition], earliest: PartitionOffsets, data_loss: DataLossPolicy) -> None:
    not_found = new - earliest.keys()
    if not_found:
        data_loss.report(
            "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
            f"partitions {listed(not_found)} have no first offset. They may have been deleted.",
        )
    for partition in sorted(new & earliest.keys()):
        if earliest[partition] != 0:
            data_loss.report(
                "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                f"the added partition {partition} starts from {earliest[partition]} instead of 0.",
            )


def _range(partition: TopicPartition, start: int, until: int, data_loss: DataLossPolicy) -> OffsetRange:
    if until < start:
        data_loss.report(
            "PARTITION_OFFSET_CHANGED",
            f"the offset of {partition} went back from {start} to {until}: the start is beyond the partition's end, or "
            "its topic was deleted and made again.",
        )
    return OffsetRange(min(start, until), until)

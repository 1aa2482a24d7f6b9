"""Offsets that a replay leaves to the streaming query that lands in the same table, because the query will land them.

A query's checkpoint shows up to which offset of each partition its table has the rows. If a replay went further, the
query would land the same rows again. A parked table has all rows only up to the first offset that it lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tiered_stream.delta.checkpoint.query_tables import Folder, QueryTablesLog
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint
from tiered_stream.delta.schema.routing import TOPIC
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, PartitionRanges, TopicPartition

log = logging.getLogger(__name__)

_MOST_NAMED = 10


def without_what_is_left(
    open_folder: Callable[[str], Folder], checkpoint: str, ranges: PartitionRanges
) -> PartitionRanges:
    """Return the ranges up to the offsets that the query has landed; log a warning about offsets left to the query.

    If the query has not planned a micro-batch yet, nothing is left to it.

    Args:
        open_folder: opens a checkpoint folder; errors of opening and reading it are raised unchanged.
        checkpoint: the query's checkpoint; a path with `{topic}` stands for one query for each topic.

    Raises:
        ConfigurationError: everything is left to the query.
        CorruptDataError, UnsupportedDataError: a file of the checkpoint is damaged, or has an unknown version.
    """
    landed: dict[str, dict[TopicPartition, int] | None] = {}
    for topic in {partition.topic for partition in ranges}:
        folder = checkpoint.replace(TOPIC, topic)
        if folder not in landed:
            landed[folder] = landed_offsets(open_folder(folder))
    kept = {
        partition: _up_to(offsets, landed[checkpoint.replace(TOPIC, partition.topic)], partition)
        for partition, offsets in ranges.items()
    }
    left = {partition: kept[partition].end for partition in sorted(ranges) if kept[partition] != ranges[partition]}
    if not left:
        return ranges
    told = _told(left)
    if not any(map(len, kept.values())):
        raise ConfigurationError(
            f"there is nothing to replay: the query of the checkpoint {checkpoint} has not landed these offsets yet, "
            f"and will ({told}). Wait for it, mend its table if that is parked, or give an earlier --to. If this query "
            "is to run no more, leave ingest.checkpointLocation out of the settings"
        )
    log.warning(
        "left to the query of the checkpoint %s, which has not landed these offsets yet: %s; replayed here, they would "
        "come twice", checkpoint, told,
    )  # fmt: skip
    return kept


def landed_offsets(folder: Folder) -> dict[TopicPartition, int] | None:
    """Return the offset, by partition, up to which a query's tables have all rows; None: the query has not begun.

    Raises:
        CorruptDataError, UnsupportedDataError: a file of the checkpoint is damaged, or has an unknown version.
    """
    checkpoint = SparkCheckpoint(folder)
    committed = checkpoint.committed()
    if committed is None:
        return None if checkpoint.last_planned() is None else {}
    batch, ends = committed
    landed = ends.positions
    for parked in QueryTablesLog(folder).before(batch + 1).parked.values():
        for partition, lacking in parked.tried.joined(parked.newest).ranges.items():
            landed[partition] = min(lacking.start, landed.get(partition, lacking.start))
    return landed


def _up_to(offsets: OffsetRange, landed: Mapping[TopicPartition, int] | None, partition: TopicPartition) -> OffsetRange:
    if landed is None:
        return offsets
    return OffsetRange(offsets.start, max(offsets.start, min(offsets.end, landed.get(partition, 0))))


def _told(left: Mapping[TopicPartition, int]) -> str:
    named = ", ".join(f"{partition} from {offset} on" for partition, offset in list(left.items())[:_MOST_NAMED])
    more = len(left) - _MOST_NAMED
    return f"{named} and {more} partitions more" if more > 0 else named

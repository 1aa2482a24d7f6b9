"""Limit of a replay to offsets that a streaming query, which writes the same table, has landed already.

The query's checkpoint shows, for each partition, up to which offset the table has the query's rows. If a replay copied
later offsets, the query would land the same rows again. If the query cannot write a table, it parks the table: it goes
on without the table, and lands the missing rows later. A parked table has all rows only below the first missing offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tiered_stream.delta.checkpoint.query_tables import Folder, QueryTablesLog
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint
from tiered_stream.delta.settings.ingest_settings import TOPIC
from tiered_stream.errors import ConfigurationError, some_of
from tiered_stream.model import OffsetRange, PartitionRanges, TopicPartition

log = logging.getLogger(__name__)


def limit_to_landed(open_folder: Callable[[str], Folder], checkpoint: str, ranges: PartitionRanges) -> PartitionRanges:
    """Return a replay's offset ranges, each cut at the offset up to which a streaming query has landed all rows.

    A range is empty if the query has landed none of its offsets. If a range was cut, a warning is logged. If the query
    has not planned a micro-batch yet, the ranges are returned unchanged.

    Args:
        open_folder: opens the checkpoint folder at a path. Its errors, and errors of reading the folder, are raised
            unchanged.
        checkpoint: path of the query's checkpoint; a path with `{topic}` stands for one query for each topic.
        ranges: offset ranges of the replay, by partition.

    Raises:
        ConfigurationError: a range was cut, and no offset is left to replay.
        CorruptDataError, UnsupportedDataError: a file of the checkpoint is damaged, or has an unknown version.
    """
    folders = {checkpoint.replace(TOPIC, partition.topic) for partition in ranges}
    landed = {folder: landed_offsets(open_folder(folder)) for folder in folders}
    limited = dict(ranges)
    for partition, offsets in ranges.items():
        ends = landed[checkpoint.replace(TOPIC, partition.topic)]
        if ends is not None:
            end = max(offsets.start, min(offsets.end, ends.get(partition, 0)))
            limited[partition] = OffsetRange(offsets.start, end)
    cut = sorted(partition for partition in ranges if limited[partition] != ranges[partition])
    if not cut:
        return ranges
    description = some_of([f"{partition} from {limited[partition].end} on" for partition in cut], 10)
    if not any(map(len, limited.values())):
        raise ConfigurationError(
            f"there is nothing to replay: the query of the checkpoint {checkpoint} has not landed these offsets yet, "
            f"and will ({description}). Wait for it, repair its table if that is parked, or give an earlier --to. If "
            "this query is to run no more, leave ingest.checkpointLocation out of the settings"
        )
    log.warning(
        "left to the query of the checkpoint %s, which has not landed these offsets yet: %s; replayed here, they would "
        "come twice", checkpoint, description,
    )  # fmt: skip
    return limited


def landed_offsets(folder: Folder) -> dict[TopicPartition, int] | None:
    """Return, by partition, the offset below which all rows of a streaming query are in its tables.

    The result is None if the query has not planned a micro-batch yet. It is empty if the query has planned a
    micro-batch, but has not committed any.

    Args:
        folder: folder of the query's checkpoint.

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

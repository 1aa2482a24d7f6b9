"""Planner of a batch query, on the driver: it turns the options into offset ranges and splits."""

from __future__ import annotations

import logging
from uuid import UUID

from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import OffsetRange, Split, TopicPartition
from tiered_stream.options.parsing import Options
from tiered_stream.plan.broker_splits import BrokerSplitMarker
from tiered_stream.plan.data_loss import DataLossPolicy, check_topic_ids
from tiered_stream.plan.offset_lookup import OffsetLookup
from tiered_stream.plan.pruning import NeededSegments, Pruning
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.starting import batch_ranges

logger = logging.getLogger(__name__)


def plan_batch(options: Options, source: LogSource, pruning: Pruning | None = None) -> list[Split]:
    """Return the splits of a batch query; `earliest` and `latest` in the options mean the current log starts and ends.

    Segments that `pruning` excludes are in no split, and a log line says how many there are.

    Raises:
        ConfigurationError: positions in the options do not fit, no storage can be read with `remote.fallback=fail`, or
            there are too many splits for the driver's memory.
        DataLossError, OpenTransactionError: offsets cannot be read (`batch_ranges`).
        BrokerError, StorageError, CorruptDataError: offsets or segments cannot be looked up.
    """
    left_to_brokers = BrokerSplitMarker(options, source)
    ranges, topic_ids = batch_offsets(options, source)
    needed = None
    if pruning is not None:
        needed = NeededSegments(pruning.times.from_ms if pruning.times else 0, pruning.offsets, look_inside=True)

    def plan() -> list[Split]:
        if pruning is None or needed is None:
            return splits_for(ranges, options, source.locator, topic_ids)
        pruned = pruning.ranges(ranges)
        splits = splits_for(pruned, options, source.locator, topic_ids, needed)
        logger.info(
            "the query's filters leave %d of %d partitions, and %d of the %d tiered segments at the wanted offsets "
            "(%d of %d bytes)",
            len(pruned), len(ranges), len(needed.needed_bytes), len(needed.needed_bytes) + len(needed.skipped_bytes),
            sum(needed.needed_bytes.values()), sum(needed.needed_bytes.values()) + sum(needed.skipped_bytes.values()),
        )  # fmt: skip
        return splits

    splits = plan()
    if needed is not None and needed.skipped_bytes:
        return splits  # segments were located, though the query needs none of those
    return list(left_to_brokers.marked(splits, plan))


def batch_offsets(options: Options, source: LogSource) -> tuple[dict[TopicPartition, OffsetRange], dict[str, UUID]]:
    """Return by partition the offset range that a batch query reads, and by topic name the ids of the query's topics.

    Raises:
        ConfigurationError: a start lies beyond its end, or positions do not fit the partitions.
        DataLossError: `failOnDataLoss` is true, and a range reaches beyond its log, or a topic's id differs from the id
            in the options.
        OpenTransactionError: `failOnDataLoss` is true, and an end lies beyond the first offset of an open transaction.
        BrokerError, StorageError: offsets cannot be looked up.
    """
    lookup = OffsetLookup.of(options, source.offset_reader)
    # Look up ids before offsets: if a topic is recreated in between, the tasks notice that its id is another one.
    topic_ids = lookup.assignment().topic_ids
    ranges = batch_ranges(options, lookup)
    check_topic_ids(options.topic_ids, topic_ids, DataLossPolicy(options.fail_on_data_loss))
    return ranges, topic_ids

"""Cost of the read of a batch query, computed from the query's plan without reading a record."""

from __future__ import annotations

from contextlib import closing

from tiered_stream.locate.log_source import LogSource, open_log_source
from tiered_stream.model import PartitionRanges, Split
from tiered_stream.options.parsing import Options
from tiered_stream.plan.batch import batch_offsets
from tiered_stream.plan.read_cost import PartitionCost, Prices, ReadCost, total_costs
from tiered_stream.plan.splits import splits_for


def planned_cost(options: Options, tasks: int, prices: Prices) -> ReadCost:
    """Plan the batch query, and return the cost of its read with `tasks` parallel tasks.

    Args:
        options: options of the batch query.
        prices: the storage's prices of requests and bytes.

    Raises:
        ConfigurationError: a start lies beyond its end, or positions do not fit the partitions.
        DataLossError: offsets to read are no longer in a log, or a topic was deleted and created again.
        OpenTransactionError: an end lies beyond the first offset of an open transaction.
        BrokerError, StorageError: offsets or segments cannot be looked up.
    """
    with closing(open_log_source(options)) as source:
        ranges, topic_ids = batch_offsets(options, source)
        partitions = cost_of(ranges, splits_for(ranges, options, source.locator, topic_ids), options, source)
    rate = options.max_bytes_per_second
    return ReadCost(partitions=partitions, tasks=tasks, max_bytes_per_second=rate and rate * tasks, prices=prices)


def cost_of(
    ranges: PartitionRanges, splits: list[Split], options: Options, source: LogSource
) -> tuple[PartitionCost, ...]:
    """Return the cost of reading each partition's offset range, sorted by partition.

    Args:
        splits: all splits of the ranges.
        source: log source that has located the splits.
    """
    costs = {partition: PartitionCost.of(partition, offsets) for partition, offsets in ranges.items()}
    return total_costs(costs, splits, options, source)

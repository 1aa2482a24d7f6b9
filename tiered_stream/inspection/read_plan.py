"""Cost of the read of a batch query, computed from the query's plan without reading a record."""

from __future__ import annotations

from contextlib import closing

from tiered_stream.locate.log_source import open_log_source
from tiered_stream.options.parsing import Options
from tiered_stream.plan.batch import batch_offsets
from tiered_stream.plan.read_cost import Prices, ReadCost, total_costs
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
        partitions = total_costs(ranges, splits_for(ranges, options, source.locator, topic_ids), options, source)
    rate = options.max_bytes_per_second
    return ReadCost(partitions=partitions, tasks=tasks, max_bytes_per_second=rate and rate * tasks, prices=prices)

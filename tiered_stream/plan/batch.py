"""The driver's side of a batch query."""

from __future__ import annotations

from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import Split
from tiered_stream.options.parsing import Options
from tiered_stream.plan.data_loss import DataLossPolicy
from tiered_stream.plan.lookup import OffsetLookup
from tiered_stream.plan.partitions import check_topic_ids
from tiered_stream.plan.splits import splits_for
from tiered_stream.plan.starting import batch_ranges


def plan_batch(options: Options, source: LogSource) -> list[Split]:
    """The splits of a batch query; earliest and latest are those of this moment.

    Raises:
        ConfigurationError: a start lies beyond its end, or positions do not fit the partitions.
        DataLossError: as `starting.batch_ranges`, or a topic's id is not the one that the options pin it to.
        BrokerError, StorageError: offsets or locations cannot be had.
    """
    lookup = OffsetLookup.of(options, source.offset_reader)
    # Before the offsets: those of a topic that is made again in between do not fit its id, and tasks notice.
    topic_ids = lookup.assignment().topic_ids
    ranges = batch_ranges(options, lookup)
    check_topic_ids(options.topic_ids, topic_ids, DataLossPolicy(options.fail_on_data_loss))
    return splits_for(ranges, options, source.locator, topic_ids)

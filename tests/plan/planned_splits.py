"""Splits of made-up plans, whose limits need no text of options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from tiered_stream.locate.locator import Locator
from tiered_stream.model import PartitionRanges, Split
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.pruning import NeededSegments
from tiered_stream.plan.splits import splits_for

_OPTIONS = parse_options({"kafka.bootstrap.servers": "nowhere:9092", "subscribe": "t"}, streaming=False)


def plan_splits(
    ranges: PartitionRanges,
    locator: Locator | None,
    *,
    split_bytes: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    topic_ids: Mapping[str, UUID] | None = None,
    needed: NeededSegments | None = None,
) -> list[Split]:
    """Splits without the ids of their topics."""
    options = replace(
        _OPTIONS, split_bytes=split_bytes, min_partitions=min_partitions,
        max_records_per_partition=max_records_per_partition,
    )  # fmt: skip
    return [replace(split, topic_id=None) for split in splits_for(ranges, options, locator, topic_ids or {}, needed)]

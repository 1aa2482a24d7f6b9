"""Checks that the splits of a query fit into the memory of the driver, before they are made."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import Split
from tiered_stream.options.remote_options import SPLIT_BYTES
from tiered_stream.options.spark_options import (
    MAX_BYTES_PER_TRIGGER,
    MAX_OFFSETS_PER_TRIGGER,
    MAX_RECORDS_PER_PARTITION,
    MIN_PARTITIONS,
)
from tiered_stream.process.resources import free_memory

MEMORY_OF_SPLIT = 8 << 10
"""Estimated bytes of the driver's memory for each split: the split, its pickled input partition in Python and in the
JVM, and Spark's task."""
_MIN_CHECKED = 100_000
"""Number of splits below which free memory is not looked up, because the splits fit in any case."""
_GIB = 1 << 30


def check_demanded_splits(sizes: Collection[int], min_partitions: int | None, max_records: int | None) -> None:
    """Check that the splits that two options demand fit into the driver's memory, before any split is made.

    Args:
        sizes: numbers of offsets of the partitions.
        min_partitions: value of `minPartitions`; None: it is not set.
        max_records: value of `maxRecordsPerPartition`; None: it is not set.

    Raises:
        ConfigurationError: the splits do not fit.
    """
    if max_records:
        count = sum(-(-size // max_records) for size in sizes)
        _check(count, f"{MAX_RECORDS_PER_PARTITION.name}={max_records} makes", "raise the option")
    if min_partitions:
        count = min(min_partitions, sum(sizes))
        _check(count, f"{MIN_PARTITIONS.name}={min_partitions} asks for", "lower the option")


def check_plan_fits(uncut: Iterable[Split], split_bytes: int) -> None:
    """Check that the splits into which `uncut` is cut fit into the driver's memory.

    Each of the resulting splits has about `split_bytes`, and at least one offset. If they did not fit, the system would
    kill a process of the driver while it plans, and would name no reason.

    Raises:
        ConfigurationError: the splits do not fit.
    """
    size = count = 0
    for split in uncut:
        size += split.storage_bytes
        count += max(1, min(split.storage_bytes // split_bytes, len(split.offsets)))
    _check(count, f"it reads {size / _GIB:,.0f} GiB in", f"raise {SPLIT_BYTES.name} ({split_bytes} bytes)")


def _check(count: int, cause: str, fix: str) -> None:
    if count < _MIN_CHECKED:
        return
    available, needed = free_memory(), count * MEMORY_OF_SPLIT
    if available is not None and needed > available:
        raise ConfigurationError(
            f"the plan does not fit into the driver's memory: {cause} {count:,} splits. They need about "
            f"{needed / _GIB:,.1f} GiB, and {available / _GIB:,.1f} GiB are free. Read fewer topics, or fewer offsets "
            f"(in a stream: {MAX_BYTES_PER_TRIGGER.name}, {MAX_OFFSETS_PER_TRIGGER.name}), or {fix}"
        )

"""Refusal of a plan that would not fit into the memory of the driver."""

from __future__ import annotations

from collections.abc import Iterable

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import Split
from tiered_stream.options.remote_options import SPLIT_BYTES
from tiered_stream.options.spark_options import MAX_BYTES_PER_TRIGGER, MAX_OFFSETS_PER_TRIGGER
from tiered_stream.process.resources import free_memory

MEMORY_OF_SPLIT = 8 << 10
"""Estimated memory of the driver for each split: the split, its pickled input partition in Python and in the JVM, and
Spark's task."""
_MIN_CHECKED = 100_000
"""Number of splits below which the memory is not looked up."""
_GIB = 1 << 30


def check_plan_fits(uncut: Iterable[Split], split_bytes: int) -> None:
    """Check that the splits into which `uncut` is cut fit into the driver's memory.

    They have about `split_bytes` each, and at least one offset. If they did not fit, the system would kill a process of
    the driver while it plans, which names no reason.

    Raises:
        ConfigurationError: they do not fit.
    """
    size = count = 0
    for split in uncut:
        size += split.storage_bytes
        count += max(1, min(split.storage_bytes // split_bytes, len(split.offsets)))
    if count < _MIN_CHECKED:
        return
    available, needed = free_memory(), count * MEMORY_OF_SPLIT
    if available is not None and needed > available:
        raise ConfigurationError(
            f"the plan does not fit into the driver's memory: it reads {size / _GIB:,.0f} GiB in {count:,} splits. "
            f"They need about {needed / _GIB:,.1f} GiB, and {available / _GIB:,.1f} GiB are free. Read fewer topics, "
            f"or fewer offsets (in a stream: {MAX_BYTES_PER_TRIGGER.name}, {MAX_OFFSETS_PER_TRIGGER.name}), or raise "
            f"{SPLIT_BYTES.name} ({split_bytes} bytes)"
        )

"""Splits put together into tasks, so that small segments, of several partitions even, share a file."""

from __future__ import annotations

from collections.abc import Sequence

from tiered_stream.plan.splits import Split

SMALLEST_TASK_BYTES = 8 << 20
"""Below this, a task of its own costs more than it gains."""
FILES = 4
"""Of one task: at its start a core waits for the first bytes, so that fewer tasks are quicker."""
ASSUMED_RECORD_BYTES = 256
"""For splits that come from a broker: their size is not known beforehand."""


def tasks_of(splits: Sequence[Split], *, target_bytes: int, parallelism: int) -> list[tuple[Split, ...]]:
    """Neighbours together, up to `FILES` files of `target_bytes`, as long as there is work for `parallelism` tasks."""
    sizes = [split.storage_bytes or len(split.offsets) * ASSUMED_RECORD_BYTES for split in splits]
    share = -(-sum(sizes) // parallelism)
    most = min(FILES * target_bytes, max(SMALLEST_TASK_BYTES, share))
    tasks: list[list[Split]] = []
    filled = most
    for split, size in zip(splits, sizes, strict=True):
        if filled and filled + size / 2 > most:
            tasks.append([])
            filled = 0
        tasks[-1].append(split)
        filled += size
    return [tuple(task) for task in tasks]

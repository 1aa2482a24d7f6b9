"""Splits put together into tasks, so that small segments, of several partitions even, share a file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from tiered_stream.plan.splits import Split

SMALLEST_TASK_BYTES = 8 << 20
"""Below this, a task of its own costs more than it gains."""
FILES = 4
"""Of one task: at its start a core waits for the first bytes, so that fewer tasks are quicker."""
ASSUMED_RECORD_BYTES = 256
"""For splits that come from a broker: their size is not known beforehand."""


def tasks_of(splits: Sequence[Split], *, target_bytes: int, parallelism: int) -> list[tuple[Split, ...]]:
    """Neighbours together, in tasks of about the same size, so that none is waited for.

    A task has about `FILES` files of `target_bytes`, or less where else there were fewer than `parallelism` tasks.
    """
    sizes = [split.storage_bytes or len(split.offsets) * ASSUMED_RECORD_BYTES for split in splits]
    total = sum(sizes)
    share = -(-total // parallelism)
    most = min(FILES * target_bytes, max(SMALLEST_TASK_BYTES, share))
    tasks: list[list[Split]] = [[] for _ in range(max(1, round(total / most)))]
    middles = (end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True))
    for split, middle in zip(splits, middles, strict=True):
        tasks[int(middle * len(tasks) / total)].append(split)
    return [tuple(task) for task in tasks if task]

"""Splits put together into tasks, so that small segments, of several partitions even, share a file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from tiered_stream.model import Split

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
    share = -(-sum(sizes) // parallelism)
    most = min(FILES * target_bytes, max(SMALLEST_TASK_BYTES, share))
    # No split is more than a task: one from a broker may span a gap of any length in the offsets.
    weights = [min(size, most) for size in sizes]
    total = sum(weights)
    tasks: list[list[Split]] = [[] for _ in range(max(1, round(total / most)))]
    for split, weight, end in zip(splits, weights, accumulate(weights), strict=True):
        # By where its middle lies in the whole; in whole numbers, so that none is rounded up to the end.
        tasks[(2 * end - weight) * len(tasks) // (2 * total)].append(split)
    return [tuple(task) for task in tasks if task]

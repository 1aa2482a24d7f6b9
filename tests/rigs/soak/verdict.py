"""Whether a figure is flat: the median of a run's last quarter against that of its second."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.rigs.soak.held import DESCRIPTORS, FILES, MEMORY, SIZE, THREADS

DRIVER, JVM, WORKERS, GATEWAY = "driver's Python", "driver's JVM", "Python workers", "gateway"
HEAP, OTHER = "JVM heap after a full collection, MiB", "JVM metaspace and compiled code, MiB"
CHECKPOINTS, TEMPORARY, TABLE_LOGS = "checkpoints", "temporary folder", "logs of the tables"


@dataclass(frozen=True)
class Bound:
    """How much a figure may grow from the second quarter to the last, and why at all."""

    figure: str
    growth: float
    why: str


_WORKERS = "Spark ends workers that are idle, and starts them when tasks coincide"
_CLIENTS = "clients that are connected at that moment"
BOUNDS = (
    Bound(f"{GATEWAY}: {MEMORY}", 8, "indexes of segments that are gone, until the cache is full"),
    Bound(f"{GATEWAY}: {DESCRIPTORS}", 4, _CLIENTS),
    Bound(f"{GATEWAY}: {THREADS}", 1, "its pools start threads when they are needed"),
    Bound(f"{DRIVER}: {MEMORY}", 24, "deltalake opens the table for a commit: its state, some 9 KB more after each"),
    Bound(f"{DRIVER}: {DESCRIPTORS}", 2, "connections to the JVM"),
    Bound(f"{DRIVER}: {THREADS}", 2, "one for each connection to the JVM"),
    Bound(f"{WORKERS}: {MEMORY}", 32, _WORKERS),
    Bound(f"{WORKERS}: {DESCRIPTORS}", 12, _WORKERS),
    Bound(f"{WORKERS}: {THREADS}", 6, _WORKERS),
    Bound(HEAP, 16, "Delta's state of the tables, which get files all the time"),
    Bound(OTHER, 16, "Java compiles what has run often, hours after the start too"),
    Bound(
        f"{JVM}: {MEMORY}", 48, "all of the heap is there from the start; compiled code, and the C allocator's arenas"
    ),
    Bound(f"{JVM}: {DESCRIPTORS}", 8, "a file or socket more at that moment"),
    Bound(f"{JVM}: {THREADS}", 4, "pools that shrink and grow"),
    Bound(f"{CHECKPOINTS}: {FILES}", 6, "Spark clears away behind the queries"),
    Bound(f"{CHECKPOINTS}: {SIZE}", 0.1, "offsets get more digits"),
    Bound(f"{TEMPORARY}: {FILES}", 10, "a shuffle or broadcast at that moment"),
    Bound(f"{TEMPORARY}: {SIZE}", 1, "the same"),
)


@dataclass(frozen=True)
class Verdict:
    """`second` and `last` are medians."""

    bound: Bound
    second: float
    last: float

    @property
    def flat(self) -> bool:
        return self.last <= self.second + self.bound.growth


def judge(samples: Sequence[Mapping[str, float]], bounds: Sequence[Bound] = BOUNDS) -> list[Verdict]:
    """One verdict a bound. Samples are a like time apart; the first quarter of them is warm-up."""
    quarter = len(samples) // 4
    parts = samples[quarter : 2 * quarter], samples[-quarter:]
    return [
        Verdict(bound, *(statistics.median(sample[bound.figure] for sample in part) for part in parts))
        for bound in bounds
    ]

"""Whether cost grows straight with the work, apart from start-up: four and sixteen times A beside A."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tests.rigs.bench.figures import Row, spread
from tests.rigs.bench.noop import OURS, noop_seconds
from tests.rigs.bench.rig import WARM_UP, Rig
from tests.rigs.bench.shapes import Shape
from tests.rigs.bench.turns import Contender, take_turns

BASE = "A"
TIMES = (4, 16)
_WORST, _BEST = 0.85, 0.95
"""Of straight: what a record of A takes, by what one of the larger topic does."""


@dataclass(frozen=True)
class Growth:
    """Names of contenders: `larger` is so many times `base`, and `start` is next to nothing."""

    base: str
    larger: str
    start: str
    times: float


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """A row for each size; one that is not there yet is made."""
    base = rig.topic(BASE)
    larger = {f"{times} times {BASE}": rig.made(_times(rig, times)) for times in TIMES}
    shapes = {WARM_UP: rig.topic(WARM_UP), BASE: base, **larger}
    seconds = take_turns({name: _noop(rig, shape) for name, shape in shapes.items()}, runs)
    for name, shape in larger.items():
        yield straight(f"S {name}", OURS, Growth(BASE, name, WARM_UP, shape.rows / base.rows), seconds)


def straight(workload: str, subject: str, growth: Growth, seconds: Mapping[str, list[float]]) -> Row:
    """`against_seconds` are those of the larger one if each of its parts took what one of the base takes."""
    own, least, starts = (seconds[each] for each in (growth.larger, growth.base, growth.start))
    grown = [start + (few - start) * growth.times for few, start in zip(least, starts, strict=True)]
    ratios = [(all_of_it - start) / (took - start) for all_of_it, took, start in zip(grown, own, starts, strict=True)]
    against = f"straight from {growth.base}"
    return Row(workload, subject, against, spread(own), spread(grown), spread(ratios), _WORST, _BEST, {})


def _times(rig: Rig, times: int) -> Shape:
    known = rig.shapes.get(f"{BASE}{times}")
    return known or replace(rig.shapes[BASE], name=f"{BASE}{times}", records=rig.shapes[BASE].records * times)


def _noop(rig: Rig, shape: Shape) -> Contender:
    run = partial(noop_seconds, rig.spark, "tiered_stream", rig.options(shape))
    return Contender(run, shape.rows, partial(rig.settle, shape))

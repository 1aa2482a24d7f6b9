"""Whether cost grows straight with the work: four and sixteen times A beside A, each apart from its start-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from tests.bench.figures import Row, spread
from tests.bench.noop import OURS, noop_seconds
from tests.bench.rig import WARM_UP, Rig
from tests.bench.shapes import Shape
from tests.bench.turns import Contender, take_turns

BASE = "A"
TIMES = (4, 16)
_WORST, _BEST = 0.85, 0.95
"""Of straight: what a record of A takes, by what one of the larger topic does."""


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """A row for each size; one that is not there yet is made."""
    base = rig.topic(BASE)
    larger = {f"{times} times {BASE}": rig.made(_times(rig, times)) for times in TIMES}
    shapes = {WARM_UP: rig.topic(WARM_UP), BASE: base, **larger}
    seconds = take_turns({name: _noop(rig, shape) for name, shape in shapes.items()}, runs)
    for name, shape in larger.items():
        yield straight(f"S {name}", seconds, shape, base, name)


def straight(workload: str, seconds: Mapping[str, list[float]], shape: Shape, base: Shape, name: str) -> Row:
    """`against_seconds` are those that the topic would take if each record took what one of the base takes."""
    own, least, starts = (seconds[each] for each in (name, BASE, WARM_UP))
    grown = [
        start + (few - start) * shape.rows / base.rows for few, start in zip(least, starts, strict=True)
    ]  # fmt: skip
    ratios = [(all_of_it - start) / (took - start) for all_of_it, took, start in zip(grown, own, starts, strict=True)]
    return Row(workload, OURS, f"straight from {BASE}", spread(own), spread(grown), spread(ratios), _WORST, _BEST, {})


def _times(rig: Rig, times: int) -> Shape:
    known = rig.shapes.get(f"{BASE}{times}")
    return known or replace(rig.shapes[BASE], name=f"{BASE}{times}", records=rig.shapes[BASE].records * times)


def _noop(rig: Rig, shape: Shape) -> Contender:
    run = partial(noop_seconds, rig.spark, "tiered_stream", rig.options(shape))
    return Contender(run, shape.rows, partial(rig.settle, shape))

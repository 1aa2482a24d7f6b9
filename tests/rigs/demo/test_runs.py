"""How the demo times runs, and what its picture shows."""

from __future__ import annotations

import json
import os
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.rigs.demo.race import Landed, micro_batches
from tests.rigs.demo.runs import Run, checkpoint_of, timed
from tests.rigs.demo.throughput import draw
from tests.rigs.stack.broker_counters import Counters
from tiered_stream.observe.read_metrics import ReadMetrics

COST = ReadMetrics()


def written(file: Path, time: float, text: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (time, time))


def test_a_run_begins_with_its_own_first_micro_batch_and_ends_with_the_last_commit(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path / "table")
    for name, began, committed in (("0", 90, 99), ("1", 105, 107), ("2", 107.5, 112)):
        written(checkpoint / "offsets" / name, began)
        written(checkpoint / "commits" / name, committed)
        written(checkpoint / "commits" / f".{name}.crc", 200)
    assert timed(tmp_path / "table", 100, COST) == Run(5, 7, COST)


def test_rows_count_when_they_are_committed(tmp_path: Path) -> None:
    def added(rows: int) -> str:
        return json.dumps({"add": {"path": "f", "stats": json.dumps({"numRecords": rows})}})

    log = tmp_path / "_delta_log"
    written(log / "00.json", 101, json.dumps({"protocol": {}}))
    written(log / "01.json", 103, f"{added(2)}\n{added(3)}\n")
    written(log / "02.json", 104, added(4))
    assert micro_batches(tmp_path, 100) == ((3, 5), (4, 4))


def test_both_curves_have_the_same_rows_below_them() -> None:
    def landed(*batches: tuple[float, int]) -> Landed:
        return Landed(Run(1, batches[-1][0] - 1, COST), Counters(0, 0, 0), batches)

    picture = draw({"one": landed((2, 10), (3, 30)), "other": landed((11, 40))}, "a title")
    ElementTree.fromstring(picture)
    one, other = (area(points) for points in re.findall(r'<polygon points="([^"]+)"', picture))
    assert one == pytest.approx(other, rel=0.01)


def area(points: str) -> float:
    corners = [tuple(map(float, point.split(","))) for point in points.split()]
    corners.append(corners[0])
    return abs(sum(x * v - u * y for (x, y), (u, v) in pairwise(corners))) / 2

"""The rig of `make soak BATCHES=N`: missing and repeated records are found, and processes are told apart."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.rigs.soak.batches import Driver, batches_done, beyond
from tests.rigs.soak.held import Process
from tests.rigs.soak.marks import (
    BATCHES,
    DRIVER,
    JVM,
    PLANNER,
    SECONDS,
    SERVER,
    WORKERS,
    figures,
    kinds,
    report,
    sockets_of,
)
from tests.rigs.soak.ways import KEYS, PLAIN, TABLES, TOPICS, WAYS, Arrivals, Way, check_latest, check_offsets

SERVES = ["python", "-m", "tiered_stream.pythons.fork_server"]


def test_an_offset_that_is_missing_twice_or_late_is_a_fault() -> None:
    arrivals = Arrivals()
    arrivals.add(3, 0, 2)
    arrivals.add(3, 3, 5)
    assert (arrivals.next_offset, arrivals.faults) == (6, [])
    for rows, first, last in ((3, 7, 9), (3, 7, 9), (2, 10, 12)):
        arrivals.add(rows, first, last)
    assert len(arrivals.faults) == 3


def test_rows_must_have_each_offset_once() -> None:
    check_offsets(pa.table({"offset": [2, 0, 1]}), range(3))
    for offsets in ([0, 1], [0, 1, 1], [0, 1, 2, 2], [0, 1, 3]):
        with pytest.raises(AssertionError):
            check_offsets(pa.table({"offset": offsets}), range(3))


def test_a_table_of_the_latest_state_must_have_the_last_record_of_each_key(tmp_path: Path) -> None:
    records = range(2 * KEYS)
    rows = [{"key": f"{number % KEYS:05}", "value": str(number), "offset": number} for number in records]
    write_deltalake(tmp_path / "right", pa.Table.from_pylist(rows[KEYS:]))
    assert check_latest(tmp_path / "right", len(records)) == "200 records became the last rows of 100 keys"
    write_deltalake(tmp_path / "late", pa.Table.from_pylist([rows[0], *rows[KEYS + 1 :]]))
    with pytest.raises(AssertionError):
        check_latest(tmp_path / "late", len(records))


def test_forks_of_the_fork_server_are_told_apart() -> None:
    processes = [
        Process(1, 0, "python"), Process(2, 1, "java"), Process(3, 1, "python", SERVES),
        Process(4, 3, "python", SERVES), Process(5, 3, "python", SERVES), Process(6, 5, "python", SERVES),
        Process(7, 2, "python", ["python", "-I", "fork_client.py"]),
    ]  # fmt: skip
    assert kinds(1, processes) == {DRIVER: [1], PLANNER: [4], SERVER: [3], WORKERS: [5, 6], JVM: [2]}


def test_every_way_has_its_topics_and_each_figure_is_measured(tmp_path: Path) -> None:
    for name in WAYS:
        way = Way(name, str(tmp_path / name), 4)
        way.write_topics()
        assert len(way.topics) == (TOPICS if name == TABLES else 1)
        assert len(list(Path(way.folder, "bucket").rglob("*.log"))) == len(way.topics)
    commits = tmp_path / PLAIN / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    assert batches_done(commits.parent) == 0
    for number in range(12):
        (commits / str(number)).touch()
    assert batches_done(commits.parent) == 12
    found = figures(os.getpid(), Way(PLAIN, str(tmp_path / PLAIN), 4), tmp_path, {"heap": 1 << 20, "other": 0})
    assert found["checkpoint: files"] == 12
    assert found["driver's Python: threads"] >= 1 and found["planner: threads"] == 0
    assert sockets_of([os.getpid()]) >= 0


def test_the_table_has_a_column_for_each_mark() -> None:
    marks = [{BATCHES: count, SECONDS: 0.5, "sockets": 7.0} for count in (1000, 10_000)]
    assert report("direct lane", marks).splitlines() == [
        "| direct lane | 1,000 | 10,000 |", "|---|---:|---:|",
        "| seconds for each micro-batch since the last mark | 0.500 | 0.500 |", "| sockets | 7 | 7 |",
    ]  # fmt: skip


@pytest.mark.starts_spark
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_short_run_of_each_way_loses_nothing(tmp_path: Path, way: str) -> None:
    from tests.observe.otlp_collector import OtlpCollector

    with OtlpCollector() as collector:
        driver = Driver(way, str(tmp_path / way), 20, collector.endpoint)
        driver.run_in_process()
    assert "arrived" in driver.outcome.read_text() and beyond(20) == 20

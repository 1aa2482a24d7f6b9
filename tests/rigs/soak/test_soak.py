"""The rig of `make soak`: a short run counts every record, what grows is told, and so is a record that is missing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.rigs.soak.driver import TRIGGERS
from tests.rigs.soak.produced import Count, count, record
from tests.rigs.soak.run import BOUNDS, MINUTES, Bound, judge, run

BOUND = Bound("threads", 1, "chance")


@pytest.mark.starts_spark
@pytest.mark.slow
def test_a_short_run_counts_every_record_in_either_lane(tmp_path: Path) -> None:
    outcome = run(tmp_path, minutes=0.5)
    assert set(outcome.counts) == set(TRIGGERS)
    for found in outcome.counts.values():
        assert found.records and found == Count(found.records, lost=0, doubled=0, foreign=0)
    assert outcome.aborted_records and outcome.clients
    assert judge(outcome.samples, BOUNDS), "each figure that has a bound was measured"


def test_what_grows_after_warming_up_is_not_flat() -> None:
    def flat(values: list[float]) -> bool:
        (verdict,) = judge([{MINUTES: float(minute), "threads": value} for minute, value in enumerate(values)], [BOUND])
        return verdict.flat

    assert flat([1, 1, 9, 9, 9, 9, 10, 10])
    assert not flat([1, 2, 3, 4, 5, 6, 7, 8])


def _write(table: Path, keys: list[bytes], values: list[bytes]) -> None:
    write_deltalake(table, pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}))


def test_records_that_are_lost_doubled_or_foreign_are_counted(tmp_path: Path) -> None:
    keys, values = map(list, zip(*(record("txn0", number) for number in range(10)), strict=True))
    sent = {"txn0": 10}
    _write(tmp_path / "whole", keys, values)
    assert count(tmp_path / "whole", sent) == Count(10, lost=0, doubled=0, foreign=0)
    _write(tmp_path / "lost", keys[1:], values[1:])
    assert count(tmp_path / "lost", sent) == Count(9, lost=1, doubled=0, foreign=0)
    _write(tmp_path / "doubled", [*keys, keys[3]], [*values, values[3]])
    assert count(tmp_path / "doubled", sent) == Count(11, lost=0, doubled=1, foreign=0)
    _write(tmp_path / "foreign", keys, [*values[:-1], values[0]])
    assert count(tmp_path / "foreign", sent) == Count(10, lost=0, doubled=0, foreign=1)
    _write(tmp_path / "nobody's", keys, values)
    assert count(tmp_path / "nobody's", {}) == Count(0, lost=0, doubled=0, foreign=10)

"""The rig itself, small: every table that Debezium's changes are landed in is equal to the database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.debezium.landing import MODES, LandingJob
from tests.rigs.debezium.postgres import why_no_postgres
from tests.rigs.debezium.rig import Rig
from tests.rigs.debezium.tables import SHAPES, VARIANTS, tables

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    if missing := why_no_postgres():
        pytest.skip(missing)
    with Rig(tmp_path_factory.mktemp("debezium"), tables(len(VARIANTS) - len(SHAPES) - 1), seed=1) as running:
        yield running


@pytest.mark.parametrize("mode", MODES)
def test_every_table_is_equal_to_the_database(rig: Rig, tmp_path: Path, mode: str) -> None:
    job = LandingJob(tmp_path / "lake", rig.stack, rig.tables, mode, seed=1)
    rig.land(job, kills=2, rate=10)
    assert rig.differences(job, mode) == []
    tiered, records = rig.tiered_share()
    assert tiered > records / 2

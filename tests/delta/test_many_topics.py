"""As `python -m tests.delta.many_topics`, with fewer topics and kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.delta.many_topics import land_all

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.mark.parametrize("commit", ["spark", "deltalake"])
def test_a_driver_that_is_killed_among_many_tables_lands_every_record_once(tmp_path: Path, commit: str) -> None:
    run = land_all(tmp_path, topics=20, kills=2, batches=3, seed=7, **{"ingest.commit": commit})
    assert run.commits() == 20 * 3

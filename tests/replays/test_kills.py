"""A replay is killed and goes on. `python -m tests.replays.soak KILLS` does so many times, at random moments."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.replays.soak import DRIVER, STORAGE, soak
from tests.replays.topics import fill_topics
from tests.rigs.stack.tiered_stack import TieredStack

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]


def test_a_replay_killed_and_with_its_storage_away_lands_every_record_once(tmp_path: Path) -> None:
    with TieredStack(tmp_path / "stack") as stack:
        soak(stack, fill_topics(stack, seed=2), tmp_path, [DRIVER, STORAGE], random.Random(2))

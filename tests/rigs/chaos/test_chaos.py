"""One round of what `make chaos` does for as long as it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.chaos.rig import WITHOUT_RETRIES, Rig
from tests.rigs.chaos.rounds import Rounds

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]


@pytest.mark.contract("2.56")
def test_a_round_of_faults_loses_and_doubles_nothing_and_ends_in_no_wrong_error(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rounds = Rounds(rig, seed=1)
        rounds.play(1)
    assert rounds.tally.failures == []
    assert rounds.tally.faults > 10


def test_a_round_of_stalls_that_no_broker_helps_with_loses_and_doubles_nothing_and_ends_in_no_wrong_error(
    tmp_path: Path,
) -> None:
    with Rig(tmp_path, WITHOUT_RETRIES) as rig:
        rounds = Rounds(rig, seed=1, alone=True)
        rounds.play(1)
    assert rounds.tally.failures == []
    assert rounds.tally.faults > 10

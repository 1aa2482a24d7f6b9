"""Others write to the direct lane's table in S3 at the same time; `python -m tests.delta.race` does it at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.delta.race import race
from tests.stack.versitygw import why_no_versitygw

pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.skipif(why_no_versitygw() is not None, reason=why_no_versitygw() or ""),
]


def test_no_commit_is_lost_to_another_writer_of_the_application(tmp_path: Path) -> None:
    outcome = race(tmp_path, commits=12)
    assert (outcome.lost, outcome.doubled) == (0, 0), outcome
    assert outcome.direct_commits >= 12 and sum(outcome.other_commits.values()) > 0


def test_no_commit_is_lost_or_made_twice_when_the_driver_is_killed_in_the_midst_of_it(tmp_path: Path) -> None:
    outcome = race(tmp_path, commits=60, kills=2, bare=True)
    assert (outcome.lost, outcome.doubled, outcome.direct_commits) == (0, 0, 60), outcome

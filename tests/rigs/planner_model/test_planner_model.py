"""A few hundred random lifetimes of `python -m tests.rigs.planner_model`."""

from __future__ import annotations

import random

import pytest

from tests.rigs.planner_model.lifetime import Lifetime


@pytest.mark.parametrize(
    ("lifetimes", "seed"),
    [(300, 1), pytest.param(20_000, random.randrange(10_000), marks=pytest.mark.slow, id="20,000")],
)
def test_no_row_is_lost_or_there_twice_without_an_error_in_a_random_lifetime(lifetimes: int, seed: int) -> None:
    for number in range(1, lifetimes + 1):
        lifetime = Lifetime(f"{seed}-{number}").run()
        assert not lifetime.faults, f"{lifetime.name}: {lifetime.faults}"


def test_a_name_gives_the_same_lifetime_each_time() -> None:
    assert Lifetime("1-7").run().events == Lifetime("1-7").run().events

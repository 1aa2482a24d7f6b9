"""Clients that ask for as much as they can, an honest one beside them. `tests.gateway.greedy` has the figures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.attacks import Memory, attackers
from tests.gateway.greedy import GREEDY, Site, site

pytestmark = [pytest.mark.stack, pytest.mark.slow]

MOST_MIB = 512
MOST_REQUESTS_A_SECOND = 1_000


@pytest.fixture(scope="module")
def here() -> Iterator[Site]:
    with site() as made:
        yield made


@pytest.mark.parametrize("kind", GREEDY)
def test_the_honest_client_is_answered_memory_stays_small_and_the_storage_is_not_flooded(here: Site, kind: str) -> None:
    memory = Memory(here.gateway)
    memory.forget_peak()
    with attackers(here.gateway, kind, here.folder) as attacking:
        here.honest().ask(100)
        assert attacking.running
    assert memory.peak() < MOST_MIB
    # The storage's clock is its own: a request may come a little later than it was sent, and the next one sooner.
    assert here.most_requests_a_second() <= 1.05 * MOST_REQUESTS_A_SECOND

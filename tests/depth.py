"""How many examples the tests draw that draw them at random: few in a quick run, all in a deep run (`DEEP=1`)."""

from __future__ import annotations

import os

DEEP = bool(os.environ.get("DEEP"))
EXAMPLES = 100
"""Examples in a deep run of a test of hypothesis that says no other number."""
_QUICK_PART = 5


def examples(deep: int) -> int:
    """Return how many examples this run draws where a deep run draws `deep`.

    A test that calls this function outside of hypothesis needs the mark `drawn`. In a deep run, all tests that draw
    examples have the mark `slow`, so that `-m slow` runs them.
    """
    return deep if DEEP else -(-deep // _QUICK_PART)

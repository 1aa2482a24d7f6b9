"""How much a run tests: few examples and few cases in a quick run, all in a deep run (`DEEP=1`)."""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

DEEP = bool(os.environ.get("DEEP"))
EXAMPLES = 100
"""Examples in a deep run of a test of hypothesis that says no other number."""
_QUICK_PART = 5
_QUICK_CASES = 3


def examples(deep: int) -> int:
    """Return how many examples this run draws where a deep run draws `deep`.

    A test that calls this function outside of hypothesis needs the mark `drawn`. In a deep run, all tests that draw
    examples have the mark `slow`, so that `-m slow` runs them.
    """
    return deep if DEEP else -(-deep // _QUICK_PART)


def left_out(cases: Iterable[tuple[str, Mapping[str, int]]]) -> Iterator[int]:
    """Yield the positions of the cases that a quick run leaves out: two thirds of each test's.

    The first one that stays depends on the test's name, so that similar tests have different ones. Each further one
    adds the most values of parameters to the values of the cases before.

    Args:
        cases: each with its test, and with the number of each parameter's value.
    """
    tests: dict[str, dict[int, set[tuple[str, int]]]] = defaultdict(dict)
    for position, (test, values) in enumerate(cases):
        tests[test][position] = set(values.items())
    for test, left in tests.items():
        first = list(left)[zlib.crc32(test.encode()) % len(left)]
        kept = left.pop(first)
        for _ in range(len(left) // _QUICK_CASES):
            kept |= left.pop(max(left, key=lambda position: len(left[position] - kept)))
        yield from left

"""Contenders side by side in one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

TURNS = 2

Contender = tuple[Callable[[], float], int]
"""What runs once and tells its seconds, and how many runs of a turn count."""


def take_turns(contenders: Mapping[str, Contender]) -> dict[str, list[float]]:
    """The seconds of each contender's runs that count.

    They take turns, so that a slow stretch of the machine hits all of them. One more run begins each turn and does not
    count: it finds the JVM's compiled code, the page cache and the memory as another contender has left them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(TURNS):
        for name, (run, counted) in contenders.items():
            run()
            seconds[name] += [run() for _ in range(counted)]
    return seconds

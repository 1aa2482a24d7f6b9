"""What the job knows of a parser: how to make a case, and what to do with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tiered_stream.errors import TieredStreamError

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """One parser. `run` takes any bytes, not just those of `make`; it may raise one of `refusals` and nothing else.

    `memory`: the most bytes by which a case may make the process grow.
    """

    name: str
    make: Callable[[Random], bytes]
    run: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (TieredStreamError,)
    memory: int = 64 * MIB

    def case(self, seed: str, number: int) -> bytes:
        """Always the same bytes for the same seed and number."""
        return self.make(Random(f"{seed}/{self.name}/{number}"))

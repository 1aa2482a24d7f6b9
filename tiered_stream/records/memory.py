"""Memory for what is decoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_IDLE = 4
"""Times as much as is used."""


def allocate(rows: int, kind: type[np.generic], columns: int | None = None) -> np.ndarray[Any, Any]:
    """An array of `rows` numbers, or of `rows` times `columns`, whatever they are.

    It is from Arrow's pool, which gives out again what was freed (`process.share_heap_with_arrow`). From malloc as it
    comes, most arrays are so large that each has fresh pages, which the kernel clears first. What is never written to
    never becomes memory in either case.
    """
    count = rows * (1 if columns is None else columns)
    found = np.frombuffer(pa.allocate_buffer(max(1, count) * np.dtype(kind).itemsize), kind)[:count]
    return found if columns is None else found.reshape(rows, columns)


def first(numbers: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """The first `count` of them; where most of the memory would lie idle, in memory of their own."""
    if _IDLE * count >= len(numbers):
        return numbers[:count]
    found = allocate(count, numbers.dtype.type)
    found[:] = numbers[:count]
    return found

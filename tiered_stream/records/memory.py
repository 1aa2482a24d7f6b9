"""Functions that return arrays for decoded data: new arrays, read-only views, and arrays without unused elements."""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    import pyarrow as pa
except ImportError:  # a gateway as one file has no pyarrow, because it decodes no tables
    pa = None

_IDLE = 4
"""Ratio of allocated to used elements above which `first` copies the used elements to a smaller array."""


def allocate(rows: int, kind: type[np.generic], columns: int | None = None) -> np.ndarray[Any, Any]:
    """Return an uninitialized array of type `kind` with `rows` elements, or with the shape (`rows`, `columns`).

    The memory is from Arrow's pool, which reuses freed memory (`heap_and_gc.share_heap_with_arrow`). With plain malloc,
    large arrays would get fresh pages, which the operating system clears first. Pages that are never written take no
    memory. Without pyarrow, numpy allocates the array.
    """
    count = rows * (1 if columns is None else columns)
    if pa is None:
        return np.empty(count if columns is None else (rows, columns), kind)
    array = np.frombuffer(pa.allocate_buffer(max(1, count) * np.dtype(kind).itemsize), kind)[:count]
    return array if columns is None else array.reshape(rows, columns)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a read-only view of an array.

    Kernels are compiled for read-only arrays, and would be compiled again for writable arrays.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def first(numbers: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Return the first `count` elements of `numbers`: a view, or a copy if more than three quarters are not used."""
    if _IDLE * count >= len(numbers):
        return numbers[:count]
    array = allocate(count, numbers.dtype.type)
    array[:] = numbers[:count]
    return array

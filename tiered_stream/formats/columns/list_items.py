"""Functions that take the items out of a column of lists or maps, and put other items in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Offsets = np.ndarray[Any, Any]


def list_items(column: pa.ListArray | pa.MapArray) -> tuple[Offsets, list[pa.Array]]:
    """Return the offsets and the items of a column of lists or maps.

    The items are one array for lists, and two arrays, keys and values, for maps. Row n has the items from `offsets[n]`
    to `offsets[n + 1]`. The offsets begin with 0, even if the column is a slice.
    """
    offsets = column.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    parts = (column.keys, column.items) if pa.types.is_map(column.type) else (column.values,)
    return offsets - first, [part.slice(first, last - first) for part in parts]


def with_items(
    column: pa.ListArray | pa.MapArray, offsets: Offsets, items: Sequence[pa.Array], kind: pa.DataType
) -> pa.ListArray | pa.MapArray:
    """Return a column of the type `kind` with the items `items`, and with the nulls of `column`.

    `offsets` and `items` have the form that `list_items` returns.
    """
    # The offsets are a copy, because Arrow does not accept a mask together with sliced offsets.
    return type(column).from_arrays(pa.array(offsets), *items, type=kind, mask=null_mask(column))


def null_mask(column: pa.Array) -> pa.BooleanArray | None:
    """Return a boolean for each row of a column, True if the row is null; or None if the column has no nulls."""
    return column.is_null() if column.null_count else None


def rows_with(marks: pa.BooleanArray, offsets: Offsets) -> pa.BooleanArray:
    """Return a boolean for each row: True if `marks` is True for at least one of the row's items.

    `marks` has a boolean for each item. Row n has the items from `offsets[n]` to `offsets[n + 1]`.
    """
    before = np.concatenate([[0], np.cumsum(pc.fill_null(marks, False).to_numpy(zero_copy_only=False))])
    return pa.array(before[offsets[1:]] > before[offsets[:-1]])

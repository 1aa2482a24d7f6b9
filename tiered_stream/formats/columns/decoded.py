"""Interface of the decoders of all formats: what they take and what they return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

REASON_SIZE = 200


@dataclass(frozen=True, slots=True)
class Decoded:
    """Values as a column, with a slot for each value, in the values' order.

    A slot is null if the value was null or could not be decoded. For a value that could not be decoded, `reasons` has
    the reason by slot, in one line of at most 200 characters that never contains the whole value.
    """

    column: pa.Array
    reasons: Mapping[int, str]


class ValueDecoder(Protocol):
    """Decoder of values in one format to a column. One thread uses it, for any number of batches."""

    @property
    def kind(self) -> pa.DataType:
        """Return the type of `Decoded.column`. If schemas grow, the column of a batch may have more fields."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; any bytes give a row or a reason. `values` may be a slice, and may hold nulls."""


def spliced(column: pa.Array, rows: dict[int, Any]) -> pa.Array:
    """Return the column with other values in some slots.

    `rows` has by slot, in slot order, the Python value that pyarrow converts.
    """
    if not rows:
        return column
    # A list's scalar is converted, because pyarrow's array of Python values would import pandas.
    others = pa.scalar(list(rows.values()), pa.list_(column.type)).values
    return pa.concat_arrays(list(_pieces(column, others, list(rows))))


def _pieces(column: pa.Array, others: pa.Array, slots: list[int]) -> Iterator[pa.Array]:
    done = 0
    for at, slot in enumerate(slots):
        yield from (column.slice(done, slot - done), others.slice(at, 1))
        done = slot + 1
    yield column.slice(done)


def value_buffers(values: pa.BinaryArray) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return, for a kernel, the bytes, Arrow's offsets into them, and 1 for each null value (empty without nulls)."""
    _, ends, data = values.buffers()
    count = len(values)
    nulls = np.asarray(values.is_null().cast(pa.uint8())) if values.null_count else np.zeros(0, np.uint8)
    return (
        _read_only(np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)),
        _read_only(np.frombuffer(ends, np.int32)[values.offset :][: count + 1] if count else np.zeros(1, np.int32)),
        _read_only(nulls),
    )


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # For writable arrays a kernel would be compiled again.
    array.flags.writeable = False
    return array

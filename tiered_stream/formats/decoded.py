"""What every format's decoder takes and gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

REASON_SIZE = 200


@dataclass(frozen=True, slots=True)
class Decoded:
    """Values as a column, with a slot for each, in their order.

    A slot is null where the value was null, and where it could not be decoded: `reasons` then says why, in one line of
    at most 200 characters, which never has the whole value.
    """

    column: pa.Array
    reasons: Mapping[int, str]


class ValueDecoder(Protocol):
    """Bytes of one format to a column. One thread uses it, for as many batches as there are."""

    @property
    def kind(self) -> pa.DataType:
        """The type of `Decoded.column`; where schemas grow, a batch's own may have more fields."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Any bytes give a row or a reason. `values` may be a slice, and may hold nulls."""


def spliced(column: pa.Array, rows: dict[int, Any]) -> pa.Array:
    """The column with other slots at some places, their rows being what pyarrow makes one of, in order."""
    if not rows:
        return column
    # A list's scalar: pyarrow's array of Python values would import pandas.
    others = pa.scalar(list(rows.values()), pa.list_(column.type)).values
    return pa.concat_arrays(list(_pieces(column, others, list(rows))))


def _pieces(column: pa.Array, others: pa.Array, slots: list[int]) -> Iterator[pa.Array]:
    done = 0
    for at, slot in enumerate(slots):
        yield from (column.slice(done, slot - done), others.slice(at, 1))
        done = slot + 1
    yield column.slice(done)


def value_buffers(values: pa.BinaryArray) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """For a kernel: the bytes, Arrow's offsets into them, and 1 for each value that is null (nothing where none is)."""
    _, ends, data = values.buffers()
    count = len(values)
    nulls = np.asarray(values.is_null().cast(pa.uint8())) if values.null_count else np.zeros(0, np.uint8)
    return (
        _read_only(np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)),
        _read_only(np.frombuffer(ends, np.int32)[values.offset :][: count + 1] if count else np.zeros(1, np.int32)),
        _read_only(nulls),
    )


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # For arrays that may be written to a kernel would be compiled once more.
    array.flags.writeable = False
    return array

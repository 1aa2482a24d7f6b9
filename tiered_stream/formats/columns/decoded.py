"""Interfaces of the decoders of all formats, and functions that replace rows in a decoded column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tiered_stream.errors import CorruptDataError
from tiered_stream.formats.columns.byte_slices import ByteSlices

REASON_SIZE = 200
_MAX_AT_ONCE = 8 << 20
"""Maximum bytes of values whose rows are Python objects at one time, unless a single value is larger."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Result of decoding: a column that has one slot for each value, in the order of the values.

    A slot is null if the value was null or could not be decoded. For a value that could not be decoded, `reasons` has
    the reason by slot, in one line of at most 200 characters that never contains the whole value.
    """

    column: pa.Array
    reasons: Mapping[int, str]


class ValueDecoder(ABC):
    """Decoder of values in one format to a column. Only one thread may use a decoder, for any number of batches."""

    kind: pa.DataType
    """Type of `Decoded.column`. If schemas grow, the column of a batch may have more fields."""

    @abstractmethod
    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> Decoded:
        """Decode `values`. A value that cannot be decoded becomes null and gets a reason.

        `values` may be a slice, and may have nulls. `headers` are the headers of the values' records, which may name
        the values' schemas.
        """


class SlicesDecoder(ValueDecoder):
    """Value decoder that takes its values also as `ByteSlices`."""

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> Decoded:
        return self.read(ByteSlices.of(values))

    @abstractmethod
    def read(self, slices: ByteSlices) -> Decoded:
        """Decode the values of `slices`. A value that cannot be decoded becomes null and gets a reason."""


def with_exact_rows(
    column: pa.Array, slices: ByteSlices, slots: Iterable[int], row: Callable[[bytes], Any], reasons: dict[int, str]
) -> pa.Array:
    """Decode the values with the indexes `slots` one by one in Python; return `column` with their rows in these slots.

    `row` decodes a value to a Python value that pyarrow converts. If `row` raises CorruptDataError, the slot of the
    value is unchanged, and the error's text is added to `reasons` under the slot.
    """
    rows: dict[int, Any] = {}
    size = 0
    for slot in slots:
        value = slices.value(slot)
        try:
            rows[slot] = row(value)
        except CorruptDataError as error:
            reasons[slot] = str(error)[:REASON_SIZE]
        size += len(value)
        if size > _MAX_AT_ONCE:
            column, rows, size = spliced(column, rows), {}, 0
    return spliced(column, rows)


def spliced(column: pa.Array, rows: dict[int, Any]) -> pa.Array:
    """Return `column` with the Python values of `rows` in the slots that are their keys.

    pyarrow converts the Python values to the column's type.
    """
    if not rows:
        return column
    # A list's scalar is converted, because pyarrow's array of Python values would import pandas.
    others = pa.scalar(list(rows.values()), pa.list_(column.type)).values
    sources = np.arange(len(column))
    sources[list(rows)] = len(column) + np.arange(len(rows))
    return taken(pa.concat_arrays([column, others]), sources)


def taken(column: pa.Array, slots: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Return the values of a column at the indexes `slots`, in the order of `slots`."""
    return column.take(pa.Array.from_buffers(pa.int64(), len(slots), [None, pa.py_buffer(slots)]))

"""Byte strings as kernels take them, interfaces of all decoders, and replacement of single rows in a decoded column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from tiered_stream.errors import CorruptDataError
from tiered_stream.records.memory import read_only

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ByteSlices:
    """Byte strings within one array: value i is `data[starts[i]:stops[i]]`, or null if `valid[i]` is 0."""

    data: Array
    starts: Array
    stops: Array
    valid: Array

    @classmethod
    def of(cls, values: pa.BinaryArray) -> ByteSlices:
        (_, ends, data), size = values.buffers(), len(values)
        bounds = np.frombuffer(ends, np.int32)[values.offset :][: size + 1] if size else np.zeros(1, np.int32)
        content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        valid = values.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        return cls(content, bounds[:-1], bounds[1:], valid)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Array) -> ByteSlices:
        """Return the values with the indexes `rows`, in the order of `rows`."""
        return ByteSlices(self.data, self.starts[rows], self.stops[rows], self.valid[rows])

    def after(self, sizes: Array, refused: Collection[int]) -> ByteSlices:
        """Return the values without their first bytes, and null in place of the values with the indexes `refused`.

        `sizes` has the number of bytes to leave out for each value. A value that is not null must have at least this
        number of bytes.
        """
        valid = self.valid.copy()
        valid[list(refused)] = 0
        return ByteSlices(self.data, (self.starts + sizes).astype(np.int32), self.stops, valid)

    def value(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.stops[row]].tobytes()

    def kernel_arguments(self) -> tuple[Array, ...]:
        return tuple(map(read_only, (self.data, self.starts, self.stops, self.valid)))


MAX_BATCH_MEMORY = 256 << 20
"""Maximum memory of the column for a batch of several values, in bytes. A larger batch is decoded in smaller parts."""
MAX_MEMORY = 1 << 30
"""Maximum memory of the column for a single value, in bytes. A value that needs more becomes null."""
TOO_LARGE = "the value takes too much memory"
"""Reason that is reported for a value that needs more than `MAX_MEMORY`."""
REASON_SIZE = 200
_MAX_AT_ONCE = 8 << 20
"""Maximum number of bytes of values whose rows are Python objects at the same time. One larger value is allowed."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Result of decoding: a column that has one slot for each value, in the order of the values.

    A slot is null if the value was null or could not be decoded. For a value that could not be decoded, `reasons` has
    the reason by slot, in one line of at most 200 characters that never contains the whole value.
    """

    column: pa.Array
    reasons: Mapping[int, str]


class LargeBatchError(Exception):
    """Error for a batch whose column needs more than `MAX_BATCH_MEMORY`. The caller decodes it in smaller batches.

    A few bytes may become a large row: each `{}` in an array of wide structs takes bytes in all columns of the struct.
    `fitting` is about the number of values that were decoded before the limit was reached.
    """

    def __init__(self, fitting: int) -> None:
        super().__init__(fitting)
        self.fitting = fitting


def check_batch_memory(memory: int, decoded: int, values: int) -> None:
    """Check the memory of a column while a batch of values is decoded.

    Args:
        memory: bytes that the column takes so far.
        decoded: number of values that the column has so far.
        values: number of values in the batch.

    Raises:
        LargeBatchError: `memory` is more than `MAX_BATCH_MEMORY`, and the batch has several values.
    """
    if values > 1 and memory > MAX_BATCH_MEMORY:
        raise LargeBatchError(decoded)


class ValueDecoder(ABC):
    """Decoder of values in one format to a column. Only one thread may use a decoder, for any number of batches."""

    kind: pa.DataType
    """Type of the decoded column. With schema evolution, a batch may add fields to it or widen its numbers."""

    @abstractmethod
    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> Decoded:
        """Decode `values`; return the column and the reasons. A value that does not decode becomes null with a reason.

        `values` may be a slice, and may have nulls. `headers` are the headers of the values' records. They are needed
        only if they name the values' schemas.

        Raises:
            LargeBatchError: there are several values, and their column needs more than `MAX_BATCH_MEMORY`.
        """


class SlicesDecoder(ValueDecoder):
    """Decoder that takes values as an Arrow array (`decode`) or as `ByteSlices` (`read`)."""

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> Decoded:
        return self.read(ByteSlices.of(values))

    @abstractmethod
    def read(self, slices: ByteSlices) -> Decoded:
        """Decode the values of `slices`. A value that does not decode becomes null, and the result has its reason.

        Raises:
            LargeBatchError: there are several values, and their column needs more than `MAX_BATCH_MEMORY`.
        """


class TextDecoder(ValueDecoder):
    """Decoder of the format `string`: UTF-8 values to a string column. Other bytes become null and get a reason.

    Spark's `CAST(value AS STRING)` does not check whether the bytes are UTF-8.
    """

    kind = pa.string()

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> Decoded:
        with suppress(pa.ArrowInvalid):
            return Decoded(values.cast(pa.string()), {})
        reasons = {}
        for slot, value in enumerate(values.to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                reasons[slot] = f"not UTF-8: {error.reason} at byte {error.start}"
        good = pa.array([slot not in reasons for slot in range(len(values))])
        return Decoded(pc.if_else(good, values, None).cast(pa.string()), reasons)


def with_exact_rows(
    column: pa.Array, slices: ByteSlices, slots: Sequence[int], row: Callable[[bytes], Any], reasons: dict[int, str]
) -> pa.Array:
    """Decode the values with the indexes `slots` one by one in Python; return `column` with the results at the indexes.

    `row` decodes a value to a Python value that pyarrow converts to the column's type. If `row` raises
    CorruptDataError, the column keeps its value at the index, and `reasons` gets the error's text under the index.

    Raises:
        LargeBatchError: there are several values, and their column needs more than `MAX_BATCH_MEMORY`.
    """
    rows: dict[int, Any] = {}
    list_memory = _list_memory(column.type) if slots else None
    size, memory = 0, column.nbytes
    for slot in slots:
        value = slices.value(slot)
        try:
            decoded = row(value)
            needed = 0 if list_memory is None else list_memory(decoded)
            if needed > MAX_MEMORY:
                raise CorruptDataError(TOO_LARGE)
            rows[slot] = decoded
            memory += needed
        except CorruptDataError as error:
            reasons[slot] = str(error)[:REASON_SIZE]
        check_batch_memory(memory, slot, len(slices))
        size += len(value)
        if size > _MAX_AT_ONCE:
            column, rows, size = spliced(column, rows), {}, 0
    return spliced(column, rows)


def _list_memory(kind: pa.DataType) -> Callable[[Any], int] | None:
    """Return a function that estimates how many bytes the elements of a value's lists and maps take in a column.

    The function takes a Python value of the type `kind`. The result is None if `kind` has no lists and no maps.
    """
    if types.is_struct(kind):
        nested = {field.name: memory for field in kind if (memory := _list_memory(field.type)) is not None}
        if not nested:
            return None
        return lambda row: sum(nested[name](row[name]) for name in nested.keys() & row.keys() if row[name] is not None)
    if not (types.is_list(kind) or types.is_map(kind)):
        return None
    key, item = (kind.key_type, kind.item_type) if types.is_map(kind) else (pa.null(), kind.value_type)
    size, within = _slot_memory(key) + _slot_memory(item), _list_memory(item)
    if within is None:
        return lambda items: len(items) * size
    if types.is_map(kind):
        return lambda items: len(items) * size + sum(within(each) for _, each in items if each is not None)
    return lambda items: len(items) * size + sum(within(each) for each in items if each is not None)


def _slot_memory(kind: pa.DataType) -> int:
    """Return an estimate of the bytes that one value of the type `kind` takes in a column, without list elements."""
    if types.is_struct(kind):
        return 1 + sum(_slot_memory(field.type) for field in kind)
    return 0 if types.is_null(kind) else 17 if types.is_decimal(kind) else 9


def spliced(column: pa.Array, rows: dict[int, Any]) -> pa.Array:
    """Return `column` with other values in some rows. `rows` has the new Python values by the index of the row.

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
    """Return the values of `column` at the indexes `slots`, in the order of `slots`."""
    return column.take(pa.Array.from_buffers(pa.int64(), len(slots), [None, pa.py_buffer(slots)]))

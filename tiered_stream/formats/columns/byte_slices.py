"""Values in the form that the kernels take: one array of bytes, and the start and end of each value in this array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

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
        (validity, ends, data), size = values.buffers(), len(values)
        bounds = np.frombuffer(ends, np.int32)[values.offset :][: size + 1] if size else np.zeros(1, np.int32)
        content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        return cls(content, bounds[:-1], bounds[1:], _valid(validity, values.offset, size))

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Array) -> ByteSlices:
        """Return the values with the indexes `rows`, in the order of `rows`."""
        return ByteSlices(self.data, self.starts[rows], self.stops[rows], self.valid[rows])

    def after(self, sizes: Array | int) -> ByteSlices:
        """Return the values without their first bytes.

        `sizes` is the number of bytes to leave out: one number for all values, or one for each value. A value that is
        not null must have at least this number of bytes.
        """
        return ByteSlices(self.data, (self.starts + sizes).astype(np.int32), self.stops, self.valid)

    def only(self, rows: Array) -> ByteSlices:
        """Return the values with null in place of each value whose entry in `rows` (0 or 1 for each value) is 0."""
        return ByteSlices(self.data, self.starts, self.stops, (self.valid * rows).astype(np.uint8))

    def value(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.stops[row]].tobytes()

    def kernel_arguments(self) -> tuple[Array, ...]:
        return tuple(map(read_only, (self.data, self.starts, self.stops, self.valid)))


def _valid(validity: pa.Buffer | None, offset: int, size: int) -> Array:
    if validity is None:
        return np.ones(size, np.uint8)
    return np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[offset : offset + size]

"""Compiled functions for `row_hash.py`, which hash rows in Arrow's buffers (Spark: `XXH64`, `XxHash64Function`).

A row's values are hashed one after the other. The hash of the values so far is the seed for the next value. The seed
for the first value is 42. A null leaves the hash unchanged (Spark: `HashExpression`). Integers are little-endian, like
the machines that run this code.

A column of bytes is the tuple (ends, first row, bytes, validity bits, first bit). It has Arrow's buffers unchanged,
with the row and the bit at which the array's slice begins. A column without nulls has no validity bits.

Every end and every bit is checked against its buffer before it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tiered_stream.records.compiled import Int, kernel
from tiered_stream.records.intrinsics import xxh64

_SEED = np.uint64(42)
_MARKS = np.array([0, 1], np.int32)
"""Integers that are hashed for the results of `IS NULL`, as in Spark: 0 for false, 1 for true, with 32 bits each."""

# Bits of `columns` in `hash_rows`, in the order of `row_hash.HASHED`.
TIMESTAMP, KEY, VALUE, HEADERS = 1, 2, 4, 8


@kernel
def _is_null(bits: Any, at: Int) -> Any:
    return bits.shape[0] > 0 and not bits[at >> 3] >> (at & 7) & 1


@kernel
def _fits(column: Any, row: Int) -> Any:
    """Return whether the ends, the bytes and the validity bit of the row `row` lie within the column's buffers."""
    ends, first_row, values, bits, first_bit = column
    if row < 0 or first_row + row + 1 >= ends.shape[0] or (bits.shape[0] > 0 and first_bit + row >= 8 * bits.shape[0]):
        return False
    return 0 <= ends[first_row + row] <= ends[first_row + row + 1] <= values.shape[0]


@kernel
def _hash_cell(column: Any, row: Int, seed: Any) -> Any:
    ends, first_row, values, bits, first_bit = column
    if _is_null(bits, first_bit + row):
        return seed
    return xxh64(values, np.int64(ends[first_row + row]), np.int64(ends[first_row + row + 1]), seed)


@kernel
def _hash_marked(column: Any, row: Int, seed: Any) -> Any:
    """Return the hash of a null mark and then the value of `column` in the row `row`, continued from the hash `seed`.

    The null mark is the integer 1 if the value is null, otherwise 0.
    """
    _, _, _, bits, first_bit = column
    mark = 4 * np.int64(_is_null(bits, first_bit + row))
    return _hash_cell(column, row, xxh64(_MARKS, mark, mark + 4, seed))


@kernel
def _hash_headers(column: Any, row: Int, seed: Any) -> Any:
    """Return the hash of a row's headers, continued from the hash `seed`, and whether they lie within the buffers.

    `column` is the tuple (lists, keys, values), each in the form of a column of bytes.
    """
    lists, keys, values = column
    ends, first_row, _, bits, first_bit = lists
    if _is_null(bits, first_bit + row):
        return seed, True
    for header in range(np.int64(ends[first_row + row]), np.int64(ends[first_row + row + 1])):
        if not (_fits(keys, header) and _fits(values, header)):
            return seed, False
        seed = _hash_marked(values, header, _hash_cell(keys, header, seed))
    return seed, True


@kernel
def hash_rows(offsets: Any, timestamps: Any, keys: Any, values: Any, headers: Any, columns: Int, hashes: Any) -> Int:
    """Write the hash of each row (int64) into `hashes`; return the number of rows that were hashed.

    Hashing stops at a row whose data is not within the buffers. `columns` has a bit for each column that is hashed
    after the offset, such as `KEY`. Before each key, value and header value, a null mark is hashed: 1 if it is null,
    otherwise 0.
    """
    for row in range(offsets.shape[0]):
        value = xxh64(offsets, 8 * row, 8 * row + 8, _SEED)
        fits = row < timestamps.shape[0] and row < hashes.shape[0]
        if fits and columns & TIMESTAMP:
            value = xxh64(timestamps, 8 * row, 8 * row + 8, value)
        if columns & KEY and fits:
            fits = _fits(keys, row)
            if fits:
                value = _hash_marked(keys, row, value)
        if columns & VALUE and fits:
            fits = _fits(values, row)
            if fits:
                value = _hash_marked(values, row, value)
        if columns & HEADERS and fits:
            fits = _fits(headers[0], row)
            if fits:
                value, fits = _hash_headers(headers, row, value)
        if not fits:
            return row
        hashes[row] = np.int64(value)
    return offsets.shape[0]

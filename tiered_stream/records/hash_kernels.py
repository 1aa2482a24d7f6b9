"""Compiled half of the row hash: Spark's `xxhash64` (Spark: `XXH64`, `XxHash64Function`) over Arrow's buffers.

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
from tiered_stream.records.intrinsics import load_uint32_le, load_uint64_le

_SEED = np.uint64(42)
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)

# Bits of `columns` in `hash_rows`, in the order of `row_hash.HASHED`.
TIMESTAMP, KEY, VALUE, HEADERS = 1, 2, 4, 8


@kernel
def _rotated(value: Any, bits: Any) -> Any:
    return value << bits | value >> (np.uint64(64) - bits)


@kernel
def _mixed(value: Any) -> Any:
    value ^= value >> np.uint64(33)
    value *= _P2
    value ^= value >> np.uint64(29)
    value *= _P3
    return value ^ value >> np.uint64(32)


@kernel
def _with_word(value: Any, word: Any) -> Any:
    value ^= _rotated(word * _P2, np.uint64(31)) * _P1
    return _rotated(value, np.uint64(27)) * _P1 + _P4


@kernel
def _with_half(value: Any, half: Any) -> Any:
    value ^= half * _P1
    return _rotated(value, np.uint64(23)) * _P2 + _P3


@kernel
def _hash_long(number: Int, seed: Any) -> Any:
    return _mixed(_with_word(seed + _P5 + np.uint64(8), np.uint64(number)))


@kernel
def _hash_int(number: Int, seed: Any) -> Any:
    """Return the hash of a 32-bit integer, or of a boolean, which is 0 or 1."""
    return _mixed(_with_half(seed + _P5 + np.uint64(4), np.uint64(number)))


@kernel
def _round(lane: Any, word: Any) -> Any:
    return _rotated(lane + word * _P2, np.uint64(31)) * _P1


@kernel
def _merged(value: Any, lane: Any) -> Any:
    return (value ^ _round(np.uint64(0), lane)) * _P1 + _P4


@kernel
def _stripes(data: Any, at: Int, stop: Int, seed: Any) -> Any:
    """Return the hash state after all whole stripes of 32 bytes between `at` and `stop`. There must be a stripe."""
    one, two, three, four = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
    while stop - at >= 32:
        one, two = _round(one, load_uint64_le(data, at)), _round(two, load_uint64_le(data, at + 8))
        three, four = _round(three, load_uint64_le(data, at + 16)), _round(four, load_uint64_le(data, at + 24))
        at += 32
    value = _rotated(one, np.uint64(1)) + _rotated(two, np.uint64(7))
    value += _rotated(three, np.uint64(12)) + _rotated(four, np.uint64(18))
    return _merged(_merged(_merged(_merged(value, one), two), three), four)


@kernel
def hash_bytes(data: Any, at: Int, stop: Int, seed: Any) -> Any:
    """Return the `xxhash64` of the bytes from `at` to `stop` with a seed (uint64), as a uint64."""
    size = stop - at
    value = seed + _P5
    if size >= 32:
        value = _stripes(data, at, stop, seed)
        at += size - size % 32
    value += np.uint64(size)
    while stop - at >= 8:
        value = _with_word(value, load_uint64_le(data, at))
        at += 8
    if stop - at >= 4:
        value = _with_half(value, load_uint32_le(data, at))
        at += 4
    while at < stop:
        value = _rotated(value ^ np.uint64(data[at]) * _P5, np.uint64(11)) * _P1
        at += 1
    return _mixed(value)


@kernel
def _is_null(bits: Any, at: Int) -> Any:
    return bits.shape[0] > 0 and not bits[at >> 3] >> (at & 7) & 1


@kernel
def _fits(column: Any, row: Int) -> Any:
    """Return whether the row's ends, bytes and validity bit lie within the column's buffers."""
    ends, first_row, values, bits, first_bit = column
    if row < 0 or first_row + row + 1 >= ends.shape[0] or (bits.shape[0] > 0 and first_bit + row >= 8 * bits.shape[0]):
        return False
    return 0 <= ends[first_row + row] <= ends[first_row + row + 1] <= values.shape[0]


@kernel
def _hash_cell(column: Any, row: Int, seed: Any) -> Any:
    ends, first_row, values, bits, first_bit = column
    if _is_null(bits, first_bit + row):
        return seed
    return hash_bytes(values, np.int64(ends[first_row + row]), np.int64(ends[first_row + row + 1]), seed)


@kernel
def _hash_marked(column: Any, row: Int, seed: Any) -> Any:
    """Hash the integer 1 if the row's value is null, otherwise 0, and then the value; return the hash."""
    _, _, _, bits, first_bit = column
    return _hash_cell(column, row, _hash_int(np.int64(_is_null(bits, first_bit + row)), seed))


@kernel
def _hash_headers(column: Any, row: Int, seed: Any) -> Any:
    """Return the hash of a row's headers, and whether all of the row's headers lie within the buffers.

    A column of headers is the tuple (lists, keys, values).
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
    after the offset. Before each key, value and header value, its null mark is hashed: 1 if it is null, otherwise 0.
    """
    for row in range(offsets.shape[0]):
        value = _hash_long(offsets[row], _SEED)
        fits = row < timestamps.shape[0] and row < hashes.shape[0]
        if fits and columns & TIMESTAMP:
            value = _hash_long(timestamps[row], value)
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

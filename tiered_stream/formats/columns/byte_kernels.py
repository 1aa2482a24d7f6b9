"""Kernels for bytes that several formats use: texts, numbers, keys of maps."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tiered_stream.formats.columns.column_kernels import BYTES_AT, SLOTS, VALUES_AT
from tiered_stream.records.compiled import Int, inlined, kernel
from tiered_stream.records.intrinsics import load_uint32_le, load_uint64_le, xxh64
from tiered_stream.records.memory import allocate

_MAX_MAP_KEYS = 1 << 20


def key_hash_table(maps: bool) -> np.ndarray[Any, Any]:
    """Return the array that `has_duplicate_key` takes as `key_table`.

    The array has space for a hash table, which takes memory only when it is used, and a random seed as its last number.
    If `maps` is False, the array has only the seed.
    """
    room = allocate((2 * _MAX_MAP_KEYS if maps else 0) + 1, np.int64)
    # A secret seed keeps senders from choosing keys that collide in the hash table.
    room[-1] = int.from_bytes(os.urandom(7))
    return room


@kernel
def character_end(data: Any, at: Int, stop: Int) -> Int:
    """Return the position after the UTF-8 sequence of two to four bytes at `at` (Unicode, table 3-7).

    Returns -1 if the bytes from `at` to `stop` do not begin with a valid sequence.
    """
    first = data[at]
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first < 0xC2 or first > 0xF4 or size > stop - at:
        return np.int64(-1)
    second = data[at + 1]
    low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
    if second < low or second > high:
        return np.int64(-1)
    for more in range(at + 2, at + size):
        if data[more] & 0xC0 != 0x80:
            return np.int64(-1)
    return at + size


@inlined
def is_utf8(data: Any, at: Int, stop: Int) -> Any:
    """Return whether the bytes from `at` to `stop` are UTF-8. Surrogates and overlong forms are not UTF-8."""
    while 0 <= at < stop:
        at = at + 1 if data[at] < 128 else character_end(data, at, stop)
    return at >= 0


@inlined
def unsigned_varint(data: Any, at: Int, stop: Int) -> Any:
    """Read a varint of at most 64 bits; return its value as a uint64, and the position after it.

    The position is -1 if the varint does not end before `stop`, and -2 if it has more than 64 bits.
    """
    value, shift = np.uint64(0), np.uint64(0)
    while at < stop:
        part = np.uint64(data[at])
        at += 1
        if shift == 63 and part > 1:
            return value, np.int64(-2)
        value |= (part & np.uint64(0x7F)) << shift
        if part < 128:
            return value, np.int64(at)
        shift += np.uint64(7)
    return value, np.int64(-1)


@inlined
def from_zigzag(value: Any) -> Int:
    """Return the signed integer that a uint64 encodes in zigzag form."""
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@inlined
def load_double(data: Any, at: Int) -> Any:
    """Return the little-endian double at a position."""
    return np.uint64(load_uint64_le(data, at)).view(np.float64)


@inlined
def load_float(data: Any, at: Int) -> Any:
    """Return the little-endian float at a position, as a double."""
    return np.float64(np.uint32(load_uint32_le(data, at)).view(np.float32))


@kernel
def _key(columns: Any, node: Int, slot: Int) -> Any:
    """Return the position and the size in bytes of the map key in a slot of `node`, within the memory of `columns`."""
    nodes, _, ints, _ = columns
    ends = nodes[node, VALUES_AT] + slot
    return nodes[node, BYTES_AT] + ints[ends], np.int64(ints[ends + 1] - ints[ends])


@kernel
def _are_equal(memory: Any, one: Int, other: Int, size: Int) -> Any:
    index = 0
    while index < size and memory[one + index] == memory[other + index]:
        index += 1
    return index == size


@kernel
def has_duplicate_key(columns: Any, node: Int, first: Int, key_table: Any) -> Any:
    """Return whether a map has two equal keys. The keys are in the slots of `node` from `first` on.

    Returns True, too, if there are more than 2**20 keys, which are not compared. `key_table` is the array that
    `key_hash_table` returns.
    """
    last, size = columns[0][node, SLOTS], 4
    if last - first < 2:
        return False
    while size < 2 * (last - first):
        size *= 2
    if size >= key_table.shape[0]:
        return True
    for entry in range(size):
        key_table[entry] = -1
    for slot in range(first, last):
        at, length = _key(columns, node, slot)
        seed = np.uint64(key_table[key_table.shape[0] - 1])
        place = np.int64(xxh64(columns[1], at, at + length, seed)) & (size - 1)
        while key_table[place] >= 0:
            other, theirs = _key(columns, node, key_table[place])
            if theirs == length and _are_equal(columns[1], at, other, length):
                return True
            place = (place + 1) & (size - 1)
        key_table[place] = slot
    return False

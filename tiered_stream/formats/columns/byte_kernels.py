"""Kernels for bytes that several formats use: texts, floating-point numbers, keys of maps."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tiered_stream.formats.columns.column_kernels import BYTES_AT, SLOTS, VALUES_AT
from tiered_stream.records.compiled import Int, inlined, kernel
from tiered_stream.records.memory import allocate

_MOST_KEYS = 1 << 20


def hash_room(maps: bool) -> np.ndarray[Any, Any]:
    """Return the array for `has_key_twice`: room for a hash table, and at its end a random seed.

    The room takes memory only when it is used. Without `maps` there is only the seed.
    """
    room = allocate((2 * _MOST_KEYS if maps else 0) + 1, np.int64)
    # A secret seed keeps senders from choosing keys that collide in the hash table.
    room[-1] = int.from_bytes(os.urandom(7))
    return room


@inlined
def is_utf8(data: Any, at: Int, stop: Int) -> Any:
    """Return whether the bytes are UTF-8, without surrogates and overlong forms."""
    while at < stop:
        first = np.int64(data[at])
        if first < 0x80:
            at += 1
            continue
        more = 1 if 0xC2 <= first < 0xE0 else 2 if 0xE0 <= first < 0xF0 else 3 if 0xF0 <= first < 0xF5 else 4
        if more > 3 or stop - at <= more:
            return False
        second = np.int64(data[at + 1])
        low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for index in range(at + 2, at + 1 + more):
            if data[index] & 0xC0 != 0x80:
                return False
        at += 1 + more
    return True


@inlined
def little_endian(data: Any, at: Int, size: Int) -> Any:
    value = np.uint64(0)
    for index in range(size):
        value |= np.uint64(data[at + index]) << np.uint64(8 * index)
    return value


@inlined
def double_of(bits: Any) -> Any:
    word = np.int64(bits)
    return word.view(np.float64)


@inlined
def float_at(data: Any, at: Int) -> Any:
    bits = np.uint32(little_endian(data, at, 4))
    return np.float64(bits.view(np.float32))


@kernel
def _key(columns: Any, node: Int, slot: Int) -> Any:
    """Return where a key is in memory, and its length in bytes."""
    nodes, _, ints, _, _ = columns
    ends = nodes[node, VALUES_AT] + slot
    return nodes[node, BYTES_AT] + ints[ends], np.int64(ints[ends + 1] - ints[ends])


@kernel
def _are_same(memory: Any, one: Int, other: Int, size: Int) -> Any:
    index = 0
    while index < size and memory[one + index] == memory[other + index]:
        index += 1
    return index == size


@kernel
def _hash_place(memory: Any, at: Int, size: Int, seed: Int) -> Int:
    code = seed
    for index in range(at, at + size):
        code = (code ^ np.int64(memory[index])) * np.int64(0x100000001B3)
    return code ^ code >> 29


@kernel
def has_key_twice(columns: Any, node: Int, first: Int, seen: Any) -> Any:
    """Return whether two of the keys from the slot `first` on are equal, or whether the keys are too many to check.

    `seen` has room for a hash table of slots, and after it the seed of the hash.
    """
    last, size = columns[0][node, SLOTS], 4
    if last - first < 2:
        return False
    while size < 2 * (last - first):
        size *= 2
    if size >= seen.shape[0]:
        return True
    for place in range(size):
        seen[place] = -1
    for slot in range(first, last):
        at, length = _key(columns, node, slot)
        place = _hash_place(columns[1], at, length, seen[seen.shape[0] - 1]) & (size - 1)
        while seen[place] >= 0:
            other, theirs = _key(columns, node, seen[place])
            if theirs == length and _are_same(columns[1], at, other, length):
                return True
            place = (place + 1) & (size - 1)
        seen[place] = slot
    return False

"""Ways to spoil bytes, texts and JSON that were right before."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

NUMBERS = (
    0, 1, 2, 3, 7, 8, 16, 61, 127, 128, 255, 256, 1000, 32767, 32768, 65535, 65536, 1 << 20, 1 << 24, (1 << 28) - 1,
    1 << 28, (1 << 31) - 2, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 53) + 1, (1 << 62), (1 << 63) - 1,
    1 << 63, (1 << 64) - 1, -1, -2, -3, -128, -32768, -(1 << 31), -(1 << 31) - 1, -(1 << 62), -(1 << 63),
)  # fmt: skip
"""Where lengths, counts, offsets and times turn over."""

OVERLONG_VARINTS = (
    b"\x80" * 4 + b"\x00", b"\x80" * 9 + b"\x01", b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\xff" * 4 + b"\x0f",
    b"\xff" * 4 + b"\x1f", b"\x80" * 11 + b"\x00", b"\xff" * 40, b"\x80" * 300 + b"\x01",
)  # fmt: skip
CHARACTERS = (
    "\0", "\n", "\r", "\t", " ", '"', "'", "\\", "=", ";", ",", ":", "/", "//", "@", "?", "#", "%", "[", "]",
    "{", "}", "(", "*", "-", "+", ".", "..", "0", "9", "٣", "²", "é", "ß", "İ", "\u2028", "\ufeff", "\ud7ff", "\uffff",
    "🜁", "\\u12", "${x}", "%2F",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, -2, -3, 1.5, -0.0, 1e308, 1e18, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63,
    -(2**63), 2**64, "", "x", "0", "-1", "1e9", "\0", "é", "x" * 300, [], [0], {}, {"": 0}, {"0": 0},
)  # fmt: skip


def below(random: Random, most: int) -> int:
    """As `randrange`, several times as quick."""
    return int(random.random() * most)


def one(random: Random, of: Sequence[T]) -> T:
    return of[int(random.random() * len(of))]


def number(random: Random) -> int:
    """One that may turn something over, or its neighbour."""
    found = one(random, NUMBERS)
    return found if random.random() < 0.7 else found + below(random, 5) - 2


def fixed(value: int, size: int) -> bytes:
    """Big-endian in so many bytes, what does not fit cut off."""
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def uvarint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint(value: int) -> bytes:
    """Zigzag."""
    return uvarint((value << 1) ^ (value >> 63))


def spoiled(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """One to four changes; `others` are what it may be spliced with."""
    changed = bytearray(data)
    for _ in range(1 + below(random, 4) if random.random() < 0.5 else 1):
        one(random, _CHANGES)(random, changed, others)
    return bytes(changed)


def _flip(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[below(random, len(data))] ^= 1 << below(random, 8)


def _byte(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[below(random, len(data))] = below(random, 256)


def _number(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    size = one(random, (1, 2, 4, 4, 8))
    at = below(random, len(data) + 1)
    data[at : at + size] = fixed(number(random), size)


def _step(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    size = one(random, (1, 2, 4, 8))
    at = below(random, len(data) + 1)
    value = int.from_bytes(data[at : at + size], "big")
    data[at : at + size] = fixed(value + one(random, (-2, -1, 1, 2)), len(data[at : at + size]))


def _varint(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    at, size = below(random, len(data) + 1), below(random, 3)
    form = random.random()
    data[at : at + size] = (
        one(random, OVERLONG_VARINTS)
        if form < 0.3
        else varint(number(random))
        if form < 0.6
        else uvarint(number(random))
    )


def _remove(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = below(random, len(data) + 1)
    del data[at : at + 1 + below(random, one(random, (1, 8, 64)))]


def _insert(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = below(random, len(data) + 1)
    data[at:at] = random.randbytes(1 + below(random, 12))


def _repeat(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = below(random, len(data) + 1)
    data[at:at] = data[at : at + 1 + below(random, 64)] * one(random, (1, 1, 2, 5))


def _swap(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    first, middle, last = sorted(below(random, len(data) + 1) for _ in range(3))
    data[first:last] = data[middle:last] + data[first:middle]


def _cut(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[below(random, len(data) + 1) :]


def _splice(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = one(random, others) if others else bytes(data)
    data[below(random, len(data) + 1) :] = other[below(random, len(other) + 1) :]


_CHANGES: tuple[Callable[[Random, bytearray, Sequence[bytes]], None], ...] = (
    _flip, _byte, _number, _number, _step, _varint, _remove, _insert, _repeat, _swap, _cut, _splice,
)  # fmt: skip


def spoiled_text(random: Random, text: str, words: Sequence[str] = ()) -> str:
    """One to four changes; `words` are what may come into it."""
    for _ in range(1 + below(random, 4)):
        at, size = below(random, len(text) + 1), below(random, one(random, (1, 3, 20)))
        form = random.random()
        if form < 0.3:
            new = one(random, CHARACTERS)
        elif form < 0.5:
            new = str(number(random))
        elif form < 0.7 and words:
            new = one(random, words)
        elif form < 0.8:
            new = text[at : at + 1 + below(random, 20)] * 2
        elif form < 0.82:
            new = one(random, CHARACTERS) * 2000
        else:
            new = ""
        text = text[:at] + new + text[at + size :]
    return text


def spoiled_json(random: Random, document: Any) -> bytes:
    """The document with one to three values changed, removed or doubled; sometimes its text, too."""
    copy = json.loads(json.dumps(document))
    for _ in range(1 + below(random, 3)):
        copy = _spoiled_value(random, copy)
    text = json.dumps(copy).encode()
    form = random.random()
    if form < 0.15:
        return spoiled(random, text)
    return b"[" * 5000 + text if form < 0.151 else text


def _spoiled_value(random: Random, value: Any) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = one(random, list(value))
        form = random.random()
        if form < 0.1:
            del value[key]
        elif form < 0.15:
            value[spoiled_text(random, key)] = value.pop(key)
        else:
            value[key] = _spoiled_value(random, value[key])
        return value
    if isinstance(value, list) and value and random.random() < 0.85:
        at = below(random, len(value))
        value[at:at] = [_spoiled_value(random, value.pop(at))] * one(random, (1, 1, 2))
        return value
    if isinstance(value, str) and random.random() < 0.5:
        return spoiled_text(random, value)
    if isinstance(value, int) and random.random() < 0.5:
        return value + one(random, (-1, 1)) if random.random() < 0.5 else number(random)
    return deepcopy(one(random, VALUES))

"""Messages of the formats before Kafka 0.11 (magic 0 and 1), plain and compressed, with right CRCs."""

from __future__ import annotations

import struct
import zlib
from random import Random

from kafka.codec import lz4_encode_old_kafka

from tests.rigs.fuzz.mutation import below, fixed, number, one, spoiled
from tests.rigs.fuzz.target import MIB, Target
from tests.rigs.fuzz.targets.record_batches import CODEC_CODES, bomb, decode


def message(random: Random, offset: int, magic: int, attributes: int, value: bytes | None, wrong: bool) -> bytes:
    key = one(random, (None, None, b"", b"key"))
    sizes = [-1 if each is None else len(each) for each in (key, value)]
    timestamp = 1 << 40
    if wrong:
        match below(random, 5):
            case 0 | 1:
                sizes[below(random, 2)] = number(random)
            case 2:
                timestamp = number(random)
            case 3:
                attributes = below(random, 256)
            case _:
                offset = number(random)
    parts = [fixed(magic, 1), fixed(attributes, 1), fixed(timestamp, 8) if magic else b""]
    for size, content in zip(sizes, (key, value), strict=True):
        parts += [fixed(size, 4), content or b""]
    body = b"".join(parts)
    if wrong and random.random() < 0.3:
        body = spoiled(random, body)
    body = struct.pack(">I", zlib.crc32(body)) + body
    length = number(random) if wrong and random.random() < 0.1 else len(body)
    return fixed(offset, 8) + fixed(length, 4) + body


def message_set(random: Random, offset: int) -> tuple[bytes, int]:
    """One message, or a compressed one that holds several; and the offset after it."""
    magic, where = below(random, 2), below(random, 4)
    if random.random() < 0.4:
        return message(random, offset, magic, 0, b"v" * below(random, 90), where < 2), offset + 1
    count = 1 + below(random, 4)
    code = 1 + below(random, 3)
    if random.random() < 0.0005:
        packed = bomb(1 + below(random, 2), code)[1]
    else:
        first = 0 if magic else offset
        inner_magic = magic if random.random() < 0.95 else 1 - magic
        inner_attributes = one(random, (0, 0, 0, 0, 0, 8, 1, 3))
        inner = b"".join(
            message(random, first + each, inner_magic, inner_attributes, b"v" * each, where == 0 and each == count - 1)
            for each in range(count)
        )
        if where == 1:
            inner = spoiled(random, inner)
        packed = lz4_encode_old_kafka(inner) if code == 3 and not magic else CODEC_CODES[code][1](inner)
        if where == 2:
            packed = spoiled(random, packed, (inner,))
    return message(random, offset + count - 1, magic, code, packed, random.random() < 0.1), offset + count


def log(random: Random) -> bytes:
    parts, offset = [], one(random, (0, 0, 9, 1 << 40))
    for _ in range(1 + below(random, 3)):
        made, offset = message_set(random, offset)
        parts.append(made)
    if random.random() < 0.05:
        parts[-1] = parts[-1][: below(random, len(parts[-1]) + 1)]
    return b"".join(parts)


TARGETS = (Target("old-message-sets", log, decode, memory=512 * MIB),)

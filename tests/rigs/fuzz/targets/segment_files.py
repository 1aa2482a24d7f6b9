"""What is uploaded beside a segment: indexes, producer snapshots, leader epoch checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import google_crc32c

from tests.rigs.fuzz.mutation import below, fixed, number, one, spoiled, spoiled_text
from tests.rigs.fuzz.target import Target
from tiered_stream.locate.index_files import (
    open_transactions,
    parse_leader_epoch_checkpoint,
    parse_time_index,
    parse_transaction_index,
)
from tiered_stream.locate.offset_index import parse_offset_index

BASE, SIZE = 1000, 1 << 30


def _entries(*sizes: int) -> Callable[[Random], bytes]:
    """Entries of ascending numbers of these sizes, one of them perhaps from elsewhere, or the bytes spoiled."""

    def make(random: Random) -> bytes:
        rows = [[100 * row + column for column in range(len(sizes))] for row in range(1 + below(random, 12))]
        if len(sizes) == 5:  # a transaction index: versions are 0, offsets are beyond the segment's start
            rows = [[0, 5, BASE + row[2], BASE + row[3], BASE + row[4]] for row in rows]
        form = random.random()
        if form < 0.4:
            one(random, rows)[below(random, len(sizes))] = number(random)
        elif form < 0.5:
            random.shuffle(rows)
        data = b"".join(fixed(value, size) for row in rows for value, size in zip(row, sizes, strict=True))
        if form > 0.7:
            data = spoiled(random, data)
        return data + bytes(sum(sizes)) * below(random, 3) if form > 0.9 else data

    return make


def _offset_index(data: bytes) -> None:
    index = parse_offset_index(data, BASE, SIZE)
    for offset in (0, BASE, BASE + 350, 1 << 62):
        start, end = index.start_position(offset), index.end_position(offset + 1, SIZE)
        assert 0 <= start < SIZE
        assert 0 <= end <= SIZE
    for position in index.positions[:20].tolist():
        low, high = index.following(position)
        assert low <= high


def _time_index(data: bytes) -> None:
    index = parse_time_index(data, BASE)
    for timestamp in (-(1 << 63), 0, 350, (1 << 63) - 1):
        assert index.floor_offset(timestamp) >= BASE


def _producer_snapshot(random: Random) -> bytes:
    rows = [
        [fixed(each, 8), fixed(0, 2), fixed(9, 4), fixed(each, 8), fixed(1, 4), fixed(1 << 40, 8), fixed(0, 4),
         fixed(one(random, (-1, each)), 8)]
        for each in range(below(random, 6))
    ]  # fmt: skip
    if rows and random.random() < 0.5:
        row = one(random, rows)
        at = below(random, 8)
        row[at] = fixed(number(random), len(row[at]))
    body = b"".join(cell for row in rows for cell in row)
    count = fixed(len(rows) if random.random() < 0.7 else number(random), 4)
    if random.random() < 0.2:
        body = spoiled(random, body)
    data = fixed(1, 2) + fixed(google_crc32c.value(count + body), 4) + count + body
    return spoiled(random, data) if random.random() < 0.2 else data


def _checkpoint(random: Random) -> bytes:
    count = below(random, 8)
    lines = ["0", str(count), *(f"{epoch} {epoch * 50}" for epoch in range(count))]
    if random.random() < 0.4:
        lines[below(random, len(lines))] = one(
            random, (f"{number(random)} {number(random)}", str(number(random)), "0" * 400)
        )
    text = "\n".join(lines) + "\n"
    if random.random() < 0.6:
        text = spoiled_text(random, text)
    return text.encode(errors="surrogateescape")


TARGETS = (
    Target("offset-index", _entries(4, 4), _offset_index),
    Target("time-index", _entries(8, 4), _time_index),
    Target("transaction-index", _entries(2, 8, 8, 8, 8), lambda data: parse_transaction_index(data, BASE)),
    Target("producer-snapshot", _producer_snapshot, open_transactions),
    Target("leader-epoch-checkpoint", _checkpoint, parse_leader_epoch_checkpoint),
)

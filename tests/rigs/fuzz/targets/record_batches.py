"""Record batches of format 2, made from their fields so that lengths, counts and the CRC are wrong one at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.rigs.fuzz.mutation import OVERLONG_VARINTS, below, fixed, number, one, spoiled, varint
from tests.rigs.fuzz.target import MIB, Target
from tests.rigs.stack.batches import CODECS
from tiered_stream.broker.record_fetch import FetchedRecords, offset_after
from tiered_stream.errors import CorruptDataError, TieredStreamError
from tiered_stream.model import AbortedTransaction, TopicPartition
from tiered_stream.records import arrow
from tiered_stream.records.decoder import PartBounds, RecordBatchDecoder
from tiered_stream.records.header import HEADER, aborted_in_fetched
from tiered_stream.records.memory import allocate
from tiered_stream.records.row_hash import row_hashes
from tiered_stream.records.values import read_values

CODEC_CODES = tuple(CODECS.values())
ABORTED = (AbortedTransaction(5, 0, 3), AbortedTransaction(6, 2, 40), AbortedTransaction(5, 8, 1 << 62))
_FENCE, _FENCE_ROWS = 0xA5, 16
MARKER = (b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\2", b"\0\1", b"")


def record(random: Random, delta: int, wrong: bool) -> bytes:
    """A record; a wrong one has a field that is a number from elsewhere, is there twice, is missing, or is moved."""
    key, value = (one(random, (None, b"", b"k", b"v" * below(random, 200))) for _ in range(2))
    headers = [
        (one(random, (b"a", b"\xff\xfe", b"")), one(random, (None, b"h" * 9))) for _ in range(below(random, 4) // 2)
    ]
    atoms = [b"\0", varint(below(random, 1000)), varint(delta), *_bytes(key), *_bytes(value), varint(len(headers))]
    for name, content in headers:
        atoms += [*_bytes(name), *_bytes(content)]
    length = None
    if wrong:
        at = below(random, len(atoms))
        match below(random, 7):
            case 0 | 1 | 2:
                atoms[at] = varint(number(random))
            case 3:
                atoms[at] = one(random, OVERLONG_VARINTS)
            case 4:
                atoms[at:at] = [atoms[at]] * one(random, (1, 1, 30))
            case 5:
                del atoms[at]
            case _:
                length = number(random)
    body = b"".join(atoms)
    return varint(len(body) if length is None else length) + body


def _bytes(content: bytes | None) -> tuple[bytes, bytes]:
    return (varint(-1), b"") if content is None else (varint(len(content)), content)


def with_crc(batch: bytes) -> bytes:
    return batch[:17] + struct.pack(">I", google_crc32c.value(batch[21:])) + batch[21:]


@cache
def bomb(kind: int, codec: int) -> tuple[int, bytes]:
    """Small bytes that become 4 MiB: how many records they are, and the packed bytes."""
    unit, in_a_record = (
        (varint(6) + b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(0), 1),  # the smallest record
        (varint(1 << 20), 0),
        (b"\0", 0),
    )[kind]
    body = unit * (4 * MIB // len(unit))
    if kind == 1:  # one record of headers alone
        body = b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(2 * MIB) + (varint(0) + varint(-1)) * (2 * MIB)
        body = varint(len(body)) + body
        return 1, CODEC_CODES[codec][1](body)
    return (4 * MIB // len(unit)) * in_a_record or 1, CODEC_CODES[codec][1](body)


def batch(random: Random, base_offset: int) -> tuple[bytes, int]:
    """A batch, mostly with one thing wrong with it, and the offset after it."""
    count = 1 + below(random, one(random, (3, 3, 12)))
    where = below(random, 10)
    code, compress = one(random, CODEC_CODES) if random.random() < 0.4 else CODEC_CODES[0]
    if random.random() < 0.0004:
        at = 1 + below(random, 4)
        count, packed = bomb(below(random, 3), at)
        code = at
    else:
        wrong = below(random, count) if where < 5 else -1
        records = b"".join(record(random, delta, delta == wrong) for delta in range(count))
        if where == 5:
            records = spoiled(random, records)
        packed = compress(records)
        if where == 6 and code:
            packed = spoiled(random, packed, (records, packed))
    attributes = code | one(random, (0, 0, 0, 0x08, 0x10, 0x10, 0x30, 0x40))
    if attributes & 0x30 == 0x30 and not code:
        packed = varint(14) + b"\0" + varint(0) * 2 + varint(4) + one(random, MARKER) + varint(0) * 2
    fields = [base_offset, HEADER.size - 12 + len(packed), 0, 2, 0, attributes, count - 1, 1 << 40, (1 << 40) + 9,
              one(random, (-1, 5, 6, 7)), 0, 0, count]  # fmt: skip
    if where >= 7:
        _spoil_header(random, fields)
    made = with_crc(_packed(fields) + packed)
    if random.random() < 0.03:
        made = spoiled(random, made)
    return made, base_offset + count + one(random, (0, 0, 0, 5))


_SIZES = (8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4)


def _packed(fields: list[int]) -> bytes:
    return b"".join(map(fixed, fields, _SIZES))


def _spoil_header(random: Random, fields: list[int]) -> None:
    for _ in range(one(random, (1, 1, 2))):
        at = one(random, (0, 1, 3, 5, 6, 6, 7, 8, 9, 12, 12))
        form = random.random()
        fields[at] = fields[at] + one(random, (-1, 1)) if form < 0.3 else number(random)
        if form > 0.8:  # as many records as the header says that there are offsets
            fields[6] = fields[12] - 1


def log(random: Random) -> bytes:
    """A few batches, the last perhaps cut off."""
    parts, offset = [], one(random, (0, 0, 7, 1 << 40))
    for _ in range(1 + below(random, 3)):
        made, offset = batch(random, offset)
        parts.append(made)
    if random.random() < 0.05:
        parts[-1] = parts[-1][: below(random, len(parts[-1]) + 1)]
    if random.random() < 0.05:
        random.shuffle(parts)
    return b"".join(parts)


def _pieces(data: bytes) -> Iterator[bytes]:
    """Whole, or in three, as the bytes themselves say."""
    cut = google_crc32c.value(data[-64:]) if data else 0
    if cut % 4:
        yield data
        return
    first = cut % (len(data) + 1)
    second = first + (len(data) - first) // 2
    yield from (data[:first], data[first:second], data[second:])


class Fences:
    """Bytes behind every buffer that kernels write records to: numba checks indexes, but not what is copied."""

    def __init__(self) -> None:
        self._fences: list[np.ndarray[Any, Any]] = []

    def allocate(self, rows: int, kind: type[np.generic]) -> np.ndarray[Any, Any]:
        found = allocate(rows + _FENCE_ROWS, kind)
        found.view(np.uint8)[rows * found.itemsize :] = _FENCE
        self._fences.append(found[rows:].view(np.uint8))
        return found[:rows]

    def check(self) -> None:
        for fence in self._fences:
            assert (fence == _FENCE).all(), "a kernel wrote behind its buffer"
        self._fences.clear()


FENCES = Fences()


def decode(data: bytes) -> None:
    """As a task does: with headers, and with transactions to leave out; each batch must be sound Arrow."""
    bounds = PartBounds(0, 1 << 50) if len(data) % 3 == 0 else None
    decoder = RecordBatchDecoder("topic", 3, 0, 1 << 60, aborted=ABORTED, include_headers=True, bounds=bounds)
    for rows in _decoded(decoder, data):
        row_hashes(rows, ("timestamp", "key", "value", "headers"))


def decode_in_range(data: bytes) -> None:
    """Some of the offsets, without headers and checksums."""
    for rows in _decoded(RecordBatchDecoder("topic", 3, 2, 9, check_crcs=False), data):
        assert 2 <= pc.min(rows["offset"]).as_py() <= pc.max(rows["offset"]).as_py() < 9


def _decoded(decoder: RecordBatchDecoder, data: bytes) -> Iterator[pa.RecordBatch]:
    module: Any = arrow
    unfenced = module.allocate
    module.allocate = FENCES.allocate
    try:
        for piece in _pieces(data):
            for rows in decoder.feed(piece):
                FENCES.check()
                rows.validate(full=True)
                yield rows
        decoder.finish()
    finally:
        module.allocate = unfenced
        FENCES.check()


def _read_values(data: bytes) -> None:
    """In plain Python, so that the time is that of the records that there are: some microseconds each."""
    for following, values in read_values(data):
        assert all(offset < following for offset, _ in values)


def scan(data: bytes) -> None:
    """As what comes from a broker is looked through in plain Python."""
    partition = TopicPartition("t", 0)
    for look in (
        lambda: _read_values(data),
        lambda: offset_after(FetchedRecords(partition, 0, data, 9, 9)),
        lambda: aborted_in_fetched(data, [(5, 0), (6, 1)], 100),
    ):
        try:
            look()
        except TieredStreamError as error:
            refused = error
        else:
            continue
        raise CorruptDataError("one of them refused it") from refused


TARGETS = (
    Target("record-batches", log, decode, memory=512 * MIB),
    Target("record-batches-in-range", log, decode_in_range, memory=512 * MIB),
    Target("record-batch-scans", log, scan, memory=512 * MIB),
)

"""How fast one core decodes a log of 100-byte values to Arrow, beside kafka-python's reader."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kafka.record.memory_records import MemoryRecords

from tests.stack import native_crc  # noqa: F401 - it is enough that it is imported
from tests.stack.batches import record_batch
from tests.stack.rows import Record
from tiered_stream.records.decoder import RecordBatchDecoder

RECORDS_IN_BATCH = 140
BATCHES = 8_000
REQUEST_BYTES = 8 << 20
ROUNDS = 5


@dataclass(frozen=True)
class DecodeRates:
    """Records a second of one core, the best of some rounds."""

    ours: float
    without_crc: float
    kafka_python: float


def build_log(batches: int) -> bytes:
    """A log of uncompressed batches with consecutive offsets."""
    template = record_batch([Record(None, bytes(100))] * RECORDS_IN_BATCH, "none")
    return b"".join((index * RECORDS_IN_BATCH).to_bytes(8, "big") + template[8:] for index in range(batches))


def measure_decode() -> DecodeRates:
    log = build_log(BATCHES)
    pieces = [log[start : start + REQUEST_BYTES] for start in range(0, len(log), REQUEST_BYTES)]
    some = build_log(BATCHES // 20)
    return DecodeRates(
        ours=_best(lambda: _decode(pieces, check_crcs=True)),
        without_crc=_best(lambda: _decode(pieces, check_crcs=False)),
        kafka_python=_best(lambda: _read(some)),
    )


def _best(work: Callable[[], int]) -> float:
    """The best rate of `ROUNDS`, after one that warms up."""
    work()
    rates = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        records = work()
        rates.append(records / (time.process_time() - begin))
    return max(rates)


def _decode(pieces: list[bytes], *, check_crcs: bool) -> int:
    decoder = RecordBatchDecoder("topic", 0, 0, 1 << 60, check_crcs=check_crcs)
    return sum(batch.num_rows for piece in pieces for batch in decoder.feed(piece))


def _read(log: bytes) -> int:
    records, count = MemoryRecords(log), 0
    while (batch := records.next_batch()) is not None:
        batch.validate_crc()
        count += sum(1 for _ in batch)
    return count

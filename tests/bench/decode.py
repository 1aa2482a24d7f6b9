"""How fast one core decodes a log of 100-byte values to Arrow, beside the readers of kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from kafka.record.memory_records import MemoryRecords

from tests.bench.figures import Row
from tests.bench.turns import Claim, Contender, rows_of
from tests.stack import native_crc  # noqa: F401 - it is enough that it is imported
from tests.stack.batches import record_batch
from tests.stack.rows import Record
from tiered_stream.records.decoder import RecordBatchDecoder

RECORDS_IN_BATCH = 140
BATCHES = 8_000
REQUEST_BYTES = 8 << 20
KAFKA_PYTHONS_SHARE = 20
"""It reads one of so many batches: all of them would take minutes."""
OURS, WITHOUT_CRC, KAFKA_PYTHON = "our decoder", "the same, no CRC", "kafka-python"
CLAIMS = (Claim("decode, one core", OURS, KAFKA_PYTHON, 50, 60), Claim("decode, one core", OURS, WITHOUT_CRC))


def build_log(batches: int) -> bytes:
    """A log of uncompressed batches with consecutive offsets."""
    template = record_batch([Record(None, bytes(100))] * RECORDS_IN_BATCH, "none")
    return b"".join((index * RECORDS_IN_BATCH).to_bytes(8, "big") + template[8:] for index in range(batches))


def measure(runs: int) -> Iterator[Row]:
    log = build_log(BATCHES)
    pieces = [log[start : start + REQUEST_BYTES] for start in range(0, len(log), REQUEST_BYTES)]
    some = build_log(BATCHES // KAFKA_PYTHONS_SHARE)
    records = BATCHES * RECORDS_IN_BATCH
    contenders = {
        OURS: _timed(lambda: _decode(pieces, check_crcs=True), records),
        WITHOUT_CRC: _timed(lambda: _decode(pieces, check_crcs=False), records),
        KAFKA_PYTHON: _timed(lambda: _read(some), records // KAFKA_PYTHONS_SHARE),
    }
    yield from rows_of(CLAIMS, contenders, runs)


def _timed(work: Callable[[], int], records: int) -> Contender:
    def run() -> float:
        begin = time.process_time()
        assert work() == records
        return time.process_time() - begin

    return Contender(run, records)


def _decode(pieces: list[bytes], *, check_crcs: bool) -> int:
    decoder = RecordBatchDecoder("topic", 0, 0, 1 << 60, check_crcs=check_crcs)
    return sum(batch.num_rows for piece in pieces for batch in decoder.feed(piece))


def _read(log: bytes) -> int:
    records, count = MemoryRecords(log), 0
    while (batch := records.next_batch()) is not None:
        batch.validate_crc()
        count += sum(1 for _ in batch)
    return count

"""How many core seconds it takes to decode a log of 100-byte values to Arrow, beside kafka-python's reader of the same
bytes, and beside all that confluent-kafka takes for such records: it decodes nothing that it has not fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from kafka.record.memory_records import MemoryRecords

from tests.rigs.bench.figures import Row
from tests.rigs.bench.plain_clients import CONFLUENT, KAFKA_PYTHON, SOME_RECORDS, confluent_reads
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.turns import Claim, Contender, rows_of, timed
from tests.rigs.stack import native_crc  # noqa: F401 - it is enough that it is imported
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.records.decoder import RecordBatchDecoder

RECORDS_IN_BATCH = 140
BATCHES = 8_000
REQUEST_BYTES = 8 << 20
KAFKA_PYTHONS_SHARE = 20
"""It reads one of so many batches: all of them would take minutes."""
OURS, WITHOUT_CRC = "our decoder", "the same, no CRC"
CLAIMS = (
    Claim("decode, one core", OURS, KAFKA_PYTHON, 50, 60),
    Claim("decode, one core", OURS, CONFLUENT, 5, 10),
    Claim("decode, one core", OURS, WITHOUT_CRC),
)


def build_log(batches: int) -> bytes:
    """A log of uncompressed batches with consecutive offsets."""
    template = record_batch([Record(None, bytes(100))] * RECORDS_IN_BATCH, "none")
    return b"".join((index * RECORDS_IN_BATCH).to_bytes(8, "big") + template[8:] for index in range(batches))


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """confluent-kafka reads a topic that is in its broker's own log."""
    log = build_log(BATCHES)
    pieces = [log[start : start + REQUEST_BYTES] for start in range(0, len(log), REQUEST_BYTES)]
    some = build_log(BATCHES // KAFKA_PYTHONS_SHARE)
    records = BATCHES * RECORDS_IN_BATCH
    untiered = rig.topic("G")
    fetched = min(SOME_RECORDS, untiered.records)
    confluent = partial(confluent_reads, rig.stack.bootstrap_servers, untiered, fetched)
    contenders = {
        OURS: _decoding(lambda: _decode(pieces, check_crcs=True), records),
        WITHOUT_CRC: _decoding(lambda: _decode(pieces, check_crcs=False), records),
        KAFKA_PYTHON: _decoding(lambda: _read(some), records // KAFKA_PYTHONS_SHARE),
        CONFLUENT: Contender(timed(confluent, time.process_time), fetched, partial(rig.settle, untiered)),
    }
    yield from rows_of(CLAIMS, contenders, runs)


def _decoding(work: Callable[[], int], records: int) -> Contender:
    def decode() -> None:
        assert work() == records

    return Contender(timed(decode, time.process_time), records)


def _decode(pieces: list[bytes], *, check_crcs: bool) -> int:
    decoder = RecordBatchDecoder("topic", 0, 0, 1 << 60, check_crcs=check_crcs)
    return sum(batch.num_rows for piece in pieces for batch in decoder.feed(piece))


def _read(log: bytes) -> int:
    records, count = MemoryRecords(log), 0
    while (batch := records.next_batch()) is not None:
        batch.validate_crc()
        count += sum(1 for _ in batch)
    return count

"""What the decoder's tests do to record batches, and what kafka-python reads from them."""

from __future__ import annotations

import struct

import google_crc32c
from kafka.record.memory_records import MemoryRecords

from tests.rigs.stack.batches import ProducerState, record_batch
from tests.rigs.stack.rows import Record


def transactional_batch(records: list[Record], base_offset: int, producer_id: int) -> bytes:
    """One batch of a transaction."""
    return record_batch(records, state=ProducerState(producer_id, 0, 0, transactional=True), base_offset=base_offset)


def marker_batch(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction (Kafka: `EndTransactionMarker`)."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    batch = transactional_batch([Record(key, value)], base_offset, producer_id)
    return with_attributes(batch, int.from_bytes(batch[21:23], "big") | 0x20)


def with_attributes(batch: bytes, attributes: int) -> bytes:
    """The same batch with other attributes, and the CRC that goes with them."""
    return with_crc(batch[:21] + attributes.to_bytes(2, "big") + batch[23:])


def with_crc(batch: bytes) -> bytes:
    """The same batch with its CRC made right."""
    crc: int = google_crc32c.value(batch[21:])
    return batch[:17] + crc.to_bytes(4, "big") + batch[21:]


Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def read_by_kafka_python(log: bytes) -> list[Row]:
    """(offset, timestamp ms, timestamp type, key, value, headers) as kafka-python's reader gives them."""
    rows: list[Row] = []
    records = MemoryRecords(log)
    while (batch := records.next_batch()) is not None:
        rows.extend(
            (each.offset, each.timestamp, each.timestamp_type, each.key, each.value, list(each.headers) or None)
            for each in batch
        )
    return rows

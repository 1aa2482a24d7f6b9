"""Record batches built with kafka-python's own builder, for the decoder's tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import google_crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords


@dataclass(frozen=True)
class Record:
    """What goes into a batch, and what must come out."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def build_batch(
    records: list[Record], base_offset: int = 0, codec: int = 0, *, transactional: bool = False, producer_id: int = -1
) -> bytes:
    """One batch of magic 2 with consecutive offsets from `base_offset`."""
    builder = DefaultRecordBatchBuilder(2, codec, transactional, producer_id, 0, 0, 1 << 30)
    for delta, record in enumerate(records):
        builder.append(delta, record.timestamp, record.key, record.value, record.headers)
    return base_offset.to_bytes(8, "big") + bytes(builder.build())[8:]


def build_marker(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction (Kafka: `EndTransactionMarker`)."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    batch = build_batch([Record(0, key, value)], base_offset, transactional=True, producer_id=producer_id)
    return with_attributes(batch, int.from_bytes(batch[21:23], "big") | 0x20)


def with_attributes(batch: bytes, attributes: int) -> bytes:
    """The same batch with other attributes, and the CRC that goes with them."""
    return with_crc(batch[:21] + attributes.to_bytes(2, "big") + batch[23:])


def with_crc(batch: bytes) -> bytes:
    """The same batch with its CRC made right."""
    return batch[:17] + google_crc32c.value(batch[21:]).to_bytes(4, "big") + batch[21:]


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

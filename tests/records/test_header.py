"""The layout of a record batch's header: ours, kafka-python's, and what the compiled kernels make of it."""

from __future__ import annotations

import numpy as np
from kafka.record.default_records import DefaultRecordBase

from tiered_stream.records import header, kernels

FIELDS = {
    "base_offset": 1 << 40,
    "length": header.HEADER_SIZE - header.LENGTH_END,
    "leader_epoch": 7,
    "magic": header.MAGIC,
    "crc": 0xDEADBEEF,
    "attributes": header.TRANSACTIONAL_BIT,
    "last_offset_delta": 23,
    "base_timestamp": 27 << 32,
    "max_timestamp": 35 << 32,
    "producer_id": 43 << 32,
    "producer_epoch": 51,
    "base_sequence": 53,
    "count": 5,
}
BATCH = header.HEADER.pack(*FIELDS.values())


def test_the_struct_is_kafka_pythons() -> None:
    assert header.HEADER.format == DefaultRecordBase.HEADER_STRUCT.format
    assert header.HEADER.size == header.HEADER_SIZE
    ours = header.CODEC_MASK, header.TIMESTAMP_TYPE_BIT, header.TRANSACTIONAL_BIT, header.CONTROL_BIT
    theirs = DefaultRecordBase
    assert ours == (
        theirs.CODEC_MASK, theirs.TIMESTAMP_TYPE_MASK, theirs.TRANSACTIONAL_MASK, theirs.CONTROL_MASK
    )  # fmt: skip


def test_the_smaller_structs_read_the_same_fields() -> None:
    assert header.START.unpack_from(BATCH) == (FIELDS["base_offset"], FIELDS["length"], header.MAGIC)
    assert header.LAST_OFFSET_DELTA.unpack_from(BATCH) == (FIELDS["last_offset_delta"],)
    assert int.from_bytes(BATCH[header.CRC_AT : header.ATTRIBUTES_AT], "big") == FIELDS["crc"]
    assert int.from_bytes(BATCH[header.LENGTH_AT : header.LENGTH_END], "big") == FIELDS["length"]


def test_the_kernels_read_the_same_fields() -> None:
    table = np.zeros((1, kernels.BATCH_COLUMNS), np.int64)
    state, nothing = np.zeros(kernels.STATE_SIZE, np.int64), np.zeros((0, 3), np.int64)
    raw = np.frombuffer(BATCH, np.uint8)

    assert kernels.scan_batches(raw, 0, 1 << 41, 1 << 20, nothing, table, state) == 1
    assert table[0, : kernels.RECORDS_START].tolist() == [
        0, header.HEADER_SIZE, FIELDS["base_offset"], FIELDS["attributes"], FIELDS["last_offset_delta"],
        FIELDS["base_timestamp"], FIELDS["max_timestamp"], FIELDS["count"], header.MAGIC,
    ]  # fmt: skip
    aborted = np.array([[FIELDS["producer_id"], 0, 1 << 41]], np.int64)
    state[:] = 0
    assert kernels.scan_batches(raw, 0, 1 << 41, 1 << 20, aborted, table, state) == 0, "by its producer id"

"""What of a record batch's header is read outside the kernels, in bytes from its start; `kernels.py` has all of it.

Messages of the formats before Kafka 0.11 (magic 0 and 1) begin alike up to the magic byte, but are smaller (Kafka:
`DefaultRecordBatch`, `AbstractLegacyRecordBatch`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import google_crc32c

from tiered_stream.errors import CorruptDataError

LENGTH_AT, LENGTH_END = 8, 12
MAGIC_AT = 16
CRC_AT, CRC_FROM = 17, 21

_START = struct.Struct(">qi4xb")
"""Base offset (of the last message in a compressed set of magic 0 or 1), length after that field, magic."""
_SMALLEST = {0: 26, 1: 34, 2: 61}
"""Bytes of the smallest batch, by magic."""


def crc_is_right(batch: Any) -> bool:
    """Whether a batch of magic 2 (bytes, or an array of them) has the CRC-32C that it says."""
    return bool(google_crc32c.value(batch[CRC_FROM:]) == int.from_bytes(bytes(batch[CRC_AT:CRC_FROM]), "big"))


def whole_batches(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Position, base offset and magic of each batch that is whole; what follows the last one is a piece of a batch.

    Raises:
        CorruptDataError: the bytes are no sequence of batches; says where not.
    """
    at = 0
    while len(data) - at >= _START.size:
        base_offset, length, magic = _START.unpack_from(data, at)
        if base_offset < 0 or LENGTH_END + length < _SMALLEST.get(magic, LENGTH_END + length + 1):
            raise CorruptDataError(f"no batch at byte {at}: offset {base_offset}, length {length}, magic {magic}")
        if len(data) - at < LENGTH_END + length:
            return
        yield at, base_offset, magic
        at += LENGTH_END + length

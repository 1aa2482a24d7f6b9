"""The CRC-32C of the kernels, which Google's library computes for compiled code."""

from __future__ import annotations

import google_crc32c
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.records import header
from tiered_stream.records.kernels import crc_is_right


@given(data=st.binary(max_size=200), before=st.integers(0, 20), after=st.integers(0, 20))
def test_it_is_the_librarys_of_any_bytes_wherever_they_lie(data: bytes, before: int, after: int) -> None:
    start = bytes(header.CRC_AT) + google_crc32c.value(data).to_bytes(4, "big")
    around = np.frombuffer(bytes(before) + start + data + bytes(after), np.uint8)
    assert crc_is_right(around, before, len(around) - after)


@given(at=st.integers(0, 400), mask=st.integers(1, 255))
def test_a_changed_byte_of_a_batch_is_seen_where_the_checksum_covers_it(at: int, mask: int) -> None:
    batch = bytearray(record_batch([Record(b"key", bytes(300))]))
    at %= len(batch)
    batch[at] ^= mask
    assert crc_is_right(np.frombuffer(bytes(batch), np.uint8), 0, len(batch)) == (at < header.CRC_AT)

"""Record batches of format v2 by kafka-python's builder, compressed whether or not that makes them smaller."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from kafka.codec import lz4_encode, snappy_encode, zstd_encode
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.rigs.stack.rows import Record

CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, bytes),
    # gzip's header holds the time of day, by kafka-python's encoder too: the same records have to make the same bytes.
    "gzip": (1, partial(gzip.compress, mtime=0)),
    "snappy": (2, snappy_encode),
    "lz4": (3, lz4_encode),
    "zstd": (4, zstd_encode),
}
"""By Kafka's name: the code in a batch's attributes (KIP-98, KIP-110) and the compressor."""


@dataclass(frozen=True, slots=True)
class ProducerState:
    """Fields that make a batch idempotent or transactional; by default it is neither."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


class _AlwaysCompressed(DefaultRecordBatchBuilder):  # type: ignore[misc]
    """The base class leaves out a compression that gains nothing; a test of a codec wants it in every batch."""

    __slots__ = ("compress",)

    def _maybe_compress(self) -> bool:
        header = self.header_size_in_bytes()
        self._buffer[header:] = self.compress(bytes(self._buffer[header:]))
        return True


def record_batch(
    records: Iterable[Record], codec: str = "none", state: ProducerState | None = None, base_offset: int = 0
) -> bytes:
    """One batch of all the records, at least one, with consecutive offsets from `base_offset`."""
    state = state or ProducerState()
    code, compress = CODECS[codec]
    builder = _AlwaysCompressed(
        magic=2,
        compression_type=code,
        is_transactional=state.transactional,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        base_sequence=state.base_sequence,
        batch_size=1 << 30,
    )
    builder.compress = compress
    for index, record in enumerate(records):
        builder.append(index, record.timestamp_ms, record.key, record.value, record.headers)
    # The builder leaves the base offset, the first 8 bytes, to the broker; the checksum does not cover it.
    return base_offset.to_bytes(8, "big") + bytes(builder.build())[8:]

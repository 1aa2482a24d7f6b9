"""Record batches as a split's reader yields them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tiered_stream.model import TopicPartition
from tiered_stream.records.decoder import RecordBatchDecoder

ORDERS = TopicPartition("orders", 3)
DAY_MS = 86_400_000


def decoded(records: Sequence[Record], first_offset: int = 0, partition: TopicPartition = ORDERS) -> pa.RecordBatch:
    """The records in one batch, with headers."""
    end = first_offset + len(records)
    decoder = RecordBatchDecoder(partition.topic, partition.partition, first_offset, end, include_headers=True)
    (batch,) = decoder.feed(record_batch(records, base_offset=first_offset))
    return batch


def plain(count: int, first_offset: int = 0, timestamp_ms: int = 1_700_000_000_000) -> pa.RecordBatch:
    """`count` records, a millisecond apart."""
    records = [Record(b"k", b"value %d" % n, (), timestamp_ms + n) for n in range(count)]
    return decoded(records, first_offset)

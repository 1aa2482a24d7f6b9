"""A topic that is large to read and small to keep: all partitions have the same log, which is one file of many names.

A log does not say which partition it is of, so that every one of them can be read in full.
"""

from __future__ import annotations

import struct
from pathlib import Path
from uuid import UUID

import google_crc32c

from tests.locate.log_model import TieredSegment, manifest_of
from tests.stack.batches import record_batch
from tests.stack.rows import Record
from tiered_stream.model import LeaderEpoch, RemoteLogSegment, TopicPartition
from tiered_stream.storage.aiven.aiven_fetcher import main_path
from tiered_stream.storage.fetcher import IndexType

TOPIC = "linked"
BATCH_RECORDS = 600
_RECORD = Record(None, b"x" * 100, (), 1_700_000_000_000)


def write_linked_archive(bucket: Path, partitions: int, batches: int) -> int:
    """A topic as Aiven's plugin keeps it in the folder, one segment a partition; the bytes of all logs."""
    batch = record_batch([_RECORD] * BATCH_RECORDS)
    for partition in range(partitions):
        segment = RemoteLogSegment(
            TopicPartition(TOPIC, partition), UUID(int=77), UUID(int=1000 + partition), 0, batches * BATCH_RECORDS - 1,
            batches * len(batch), _RECORD.timestamp_ms, (LeaderEpoch(0, 0),), transaction_index_empty=True,
        )  # fmt: skip
        main = bucket / main_path(segment)
        main.parent.mkdir(parents=True, exist_ok=True)
        log = main.with_name(f"{main.name}.log")
        if partition == 0:
            first = log
            with open(log, "wb") as file:
                for base in range(batches):  # the checksum does not cover the base offset
                    file.write(struct.pack(">q", base * BATCH_RECORDS) + batch[8:])
        else:
            log.hardlink_to(first)
        tiered = TieredSegment(segment, b"", _indexes(batches, len(batch)))
        main.with_name(f"{main.name}.indexes").write_bytes(b"".join(tiered.indexes.values()))
        main.with_name(f"{main.name}.rsm-manifest").write_bytes(manifest_of(tiered))
    return partitions * batches * len(batch)


def _indexes(batches: int, batch_bytes: int) -> dict[IndexType, bytes]:
    """Each batch is longer than `index.interval.bytes`, so that all but the first are in the offset index."""
    no_producers = struct.pack(">i", 0)
    return {
        IndexType.OFFSET: b"".join(
            struct.pack(">ii", (at + 1) * BATCH_RECORDS - 1, at * batch_bytes) for at in range(1, batches)
        ),
        IndexType.TIMESTAMP: b"",
        IndexType.TRANSACTION: b"",
        IndexType.PRODUCER_SNAPSHOT: struct.pack(">hI", 1, google_crc32c.value(no_producers)) + no_producers,
        IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
    }

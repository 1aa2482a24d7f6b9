"""Topics of records that a test makes, in a folder as Aiven's plugin keeps them, and the options that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tests.tier.layouts import PLAIN, local_objects, put
from tests.tier.segments import TieredSegment, tiered
from tiered_stream.model import TopicPartition
from tiered_stream.storage.local_layout import object_key

BATCH = 5000
PARTITION = TopicPartition("orders", 3)
"""The partition of a `TierFolder`."""


def write_topic(
    bucket: Path, topic: str, partitions: Sequence[Sequence[Record]], first: int = 0, batch_records: int = BATCH
) -> None:
    """Write one segment for each partition that has records, from the offset `first` on, in equal record batches."""
    segments = [[records] if records else [] for records in partitions]
    write_segments(bucket, topic, segments, first=first, batch_records=batch_records)


def write_segments(
    bucket: Path,
    topic: str,
    partitions: Sequence[Sequence[Sequence[Record]]],
    *,
    first: int = 0,
    batch_records: int = BATCH,
) -> None:
    """Write each partition's segments; every batch but a segment's first is in its indexes."""
    for number, segments in enumerate(partitions):
        batches, start = [], first
        for records in segments:
            places = range(0, len(records), batch_records)
            batches.append([record_batch(records[at : at + batch_records], base_offset=start + at) for at in places])
            start += len(records)
        for each in tiered(TopicPartition(topic, number), batches, index_interval=0):
            put(bucket, PLAIN.objects(each))


class TierFolder:
    """Folder that `LocalTieredStorage` fills with segments of one partition."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, batches: Sequence[bytes], end: int) -> TieredSegment:
        """Write one segment of these batches; `end` is the offset after its last."""
        (written,) = tiered(PARTITION, [batches], end=end)
        put(self.root, local_objects(written))
        return written

    def log(self, written: TieredSegment) -> Path:
        return self.root / object_key(written.segment, ".log")


def topic_options(bucket: Path, topics: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options that read everything in the topics."""
    return {
        "remote.log.locator": "archive",
        "remote.storage.layout": "aiven",
        "remote.storage.uri": bucket.as_uri(),
        "subscribe": topics,
        "startingOffsets": "earliest",
        **(given or {}),
    }

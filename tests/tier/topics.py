"""Topics of records that a test makes, in a folder as Aiven's plugin keeps them, and the options that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tests.tier.layouts import PLAIN, AivenPlugin, local_objects, put
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
    codecs: Sequence[str] = ("none",),
    plugin: AivenPlugin = PLAIN,
) -> None:
    """Write each partition's segments; codecs take turns, and every batch but a segment's first is in its indexes."""
    for number, segments in enumerate(partitions):
        batches = segments_of_batches(segments, first, batch_records, codecs)
        for each in tiered(TopicPartition(topic, number), batches, index_interval=0):
            put(bucket, plugin.objects(each))


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


def segments_of_batches(
    segments: Iterable[Sequence[Record]], first: int = 0, batch_records: int = BATCH, codecs: Sequence[str] = ("none",)
) -> list[list[bytes]]:
    """Return the record batches of each segment."""
    found, written = [], 0
    for records in segments:
        batches = []
        for at in range(0, len(records), batch_records):
            taken = records[at : at + batch_records]
            batches.append(record_batch(taken, codecs[written % len(codecs)], base_offset=first))
            first, written = first + len(taken), written + 1
        found.append(batches)
    return found


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

"""Offsets of one micro-batch, as Spark's offset log in the query's checkpoint has them."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from tiered_stream.delta.checkpoint.spark_checkpoint import BatchEnds, SparkCheckpoint
from tiered_stream.model import OffsetRange, PartitionOffsets, TopicPartition
from tiered_stream.options.offset_json import LastOffsets, StreamOffsets, notes_of


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """Start and end offsets of a micro-batch, by partition; the notes of `ends` have the topics' ids."""

    starts: PartitionOffsets
    ends: PartitionOffsets

    @property
    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        """Offset range of each partition that has offsets in the micro-batch; a new partition begins at offset 0."""
        return {
            partition: OffsetRange(start, end)
            for partition, end in self.ends.items()
            if (start := self.starts.get(partition, 0)) < end
        }


def micro_batch_offsets(checkpoint: SparkCheckpoint, batch_id: int) -> BatchOffsets | None:
    """Return the offsets of a micro-batch of a query with one source.

    None: the checkpoint does not have them. Older releases have not written down the start of a first micro-batch.

    Raises:
        ConfigurationError: the offsets in the checkpoint do not have the form of Kafka's offsets.
        CorruptDataError, UnsupportedDataError: a file in the checkpoint cannot be read.
    """
    ends = _offsets(checkpoint.ends(batch_id))
    starts = notes_of(ends).start or (_offsets(checkpoint.ends(batch_id - 1)) if batch_id else None)
    return BatchOffsets(starts, ends) if ends and starts else None


def _offsets(ends: BatchEnds | None) -> PartitionOffsets:
    texts = [text for text in ends.by_source.values() if text is not None] if ends else []
    return LastOffsets().from_dict(orjson.loads(texts[0])) if len(texts) == 1 else StreamOffsets({})

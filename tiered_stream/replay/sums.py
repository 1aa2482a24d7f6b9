"""What a task tells of the rows of one split: sums of their hashes by buckets of offsets, or the hashes themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tiered_stream.model import Split
from tiered_stream.observe.metrics import send
from tiered_stream.options.parsing import Options
from tiered_stream.read import SplitReader, within_times
from tiered_stream.records.arrow import repeated_int32, repeated_text
from tiered_stream.records.row_hash import BATCH_ROWS, Numbers, bucket_sums, numbers, row_hashes
from tiered_stream.replay.sums_source import Hashing

MOST_WAITING = 65_536
"""Sums that wait to be handed over; in a log that is nearly all gaps, each is of one row."""


def hashed_split(split: Split, options: Options, hashing: Hashing) -> Iterator[pa.RecordBatch]:
    """Read a split; rows with the columns `hashing.answer`. Raises TieredStreamError: as `read.read_split`."""
    reader, partition = SplitReader(split, options, BATCH_ROWS), split.topic_partition
    batches = within_times(reader.batches(), hashing.times)
    found = ((numbers(batch["offset"]), row_hashes(batch, hashing.columns)) for batch in batches)
    for columns in found if hashing.each_row else together(bucket_sums(*each) for each in found):
        count = len(columns[0])
        same = repeated_text(partition.topic, count), repeated_int32(partition.partition, count)
        yield pa.RecordBatch.from_arrays([*same, *map(pa.array, columns)], names=list(hashing.answer))
    send(reader.metrics, options.metrics_addresses)


def together(parts: Iterator[tuple[Numbers, ...]]) -> Iterator[tuple[Numbers, ...]]:
    """The same sums in few batches: each batch costs its way into the JVM."""
    waiting: list[tuple[Numbers, ...]] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part[0])
        if size >= MOST_WAITING:
            yield tuple(map(np.concatenate, zip(*waiting, strict=True)))
            waiting, size = [], 0
    if size:
        yield tuple(map(np.concatenate, zip(*waiting, strict=True)))

"""Row hashes of one split, computed in a Spark task: sums by buckets of offsets, or one hash for each row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tiered_stream.model import Split
from tiered_stream.observe.metrics import send
from tiered_stream.options.parsing import Options
from tiered_stream.read.split_reader import SplitReader, within_times
from tiered_stream.records.arrow import repeated_int32, repeated_text
from tiered_stream.records.row_hash import BATCH_ROWS, Numbers, bucket_sums, numbers, row_hashes
from tiered_stream.verification.hashing import Hashing

MAX_WAITING = 65_536
"""Minimum number of sums in a batch for the JVM, except the last. In a log with many gaps, a sum is over few rows."""


def hashed_split(split: Split, options: Options, hashing: Hashing) -> Iterator[pa.RecordBatch]:
    """Read a split and yield batches with the columns `hashing.result_columns`; then send the counters of reading.

    A row of a batch has the sums of row hashes of one bucket of offsets, or the hash of one record.

    Raises:
        TieredStreamError: the split cannot be read (see `read.read_split`).
    """
    reader, (topic, number) = SplitReader(split, options, BATCH_ROWS), split.topic_partition
    batches = within_times(reader.batches(), hashing.times)
    hashed = ((numbers(batch["offset"]), row_hashes(batch, hashing.columns)) for batch in batches)
    for columns in hashed if hashing.by_row else together(bucket_sums(*row_columns) for row_columns in hashed):
        rows = len(columns[0])
        arrays = [repeated_text(topic, rows), repeated_int32(number, rows), *map(pa.array, columns)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(hashing.result_columns))
    send(reader.metrics, options.metrics_addresses)


def together(parts: Iterator[tuple[Numbers, ...]]) -> Iterator[tuple[Numbers, ...]]:
    """Join tuples of columns into few tuples of at least `MAX_WAITING` rows, because each batch costs a transfer.

    Only the last tuple may have fewer rows.
    """
    waiting: list[tuple[Numbers, ...]] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part[0])
        if size >= MAX_WAITING:
            yield tuple(map(np.concatenate, zip(*waiting, strict=True)))
            waiting, size = [], 0
    if size:
        yield tuple(map(np.concatenate, zip(*waiting, strict=True)))

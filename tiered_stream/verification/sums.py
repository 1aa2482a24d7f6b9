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
"""Number of rows of sums at which a task sends an Arrow batch to the JVM. Only the last batch may have fewer rows.

In a log with many gaps, a bucket has few records, so a split has many sums.
"""


def hashed_split(split: Split, options: Options, hashing: Hashing) -> Iterator[pa.RecordBatch]:
    """Read a split, and yield Arrow batches with the columns `hashing.result_columns`; then send the reading counters.

    A row of a batch has the sums of row hashes of one bucket of offsets, or the hash of one record.

    Raises:
        TieredStreamError: the split cannot be read (see `read_split`).
    """
    reader, (topic, number) = SplitReader(split, options, BATCH_ROWS), split.topic_partition
    batches = within_times(reader.batches(), hashing.times)
    hashed = ((numbers(batch["offset"]), row_hashes(batch, hashing.columns)) for batch in batches)
    for columns in hashed if hashing.by_row else together(bucket_sums(*row_columns) for row_columns in hashed):
        rows = len(columns[0])
        arrays = [repeated_text(topic, rows), repeated_int32(number, rows), *map(pa.array, columns)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(hashing.result_columns))
    send(reader.metrics, options.report_addresses)


def together(parts: Iterator[tuple[Numbers, ...]]) -> Iterator[tuple[Numbers, ...]]:
    """Join tuples of columns into fewer tuples with at least `MAX_WAITING` rows, because each tuple costs a transfer.

    All columns of a tuple have the same number of rows. Only the last tuple may have fewer than `MAX_WAITING` rows.
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

"""The stream reader for a Spark that passes neither start nor limit, called as such a Spark calls it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from tests.archives import COMMITTED, PLAIN, archive_options, consumed
from tests.delta.archive import LONG
from tiered_stream.options.parsing import parse_options
from tiered_stream.spark.own_limits import StreamWithOwnLimits

LIMIT = 4000
Offsets = dict[str, Any]


@contextmanager
def opened(checkpoint: Offsets | None) -> Iterator[StreamWithOwnLimits]:
    """A reader after Spark's first calls of a query that has this checkpoint."""
    options = {"subscribe": LONG, "maxOffsetsPerTrigger": str(LIMIT), "startingOffsets": "earliest"}
    reader = StreamWithOwnLimits(parse_options(archive_options(PLAIN, options), streaming=True))
    try:
        if checkpoint is not None:
            assert reader.partitions(checkpoint, checkpoint) == []
        yield reader
    finally:
        reader.stop()


def run(checkpoint: Offsets | None, most: int = 1000) -> tuple[Offsets, list[Any]]:
    """Run at most so many micro-batches; return the end of the last one, and the rows."""
    rows, end = [], checkpoint
    with opened(checkpoint) as reader:
        for _ in range(most):
            latest = reader.latestOffset()
            if latest == end:
                break
            start = reader.initialOffset() if end is None else end
            assert offsets(latest) - offsets(start) <= LIMIT
            rows += [
                row for part in reader.partitions(start, latest) for each in reader.read(part) for row in ids(each)
            ]
            end = latest
    assert end is not None
    return end, rows


def ids(batch: pa.RecordBatch) -> list[tuple[str, int, int]]:
    return list(zip(*(batch[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True))


def offsets(at: Offsets) -> int:
    return sum(sum(partitions.values()) for partitions in at.values())


EXPECTED = sorted(
    (at.topic, at.partition, row.offset)
    for at, rows in consumed(PLAIN, COMMITTED).items()
    for row in rows
    if at.topic == LONG
)


def test_each_record_comes_once_and_no_batch_is_above_the_limit() -> None:
    _, rows = run(None)
    assert sorted(rows) == EXPECTED


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_query_that_starts_again_goes_on_at_its_checkpoint(most: int) -> None:
    end, all_rows = run(None, most)
    for _ in range(1000):
        before, (end, rows) = end, run(end, most)
        all_rows += rows
        if end == before:
            break
    assert sorted(all_rows) == EXPECTED


def test_a_micro_batch_that_was_not_committed_is_planned_again_at_its_own_offsets() -> None:
    first, _ = run(None, 1)
    with opened(None) as reader:
        start = reader.initialOffset()
    with opened(first) as reader:
        planned = reader.partitions(start, first)
        assert planned
        assert offsets(reader.latestOffset()) - offsets(first) <= LIMIT

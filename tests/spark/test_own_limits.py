"""The stream reader for a Spark that passes neither start nor limit, called as such a Spark calls it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.archives import COMMITTED, PLAIN, archive_options, consumed
from tests.delta.archive import LONG
from tests.rigs.stack.spark import configured
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import parse_options
from tiered_stream.spark.executor_python import register_source
from tiered_stream.spark.source import TieredStreamDataSource
from tiered_stream.spark.stream_reader import WRAPPER, StreamWithOwnLimits

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


def run(checkpoint: Offsets | None, most: int) -> tuple[Offsets, list[Any]]:
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


@cache
def expected() -> list[tuple[str, int, int]]:
    return sorted(
        (at.topic, at.partition, row.offset)
        for at, rows in consumed(PLAIN, COMMITTED).items()
        for row in rows
        if at.topic == LONG
    )


@pytest.mark.parametrize("most", [1, 2, 5, 1000])
def test_each_record_comes_once_also_if_a_query_starts_again_at_its_checkpoint(most: int) -> None:
    end, all_rows = run(None, most)
    for _ in range(1000):
        before, (end, rows) = end, run(end, most)
        all_rows += rows
        if end == before:
            break
    assert sorted(all_rows) == expected()


def test_a_micro_batch_that_was_not_committed_is_planned_again_at_its_own_offsets() -> None:
    first, _ = run(None, 1)
    with opened(None) as reader:
        start = reader.initialOffset()
    with opened(first) as reader:
        planned = reader.partitions(start, first)
        assert planned
        assert offsets(reader.latestOffset()) - offsets(first) <= LIMIT


def test_a_run_of_spark_s_wrapper_for_available_now_is_refused_before_its_first_end_is_logged() -> None:
    with opened(None) as reader:
        reader.latestOffset()  # prepareForTriggerAvailableNow
        with pytest.raises(ConfigurationError, match=WRAPPER):
            reader.latestOffset()  # reportLatestOffset, before the offset log is written


def test_a_run_of_spark_s_wrapper_is_refused_when_it_passes_the_checkpoint_too_late() -> None:
    end, _ = run(None, 1)
    with opened(None) as reader:
        reader.latestOffset()
        with pytest.raises(ConfigurationError, match=WRAPPER):
            reader.partitions(end, end)  # setLatestSeenOffset


class OwnLimitsSource(TieredStreamDataSource):
    """The source as an older Spark gets it; each Spark runs such a reader by its wrapper, or in one micro-batch."""

    @classmethod
    def name(cls) -> str:
        return "own_limits"

    def streamReader(self, schema: StructType) -> StreamWithOwnLimits:  # noqa: N802 - Spark's name
        return StreamWithOwnLimits(self._parsed(schema, streaming=True))


def test_spark_s_wrapper_is_refused_before_it_writes_an_end_into_the_offset_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    register_source(spark, OwnLimitsSource)
    given = archive_options(PLAIN, {"subscribe": LONG, "maxOffsetsPerTrigger": "4000", "startingOffsets": "earliest"})
    rows: list[int] = []

    def start(wrapper: str, checkpoint: Path) -> list[str]:
        """Run the query; return the names of the files in its offset log."""
        with configured(spark, {WRAPPER: wrapper}):
            frame = spark.readStream.format("own_limits").options(**given).load()
            writer = frame.writeStream.foreachBatch(lambda batch, _: rows.append(batch.count()))
            writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
        return logged(checkpoint)

    def logged(checkpoint: Path) -> list[str]:
        return sorted(path.name for path in checkpoint.glob("offsets/[0-9]*"))

    with pytest.raises(StreamingQueryException, match=WRAPPER):
        start("true", tmp_path / "new")
    assert logged(tmp_path / "new") == []
    assert start("false", tmp_path / "begun") == ["0"]
    with pytest.raises(StreamingQueryException, match=WRAPPER):
        start("true", tmp_path / "begun")
    assert logged(tmp_path / "begun") == ["0"]
    assert start("false", tmp_path / "begun") == ["0", "1"]
    assert rows == [4000, 4000]

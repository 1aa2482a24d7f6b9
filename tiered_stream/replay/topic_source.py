"""The source whose tasks produce into a topic: planned like `tiered_stream`, its rows say what a task has done.

One task has one source partition of a micro-batch, in order. What of it was produced before is not planned again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from tiered_stream.delta.data_files import observed_totals
from tiered_stream.observe.metrics import ReadMetrics, send
from tiered_stream.options.offset_json import offsets_from_dict, offsets_to_dict
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.replay.topic_settings import TopicWrites, source_only, topic_writes
from tiered_stream.source import StreamReader, settle_worker

if TYPE_CHECKING:
    from tiered_stream.model import Split

SOURCE = "tiered_stream_topic"
_PREFIX = "task_"
_WHOLE = {each.name: isinstance(each.default, int) for each in fields(ReadMetrics)}
"""Whether it is a whole number."""


class TopicTask(InputPartition):
    """The splits of one source partition, and where else their task is to report what they cost."""

    def __init__(self, splits: tuple[Split, ...], batch_log: tuple[str, ...]) -> None:
        super().__init__(splits)
        self.splits = splits
        self.batch_log = batch_log


class TopicDataSource(DataSource):
    """For `replay.topic_target` alone: whoever reads it writes to the target."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        return StructType(
            [StructField(_PREFIX + name, LongType() if whole else DoubleType()) for name, whole in _WHOLE.items()]
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return TopicReader(parse_options(source_only(self.options), streaming=True), topic_writes(self.options))


class TopicReader(StreamReader):
    """Plans as `StreamReader` does, from the replay's positions on; its tasks produce."""

    def __init__(self, options: Options, writes: TopicWrites) -> None:
        super().__init__(options)
        self._writes = writes

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_writes": self._writes}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        splits = self.splits(self._not_yet_produced(start, end), end)
        by_partition = groupby(splits, key=lambda split: split.topic_partition)
        return [TopicTask(tuple(group), self.batch_log) for _, group in by_partition]

    def _not_yet_produced(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        """The start, moved on to the positions: what lies before them may be gone from the source by now."""
        from tiered_stream.replay.target_positions import read_positions

        starts, ends = offsets_from_dict(start), offsets_from_dict(end)
        for partition, position in read_positions(self._writes, starts.keys()).items():
            starts[partition] = min(max(starts[partition], position.offset), ends[partition])
        return offsets_to_dict(starts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from tiered_stream.replay.produce import produce_splits

        assert isinstance(partition, TopicTask)
        addresses = (*self.options.metrics_addresses, *partition.batch_log)
        spent = produce_splits(partition.splits, self.options, self._writes, lambda metrics: send(metrics, addresses))
        yield pa.RecordBatch.from_pylist([{_PREFIX + name: value for name, value in asdict(spent).items()}])
        settle_worker()


def observed(rows: DataFrame) -> DataFrame:
    """The rows, their sums reported in each `StreamingQueryProgress`."""
    return observed_totals(rows, _WHOLE)

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
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.process import settle_worker
from tiered_stream.replay.topic_settings import TopicWrites, source_only, topic_writes
from tiered_stream.source import StreamReader

if TYPE_CHECKING:
    from tiered_stream.model import Split

SOURCE = "tiered_stream_topic"
_FIELDS: dict[str, type] = {each.name: type(each.default) for each in fields(ReadMetrics)}
_PREFIX = "task_"


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
        kinds = {int: LongType(), float: DoubleType()}
        return StructType([StructField(_PREFIX + name, kinds[kind]) for name, kind in _FIELDS.items()])

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
        tasks = groupby(splits, key=lambda split: split.topic_partition)
        return [TopicTask(tuple(group), self.batch_log) for _, group in tasks]

    def _not_yet_produced(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        """The start, moved on to the positions: what lies before them may be gone from the source by now."""
        from tiered_stream.options.offset_json import offsets_from_dict, offsets_to_dict
        from tiered_stream.replay.target_positions import read_positions

        starts, ends = offsets_from_dict(start), offsets_from_dict(end)
        found = read_positions(self._writes, starts)
        moved = {
            partition: min(max(offset, found[partition].offset), ends[partition]) if partition in found else offset
            for partition, offset in starts.items()
        }
        return offsets_to_dict(moved)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from tiered_stream.replay.produce import produce_splits

        assert isinstance(partition, TopicTask)
        addresses = (*self.options.metrics_addresses, *partition.batch_log)
        spent = produce_splits(partition.splits, self.options, self._writes, lambda metrics: send(metrics, addresses))
        row = {_PREFIX + name: [value] for name, value in asdict(spent).items()}
        kinds = {int: pa.int64(), float: pa.float64()}
        yield pa.RecordBatch.from_pydict(row, pa.schema([(_PREFIX + name, kinds[k]) for name, k in _FIELDS.items()]))
        settle_worker()


def observed(rows: DataFrame) -> DataFrame:
    """The rows, their sums reported in each `StreamingQueryProgress`."""
    return observed_totals(rows, _FIELDS)

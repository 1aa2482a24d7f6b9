"""The source whose tasks write the table's files: planned like `tiered_stream`, its rows are the files' names.

Offsets, and so the checkpoint, are those of `tiered_stream`: a query may go on in the other lane.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tiered_stream.delta.data_files import file_rows, spark_file_schema
from tiered_stream.delta.ingest_settings import TableFiles, source_options, table_files
from tiered_stream.model import Split
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.process import settle_worker
from tiered_stream.source import StreamReader

SOURCE = "tiered_stream_files"
SMALLEST_TASK_BYTES = 8 << 20
"""Below this, a task of its own costs more than it gains."""
FILES = 4
"""Of one task: at its start a core waits for the first bytes, so that fewer tasks are quicker."""
ASSUMED_RECORD_BYTES = 256
"""For splits that come from a broker: their size is not known beforehand."""


class FilesPartition(InputPartition):
    """The splits that one task lands, and where else it is to report what they cost."""

    def __init__(self, splits: tuple[Split, ...], batch_log: tuple[str, ...]) -> None:
        super().__init__(splits)
        self.splits = splits
        self.batch_log = batch_log


class FilesDataSource(DataSource):
    """For `landing.query` alone: whoever reads it writes files that nobody commits."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        return spark_file_schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = parse_options(source_options(self.options), streaming=True)
        return FilesReader(options, table_files(self.options))


class FilesReader(StreamReader):
    """Plans as `StreamReader` does; its tasks write."""

    def __init__(self, options: Options, files: TableFiles) -> None:
        super().__init__(options)
        self._files = files

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_files": self._files}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        splits = self.splits(start, end)
        tasks = tasks_of(splits, target_bytes=self._files.target_bytes, parallelism=self._files.tasks)
        return [FilesPartition(task, self.batch_log) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from tiered_stream.delta.table_writer import write_splits
        from tiered_stream.observe.metrics import send

        assert isinstance(partition, FilesPartition)
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        files, metrics = write_splits(partition.splits, self.options, self._files, task)
        send(metrics, (*self.options.metrics_addresses, *partition.batch_log))
        peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        yield file_rows(files, metrics, peak_memory)
        settle_worker()


def tasks_of(splits: Sequence[Split], *, target_bytes: int, parallelism: int) -> list[tuple[Split, ...]]:
    """Neighbours together, in tasks of about the same size, so that none is waited for.

    A task has about `FILES` files of `target_bytes`, or less where else there were fewer than `parallelism` tasks.
    """
    sizes = [split.storage_bytes or len(split.offsets) * ASSUMED_RECORD_BYTES for split in splits]
    share = -(-sum(sizes) // parallelism)
    most = min(FILES * target_bytes, max(SMALLEST_TASK_BYTES, share))
    # No split is more than a task: one from a broker may span a gap of any length in the offsets.
    weights = [min(size, most) for size in sizes]
    total = sum(weights)
    tasks: list[list[Split]] = [[] for _ in range(max(1, round(total / most)))]
    for split, weight, end in zip(splits, weights, accumulate(weights), strict=True):
        # By where its middle lies in the whole; in whole numbers, so that none is rounded up to the end.
        tasks[(2 * end - weight) * len(tasks) // (2 * total)].append(split)
    return [tuple(task) for task in tasks if task]

"""A source that reads nothing: it hands ready Arrow batches of our schema to Spark, as fast as Spark takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tiered_stream.records.arrow import record_schema
from tiered_stream.records.decoder import MAX_ROWS

TASK_BYTES = 128 << 20
"""As much as a split has by default."""


class ReadyMade(DataSource):
    """Options: `rows` in all, and the `bytes` of each value."""

    @classmethod
    def name(cls) -> str:
        return "bench_ready_made"

    def schema(self) -> StructType:
        return from_arrow_schema(record_schema(include_headers=False, columns=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["rows"]), int(self.options["bytes"]))


class _Reader(DataSourceReader):
    def __init__(self, rows: int, value_bytes: int) -> None:
        self._rows = rows
        self._value_bytes = value_bytes

    def partitions(self) -> Sequence[InputPartition]:
        tasks = max(1, self._rows * self._value_bytes // TASK_BYTES)
        edges = [self._rows * task // tasks for task in range(tasks + 1)]
        return [InputPartition(end - start) for start, end in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        most = max(1, min(MAX_ROWS, (16 << 20) // self._value_bytes))
        batch = ready_batch(most, self._value_bytes)
        for start in range(0, partition.value, most):
            yield batch.slice(0, min(most, partition.value - start))


def ready_batch(rows: int, value_bytes: int) -> pa.RecordBatch:
    """Rows as ours have them, of one partition, with values of letters."""
    letters = np.random.default_rng(0).integers(65, 91, rows * value_bytes, np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * value_bytes
    values = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
    schema = record_schema(include_headers=False, columns=None)
    columns = {
        "key": pa.nulls(rows, pa.binary()),
        "value": values,
        "topic": pa.array(["bench"] * rows),
        "partition": pa.array(np.zeros(rows, np.int32)),
        "offset": pa.array(np.arange(rows)),
        "timestamp": pa.array(np.full(rows, 1_700_000_000_000_000)),
        "timestampType": pa.array(np.zeros(rows, np.int32)),
    }
    arrays = [columns[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

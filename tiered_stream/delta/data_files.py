"""One row a file: all that goes through Spark in the direct lane, from the executors to the driver's commit.

A task's first row carries what the whole task cost; a task that wrote no file has that one row, without a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sql
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from tiered_stream.model import TopicPartition
from tiered_stream.observe.metrics import OBSERVATION, ReadMetrics

PEAK_MEMORY = "peak_memory"
_FILE_FIELDS: dict[str, type] = {
    "path": str, "size": int, "modification_time": int, "day": str, "records": int, "stats": str, "offsets": str,
}  # fmt: skip
_TASK_FIELDS: dict[str, type] = {each.name: type(each.default) for each in fields(ReadMetrics)} | {PEAK_MEMORY: int}
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_SPARK = {str: StringType(), int: LongType(), float: DoubleType()}
_TASK_PREFIX = "task_"
_COLUMNS = _FILE_FIELDS | {_TASK_PREFIX + name: kind for name, kind in _TASK_FIELDS.items()}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of the table, whole but not committed yet.

    `path` is relative to the table, `size` in bytes, `modification_time` in milliseconds since the epoch; `offsets`
    are the first and the last offset of each partition in the file, both inclusive.
    """

    path: str
    size: int
    modification_time: int
    day: str | None
    records: int
    stats: str
    offsets: Mapping[TopicPartition, tuple[int, int]]


def spark_file_schema() -> StructType:
    """The rows' schema."""
    return StructType([StructField(name, _SPARK[kind]) for name, kind in _COLUMNS.items()])


def file_rows(files: Sequence[DataFile], metrics: ReadMetrics, peak_memory: int) -> pa.RecordBatch:
    """What a task has to say: its files, what it cost, and the largest memory (bytes) of its process so far."""
    spent = {_TASK_PREFIX + name: value for name, value in (asdict(metrics) | {PEAK_MEMORY: peak_memory}).items()}
    rows: list[dict[str, Any]] = [_row(file) for file in files] or [{}]
    rows[0] |= spent
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in _COLUMNS.items()])
    return pa.RecordBatch.from_pylist(rows, schema)


def _row(file: DataFile) -> dict[str, Any]:
    offsets = [[partition.topic, partition.partition, *ends] for partition, ends in sorted(file.offsets.items())]
    return {name: getattr(file, name) for name in _FILE_FIELDS} | {"offsets": orjson.dumps(offsets).decode()}


def data_files(rows: Iterable[Row]) -> list[DataFile]:
    """Inverse of `file_rows`: the files."""
    return [_file({name: row[name] for name in _FILE_FIELDS}) for row in rows if row["path"] is not None]


def _file(found: dict[str, Any]) -> DataFile:
    offsets = {
        TopicPartition(topic, partition): (first, last)
        for topic, partition, first, last in orjson.loads(found.pop("offsets"))
    }
    return DataFile(**found, offsets=offsets)


def observed(rows: DataFrame) -> DataFrame:
    """The rows, their sums reported in each `StreamingQueryProgress` under `OBSERVATION`."""
    return observed_totals(rows, _TASK_FIELDS, "sum(size) AS file_bytes", "count(path) AS files")


def observed_totals(rows: DataFrame, task_fields: Iterable[str], *others: str) -> DataFrame:
    """The rows, the sums of their columns `task_NAME`, and other expressions, reported under `OBSERVATION`."""
    # As text: that is one call into the JVM for each, where functions of columns are five.
    return rows.observe(OBSERVATION, *map(sql.expr, [*map(_total, task_fields), *others]))


def _total(name: str) -> str:
    aggregate = "max" if name.endswith("_max") or name == PEAK_MEMORY else "sum"
    return f"{aggregate}({_TASK_PREFIX}{name}) AS {name}"

"""Rows that name a task's data files: in the direct lane, only these go through Spark from executors to the driver.

There is one row per file. A task's first row also has the metrics of the whole task. A task that wrote no file returns
one row without a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sql
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from tiered_stream.model import TopicPartition, uuid_from_text, uuid_to_text
from tiered_stream.observe.metrics import OBSERVATION, ReadMetrics

if TYPE_CHECKING:
    import pyarrow as pa

PEAK_MEMORY = "peak_memory"
_FILE_FIELDS: dict[str, type] = {
    "table": str, "path": str, "size": int, "modification_time": int, "day": str, "records": int, "stats": str,
    "offsets": str, "topic_ids": str, "schema": str, "rules": str, "dead_letters_for": str, "held_why": str,
}  # fmt: skip
_TASK_FIELDS: dict[str, type] = {each.name: type(each.default) for each in fields(ReadMetrics)} | {PEAK_MEMORY: int}
_ARROW = {str: "string", int: "int64", float: "double"}
"""Arrow's type names by Python type; only names, so that Spark can look the source up without importing pyarrow."""
_SPARK = {str: StringType(), int: LongType(), float: DoubleType()}
_TASK_PREFIX = "task_"
_COLUMNS = _FILE_FIELDS | {_TASK_PREFIX + name: kind for name, kind in _TASK_FIELDS.items()}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table, complete but not committed yet.

    `table` is the table's key (`TableTarget.key`), and `path` is relative to the table's folder. `size` is in bytes,
    `modification_time` in milliseconds since the epoch. `offsets` has the first and the last offset of each partition
    in the file, both inclusive. `topic_ids` has the ids of the file's topics, as far as brokers have reported them.
    `schema` is the schema of the rows in Spark's JSON; None: the target's. `rules` is the text of the table's rules by
    which the rows were checked. In a file of dead letters, `dead_letters_for` is the key of the table that their
    records were meant for.
    """

    table: str
    path: str
    size: int
    modification_time: int
    day: str | None
    records: int
    stats: str
    offsets: Mapping[TopicPartition, tuple[int, int]]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    schema: str | None = None
    rules: str | None = None
    dead_letters_for: str | None = None

    @property
    def share(self) -> str:
        """Key of the table with whose batch the file is committed; for dead letters, the table they were meant for."""
        return self.dead_letters_for or self.table


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Records of a task that are in no file because their table is parked, or one of its folders cannot be written.

    `table` is the key of the table that the records are for. `offsets` has the first and the last offset of each
    partition, both inclusive. `held_why` is the reason.
    """

    table: str
    offsets: Mapping[TopicPartition, tuple[int, int]]
    held_why: str


def spark_file_schema() -> StructType:
    """Return the Spark schema of the rows that name data files."""
    return StructType([StructField(name, _SPARK[kind]) for name, kind in _COLUMNS.items()])


def file_rows(
    files: Sequence[DataFile], metrics: ReadMetrics, peak_memory: int, held: Sequence[HeldRows] = ()
) -> pa.RecordBatch:
    """Return a task's rows for the driver: its files, its held rows, its metrics, and its peak memory in bytes."""
    import pyarrow as pa

    spent = {_TASK_PREFIX + name: value for name, value in (asdict(metrics) | {PEAK_MEMORY: peak_memory}).items()}
    written: list[DataFile | HeldRows] = [*files, *held]
    rows: list[dict[str, Any]] = [_row(each) for each in written] or [{}]
    rows[0] |= spent
    columns = {name: _array(kind, [row.get(name) for row in rows]) for name, kind in _COLUMNS.items()}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _array(kind: type, values: Sequence[Any]) -> pa.Array:
    """Build an Arrow array from buffers, because pyarrow imports pandas to convert Python values (32 MiB, 0.3 s)."""
    import numpy as np
    import pyarrow as pa

    known = pa.py_buffer(np.packbits([value is not None for value in values], bitorder="little"))
    if kind is str:
        texts = [(value or "").encode() for value in values]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        data = [pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    else:
        data = [pa.py_buffer(np.array([value or 0 for value in values], kind))]
    return pa.Array.from_buffers(pa.type_for_alias(_ARROW[kind]), len(values), [known, *data])


def _row(written: DataFile | HeldRows) -> dict[str, Any]:
    offsets = [[partition.topic, partition.partition, *ends] for partition, ends in sorted(written.offsets.items())]
    row = {name: getattr(written, name, None) for name in _FILE_FIELDS} | {"offsets": orjson.dumps(offsets).decode()}
    if isinstance(written, DataFile):
        ids = {topic: uuid_to_text(topic_id) for topic, topic_id in written.topic_ids.items()}
        row["topic_ids"] = orjson.dumps(ids).decode()
    return row


def data_files(rows: Iterable[Row]) -> list[DataFile]:
    """Return the data files that rows made by `file_rows` name."""
    names = [name for name in _FILE_FIELDS if name != "held_why"]
    return [_file({name: row[name] for name in names}) for row in rows if row["path"] is not None]


def held_rows(rows: Iterable[Row]) -> list[HeldRows]:
    """Return the held rows (records that are in no file) from rows made by `file_rows`."""
    held = (row for row in rows if row["held_why"] is not None)
    return [HeldRows(row["table"], _offsets(row["offsets"]), row["held_why"]) for row in held]


def _offsets(text: str) -> dict[TopicPartition, tuple[int, int]]:
    return {TopicPartition(topic, partition): (first, last) for topic, partition, first, last in orjson.loads(text)}


def _file(found: dict[str, Any]) -> DataFile:
    offsets = _offsets(found.pop("offsets"))
    ids = {topic: uuid_from_text(text) for topic, text in orjson.loads(found.pop("topic_ids")).items()}
    return DataFile(**found, offsets=offsets, topic_ids=ids)


def observed(rows: DataFrame) -> DataFrame:
    """Return the rows, with their totals reported in each `StreamingQueryProgress` under `OBSERVATION`."""
    return rows.observe(OBSERVATION, *_file_totals(rows.sparkSession.sparkContext._gateway))


@lru_cache(maxsize=1)
def _file_totals(_gateway: object) -> list[Column]:
    """Return the totals to observe; cached per JVM, because making one takes five calls into the JVM."""
    others = sql.sum("size").alias("file_bytes"), sql.count("path").alias("files"), sql.count("held_why").alias("held")
    return [*totals(_TASK_FIELDS), *others]


def totals(task_fields: Iterable[str]) -> list[Column]:
    """Return an aggregate of the column `task_NAME` for each field name: the sum, or the maximum for a peak value."""
    # No SQL text, because Spark's parser takes 0.3 s to load, and a small job would need it for nothing else.
    return [_total(name) for name in task_fields]


def _total(name: str) -> Column:
    aggregate = sql.max if name.endswith("_max") or name == PEAK_MEMORY else sql.sum
    return aggregate(f"{_TASK_PREFIX}{name}").alias(name)

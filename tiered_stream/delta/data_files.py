"""One row a file: all that goes through Spark in the direct lane, from the executors to the driver's commit.

A task's first row carries what the whole task cost; a task that wrote no file has that one row, without a path.
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
"""Names of types, as no more than the names is wanted where Spark looks the source up."""
_SPARK = {str: StringType(), int: LongType(), float: DoubleType()}
_TASK_PREFIX = "task_"
_COLUMNS = _FILE_FIELDS | {_TASK_PREFIX + name: kind for name, kind in _TASK_FIELDS.items()}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table, whole but not committed yet.

    `table` is its key (`TableTarget.key`), `path` is relative to that, `size` in bytes, `modification_time` in
    milliseconds since the epoch; `offsets` are the first and the last offset of each partition in the file, both
    inclusive; `topic_ids` are those of its topics, as far as brokers have told them; `schema` is that of the rows, in
    Spark's JSON, where it is not the target's; `rules` are those of the table by which its rows were checked, as text.
    A file of dead letters names in `dead_letters_for` the key of the table whose rows their records did not become.
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
        """The key of the table with which the file is committed: dead letters belong to the batch of their table."""
        return self.dead_letters_for or self.table


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Records of a task that are in no file because their table is parked, or a folder of theirs cannot be written.

    `table` is the key of the table that they are for; `offsets` as of a file.
    """

    table: str
    offsets: Mapping[TopicPartition, tuple[int, int]]
    held_why: str


def spark_file_schema() -> StructType:
    """The rows' schema."""
    return StructType([StructField(name, _SPARK[kind]) for name, kind in _COLUMNS.items()])


def file_rows(
    files: Sequence[DataFile], metrics: ReadMetrics, peak_memory: int, held: Sequence[HeldRows] = ()
) -> pa.RecordBatch:
    """What a task has to say: its files, what it cost, and the largest memory (bytes) of its process so far."""
    import pyarrow as pa

    spent = {_TASK_PREFIX + name: value for name, value in (asdict(metrics) | {PEAK_MEMORY: peak_memory}).items()}
    written: list[DataFile | HeldRows] = [*files, *held]
    rows: list[dict[str, Any]] = [_row(each) for each in written] or [{}]
    rows[0] |= spent
    columns = {name: _array(kind, [row.get(name) for row in rows]) for name, kind in _COLUMNS.items()}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _array(kind: type, values: Sequence[Any]) -> pa.Array:
    """From buffers: to make an array of Python values pyarrow imports pandas (32 MiB, a third of a second)."""
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
    """Inverse of `file_rows`: the files."""
    names = [name for name in _FILE_FIELDS if name != "held_why"]
    return [_file({name: row[name] for name in names}) for row in rows if row["path"] is not None]


def held_rows(rows: Iterable[Row]) -> list[HeldRows]:
    """Inverse of `file_rows`: what is in no file."""
    held = (row for row in rows if row["held_why"] is not None)
    return [HeldRows(row["table"], _offsets(row["offsets"]), row["held_why"]) for row in held]


def _offsets(text: str) -> dict[TopicPartition, tuple[int, int]]:
    return {TopicPartition(topic, partition): (first, last) for topic, partition, first, last in orjson.loads(text)}


def _file(found: dict[str, Any]) -> DataFile:
    offsets = _offsets(found.pop("offsets"))
    ids = {topic: uuid_from_text(text) for topic, text in orjson.loads(found.pop("topic_ids")).items()}
    return DataFile(**found, offsets=offsets, topic_ids=ids)


def observed(rows: DataFrame) -> DataFrame:
    """The rows, their sums reported in each `StreamingQueryProgress` under `OBSERVATION`."""
    return rows.observe(OBSERVATION, *_file_totals(rows.sparkSession.sparkContext._gateway))


@lru_cache(maxsize=1)
def _file_totals(_gateway: object) -> list[Column]:
    """What is observed of files, made once for the JVM: each is five calls into it."""
    others = sql.sum("size").alias("file_bytes"), sql.count("path").alias("files"), sql.count("held_why").alias("held")
    return [*totals(_TASK_FIELDS), *others]


def totals(task_fields: Iterable[str]) -> list[Column]:
    """The sums of the columns `task_NAME`, by their names."""
    # Not as text: a job that lands a little would have Spark's parser for that alone, which takes 0.3 s to load.
    return [_total(name) for name in task_fields]


def _total(name: str) -> Column:
    aggregate = sql.max if name.endswith("_max") or name == PEAK_MEMORY else sql.sum
    return aggregate(f"{_TASK_PREFIX}{name}").alias(name)

"""Rows by which a task reports its data files to the driver; Kafka's records themselves do not go through Spark.

There is one row for each file, with the file's description as JSON. There is also one row for each table with records
that the task wrote to no file (`HeldRows`). A task's first row also has the metrics of the whole task. A task with
neither files nor `HeldRows` returns one row with only the metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

import orjson
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sql
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.observe.landed_rows import LandedRows
from tiered_stream.observe.read_metrics import OBSERVATION, ReadMetrics

if TYPE_CHECKING:
    import pyarrow as pa

    from tiered_stream.formats.rows.table_rules import TableRules

PEAK_MEMORY = "peak_memory"
_FILE, _HELD, _FILE_BYTES = "file", "held", "file_bytes"
_TASK_FIELDS: dict[str, type] = {counter.name: type(counter.default) for counter in fields(ReadMetrics)}
_TASK_FIELDS[PEAK_MEMORY] = int
_TASK_PREFIX = "task_"
_COLUMNS: dict[str, type] = {_FILE: str, _HELD: str, _FILE_BYTES: int} | {
    _TASK_PREFIX + name: kind for name, kind in _TASK_FIELDS.items()
}
_SPARK = {str: StringType(), int: LongType(), float: DoubleType()}


@dataclass(frozen=True, slots=True)
class DataFile:
    """Parquet file of a table, complete but not committed yet.

    - `table` is the table's key (`TableSpec.key`), and `path` is relative to the table's folder.
    - `size` is in bytes, and `modification_time` in milliseconds since the epoch.
    - `day` is the UTC day of all rows as ISO text. None: the rows have no day, or the table is not partitioned by day.
    - `records` is the number of rows, and `stats` their statistics for Delta's log, as JSON.
    - `offsets` has the first and the last offset of each partition in the file, both inclusive.
    - `topic_ids` has the Kafka topic ids of the file's topics, if brokers have reported them.
    - `schema` is the schema of the rows in Spark's JSON; None: the rows have the schema that was planned for the table.
    - `rules` is the text of the table rules that the planner looked up, and by which the rows were checked. None: the
      planner did not look up rules, or the table has none.
    - `dead_letters_for` is the key of the table that the records of dead letters were meant for; None: the file has
      rows, not dead letters.
    - `placeholders` are the columns, in lower case, in which a row has Debezium's text for a value that was not sent.
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
    placeholders: Sequence[str] = ()

    @property
    def share(self) -> str:
        """Key of the table that the file's records were meant for: `dead_letters_for` if it is set, or else `table`."""
        return self.dead_letters_for or self.table


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Records that a task has read for one table but has written to no file.

    The task skipped the table because an earlier commit or task could not write it (it is parked), or the task itself
    could not write to the table's folder. `reason` is a text that says which. `table` is the table's key, the URI of
    its folder. `offsets` has the first and the last offset of each partition, both inclusive.
    """

    table: str
    offsets: Mapping[TopicPartition, tuple[int, int]]
    reason: str


def offset_ranges(written: Iterable[DataFile | HeldRows]) -> dict[TopicPartition, OffsetRange]:
    """Return, by partition, the smallest offset range that covers all offsets of `written`."""
    ends: dict[TopicPartition, tuple[int, int]] = {}
    for rows in written:
        for partition, (first, last) in rows.offsets.items():
            lowest, highest = ends.get(partition, (first, last))
            ends[partition] = min(first, lowest), max(last, highest)
    return {partition: OffsetRange(first, last + 1) for partition, (first, last) in ends.items()}


def grown_schemas(files: Iterable[DataFile]) -> list[StructType]:
    """Return the distinct schemas that the files carry (`DataFile.schema`).

    Only a file with more or wider columns than planned carries a schema, so the list may be empty.
    """
    texts = dict.fromkeys(file.schema for file in files if file.schema)
    return [StructType.fromJson(orjson.loads(text)) for text in texts]


def landed_rows(table: str, dead_letter_table: str, files: Iterable[DataFile]) -> LandedRows:
    """Count the rows and the dead letters in a micro-batch's files for one table and its table for dead letters.

    `table` and `dead_letter_table` are the names of the two tables in the result.
    """
    counts = dict.fromkeys((False, True), 0)
    for file in files:
        counts[file.dead_letters_for is not None] += file.records
    return LandedRows(table, counts[False], counts[True], dead_letter_table if counts[True] else "")


def spark_file_schema() -> StructType:
    """Return the Spark schema of the rows that `file_rows` returns."""
    return StructType([StructField(name, _SPARK[kind]) for name, kind in _COLUMNS.items()])


def file_rows(
    files: Sequence[DataFile], metrics: ReadMetrics, peak_memory: int, held: Sequence[HeldRows] = ()
) -> pa.RecordBatch:
    """Return a task's rows for the driver: its files, its metrics, and its peak memory in bytes.

    `held` describes the records that the task wrote to no file; the rows report them, too. The columns are the same as
    in `spark_file_schema`. There is at least one row, and the first row has the metrics.
    """
    import pyarrow as pa
    import pyarrow.json as pa_json

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in _COLUMNS.items()])
    rows: list[dict[str, Any]] = [{_FILE: _to_json(file), _FILE_BYTES: file.size} for file in files]
    rows = [*rows, *({_HELD: _to_json(records)} for records in held)] or [{}]
    rows[0] |= {_TASK_PREFIX + name: value for name, value in asdict(metrics).items()}
    rows[0] |= {_TASK_PREFIX + PEAK_MEMORY: peak_memory}
    lines = b"\n".join(map(orjson.dumps, rows))
    # Arrow reads JSON without pandas, which pyarrow imports to convert Python values (32 MiB, 0.3 s).
    table = pa_json.read_json(
        pa.BufferReader(lines),
        pa_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        pa_json.ParseOptions(explicit_schema=schema),
    )
    return table.combine_chunks().to_batches()[0]


def _to_json(written: DataFile | HeldRows) -> str:
    values = {attribute.name: getattr(written, attribute.name) for attribute in fields(written)}
    offsets = [(*partition, *ends) for partition, ends in written.offsets.items()]
    return orjson.dumps(values | {"offsets": offsets}).decode()


def data_files(rows: Iterable[Row]) -> list[DataFile]:
    """Return the data files in `rows`, which `file_rows` has made in tasks; rows without a file are skipped."""
    return [DataFile(**_from_json(row[_FILE])) for row in rows if row[_FILE] is not None]


def record_count(rows: Iterable[Row]) -> int:
    """Return the number of records that tasks have read, from `rows`, which `file_rows` has made in the tasks."""
    return sum(row[f"{_TASK_PREFIX}records"] or 0 for row in rows)


def held_rows(rows: Iterable[Row]) -> list[HeldRows]:
    """Return the descriptions of records that tasks wrote to no file, from `rows`, which `file_rows` has made in tasks.

    Rows without this description are skipped.
    """
    return [HeldRows(**_from_json(row[_HELD])) for row in rows if row[_HELD] is not None]


def _from_json(text: str) -> dict[str, Any]:
    """Return the arguments of the `DataFile` or `HeldRows` that `_to_json` has turned into this text."""
    values: dict[str, Any] = orjson.loads(text)
    values["offsets"] = {
        TopicPartition(topic, partition): (first, last) for topic, partition, first, last in values["offsets"]
    }
    if "topic_ids" in values:
        values["topic_ids"] = {topic: UUID(topic_id) for topic, topic_id in values["topic_ids"].items()}
    return values


def rules_text(rules: TableRules) -> str:
    """Return the rules as JSON text, or an empty text if there are no rules.

    The driver compares this text with the text in a file's description (`DataFile.rules`).
    """
    return orjson.dumps(rules).decode() if rules else ""


def observed(rows: DataFrame) -> DataFrame:
    """Return `rows`, which tasks have made by `file_rows`, with an observation of their totals (`DataFrame.observe`).

    The totals are the numbers of files, of their bytes and of `HeldRows`, and the metrics of all tasks. In a streaming
    query, Spark reports them in each `StreamingQueryProgress`, under the name `OBSERVATION`.
    """
    files = sql.sum(_FILE_BYTES).alias(_FILE_BYTES), sql.count(_FILE).alias("files"), sql.count(_HELD).alias("held")
    return rows.observe(OBSERVATION, *totals(_TASK_FIELDS), *files)


def totals(task_fields: Iterable[str]) -> list[Column]:
    """Return a Spark aggregate of the column `task_NAME` for each NAME in `task_fields`; the aggregate is called NAME.

    The aggregate is the maximum if NAME is `peak_memory` or ends in `_max`, and the sum otherwise.
    """
    # No SQL text, because Spark's parser takes 0.3 s to load, and a small job would need it for nothing else.
    aggregates = {name: sql.max if name.endswith("_max") or name == PEAK_MEMORY else sql.sum for name in task_fields}
    return [aggregate(f"{_TASK_PREFIX}{name}").alias(name) for name, aggregate in aggregates.items()]


# Names of partition folders in the form of Hive and Spark, and paths of data files in the form of Delta's log.

_ESCAPED = frozenset([*map(chr, range(1, 0x20)), *"\"#%'*/:=?\\{[]^\x7f"])
"""Characters that Spark escapes in names of partition folders (Spark: `ExternalCatalogUtils.escapePathName`)."""
_LEFT_IN_URI = "/!$&'()*+,:;=@"
"""Characters that stay unescaped in a URI's path, in addition to letters, digits and `-._~` (RFC 3986, section 3.3)."""


def partition_folder(column: str, value: str) -> str:
    """Return the name of the folder for rows with this value in the partition column, such as `day=2026-11-21`.

    Characters that Spark escapes (`_ESCAPED`) are replaced by `%` and two hexadecimal digits.
    """
    return f"{_escaped(column)}={_escaped(value)}"


def log_path(path: str) -> str:
    """Return a path below the table's folder as a relative URI (Delta protocol: "Add File and Remove File").

    delta-spark writes the path of an action unchanged into the log, so the path must be a URI. deltalake gets plain
    paths, and encodes them itself.
    """
    return quote(path, safe=_LEFT_IN_URI)


def _escaped(name: str) -> str:
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in name)

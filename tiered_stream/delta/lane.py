"""Which way into the table: the direct lane where the table allows it, else Spark's own Delta sink.

The direct lane appends plain rows. What else a table may ask of its writers (Delta protocol: "Writer Requirements",
"Table Features"), it leaves to those who know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import orjson
from pyspark.sql.types import DateType, StructType

from tiered_stream.errors import ConfigurationError
from tiered_stream.source import spark_schema


class Lane(Enum):
    """`DIRECT`: tasks write the table's files. `SPARK`: rows go through Spark's Delta sink."""

    DIRECT = "direct"
    SPARK = "spark"


HARMLESS_FEATURES = frozenset(
    ("appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors", "generatedColumns", "invariants",
     "timestampNtz")
)  # fmt: skip
"""Writer features that ask nothing of one who only appends, where the table does not use them on a column."""

_COLUMN_FEATURES = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generation expression",
    "delta.identity.start": "identity values",
    "CURRENT_DEFAULT": "a default",
    "delta.columnMapping.physicalName": "a physical name of its own (column mapping)",
}
_FILLED = ("delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT")
_CONSTRAINT = "delta.constraints."


@dataclass(frozen=True, slots=True)
class TableDescription:
    """What a table's log says of it. `fields` are those of Spark's JSON schema: name, type, nullable, metadata."""

    fields: tuple[Mapping[str, Any], ...]
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    writer_features: frozenset[str] = frozenset()
    table_id: str = ""
    """Of its metadata: a table that takes another's place has another."""


def table_schema(include_headers: bool, day_column: str | None) -> StructType:
    """The columns that are written, the same in both lanes."""
    schema = spark_schema(include_headers)
    return schema.add(day_column, DateType()) if day_column else schema


def check_fit(table: str, found: TableDescription, written: StructType, day_column: str | None) -> None:
    """Whether what is written fits into the table at all, whatever the lane.

    Raises:
        ConfigurationError: names the column that does not fit, and what to do.
    """
    columns = {column["name"]: column for column in found.fields}
    for column in orjson.loads(written.json())["fields"]:
        name, there = column["name"], columns.pop(column["name"], None)
        if there is None:
            raise ConfigurationError(
                f"the table {table} has no column {name}: add it with ALTER TABLE, or do not ask for it "
                "(includeHeaders, ingest.dayColumn)"
            )
        if _bare(there["type"]) != _bare(column["type"]):
            raise ConfigurationError(
                f"the table {table} has {name} as {_text(there['type'])}, but it is {_text(column['type'])} "
                "in what is written: land in another table"
            )
    if day_column and found.partition_columns != (day_column,):
        raise ConfigurationError(
            f"ingest.dayColumn is {day_column}, but the table {table} is "
            f"{_partitioned(found)}: take the setting away, or land in another table"
        )
    for name, column in columns.items():
        if _is_filled(column):
            continue
        if name in found.partition_columns:
            raise ConfigurationError(
                f"the table {table} is partitioned by {name}, which records do not have; "
                f"where that is to be their day, set ingest.dayColumn={name}"
            )
        if not column["nullable"]:
            raise ConfigurationError(f"the table {table} has a column {name} NOT NULL, which records do not have")


def why_not_direct(found: TableDescription, day_column: str | None) -> str | None:
    """What keeps the table from the direct lane, in one line; None: nothing does."""
    for column in found.fields:
        for name, meaning in _COLUMN_FEATURES.items():
            if name in column["metadata"]:
                return f"the column {column['name']} has {meaning}"
        if not column["nullable"]:
            return f"the column {column['name']} is NOT NULL"
    for name in found.configuration:
        if name.startswith(_CONSTRAINT):
            return f"the table has the constraint {name.removeprefix(_CONSTRAINT)}"
    if found.configuration.get("delta.columnMapping.mode", "none") != "none":
        return "the table has column mapping"
    foreign = sorted(found.writer_features - HARMLESS_FEATURES - {"columnMapping"})
    if foreign:
        return f"the table has the feature{'s' * (len(foreign) > 1)} {', '.join(foreign)}"
    if found.partition_columns != ((day_column,) if day_column else ()):
        return f"the table is {_partitioned(found)}"
    return None


def left_out(found: TableDescription, written: StructType) -> tuple[str, ...]:
    """Columns that are not written and that nobody fills: their rows get NULL, in both lanes."""
    missing = (column for column in found.fields if column["name"] not in written.names)
    return tuple(column["name"] for column in missing if not _is_filled(column))


def _is_filled(column: Mapping[str, Any]) -> bool:
    """Whether Delta fills the column where it is not written."""
    return any(name in column["metadata"] for name in _FILLED)


def _partitioned(found: TableDescription) -> str:
    columns = found.partition_columns
    return f"partitioned by {', '.join(columns)}" if columns else "not partitioned"


def _bare(kind: Any) -> Any:
    """A type in Spark's JSON, without what column mapping says of the fields in it."""
    if isinstance(kind, dict):
        return {name: _bare(part) for name, part in kind.items() if name != "metadata"}
    return [_bare(part) for part in kind] if isinstance(kind, list) else kind


def _text(kind: Any) -> str:
    return kind if isinstance(kind, str) else orjson.dumps(_bare(kind)).decode()

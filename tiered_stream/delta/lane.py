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
from pyspark.sql.types import StructType

from tiered_stream.delta import type_widening
from tiered_stream.delta.ingest_settings import TYPE_WIDENING
from tiered_stream.delta.row_schema import arrow_schema, with_day
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.table_rules import TableRules, UncertainCheckError, parse_check
from tiered_stream.source import spark_schema


class Lane(Enum):
    """`DIRECT`: tasks write the table's files. `SPARK`: rows go through Spark's Delta sink."""

    DIRECT = "direct"
    SPARK = "spark"


CLUSTERING = "clustering"
"""Of tables that `OPTIMIZE` clusters: who appends writes statistics of the columns by which it does."""
KEPT_BY_SPARK = frozenset({CLUSTERING, "domainMetadata"})
"""Writer features that ask more of who commits than deltalake does."""
HARMLESS_FEATURES = type_widening.FEATURES | KEPT_BY_SPARK | {
    "appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors", "generatedColumns", "invariants",
    "timestampNtz",
}  # fmt: skip
"""Writer features that ask nothing of one who only appends, where the table does not use them on a column."""

_COLUMN_FEATURES = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generation expression",
    "delta.identity.start": "identity values",
    "CURRENT_DEFAULT": "a default",
    "delta.columnMapping.physicalName": "a physical name of its own (column mapping)",
}
_STATISTICS = ("delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols")
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
    return with_day(spark_schema(include_headers), day_column)


def check_fit(table: str, found: TableDescription, written: StructType, day_column: str | None) -> None:
    """Whether what is written fits into the table at all, whatever the lane.

    Raises:
        ConfigurationError: names the column that does not fit, and what to do.
    """
    columns = {column["name"]: column for column in found.fields}
    widens = bool(found.writer_features & type_widening.FEATURES)
    for column in orjson.loads(written.json())["fields"]:
        name, there = column["name"], columns.pop(column["name"], None)
        if there is None:
            raise ConfigurationError(
                f"the table {table} has no column {name}: add it with ALTER TABLE, or do not ask for it "
                "(includeHeaders, ingest.dayColumn, ingest.kafkaColumns)"
            )
        if not _takes(there["type"], column["type"], widens=widens):
            wider = type_widening.is_wider_json(column["type"], there["type"])
            mend = f", or widen the column ({TYPE_WIDENING}, ingest.schemaEvolution=widen)" if wider else ""
            raise ConfigurationError(
                f"the table {table} has {name} as {_text(there['type'])}, but it is {_text(column['type'])} "
                f"in what is written: land in another table{mend}"
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


def table_rules(found: TableDescription) -> TableRules:
    """What the table asks of its rows."""
    not_null = (column["name"] for column in found.fields if not column["nullable"])
    checks = ((name, text) for name, text in found.configuration.items() if name.startswith(_CONSTRAINT))
    return TableRules(
        tuple(sorted(not_null)), tuple(sorted((name.removeprefix(_CONSTRAINT), text) for name, text in checks))
    )


def why_not_direct(
    found: TableDescription, day_column: str | None, written: StructType, honoured: TableRules | None = None
) -> str | None:
    """What keeps the table from the direct lane, in one line; None: nothing does.

    `honoured` are the rules that rows were checked by; None: they will be checked by the table's own.
    """
    for column in found.fields:
        for name, meaning in _COLUMN_FEATURES.items():
            if name in column["metadata"]:
                return f"the column {column['name']} has {meaning}"
    rules = table_rules(found)
    if honoured is not None and rules != honoured:
        return _unhonoured(rules, honoured)
    if unchecked := _unchecked(rules, written, day_column):
        return unchecked
    if found.configuration.get("delta.columnMapping.mode", "none") != "none":
        return "the table has column mapping"
    if CLUSTERING in found.writer_features and any(name in found.configuration for name in _STATISTICS):
        return f"the table is clustered, and has statistics of columns of its own choice ({' or '.join(_STATISTICS)})"
    foreign = sorted(found.writer_features - HARMLESS_FEATURES - {"columnMapping"})
    if foreign:
        return f"the table has the feature{'s' * (len(foreign) > 1)} {', '.join(foreign)}"
    if found.partition_columns != ((day_column,) if day_column else ()):
        return f"the table is {_partitioned(found)}"
    return None


def _unhonoured(rules: TableRules, honoured: TableRules) -> str:
    for check in rules.checks:
        if check not in honoured.checks:
            return f"the table has the constraint {check[0]}, by which rows were not checked"
    for column in rules.not_null:
        if column not in honoured.not_null:
            return f"the column {column} is NOT NULL, which was not checked"
    return "its constraints, or the columns that are NOT NULL, are others than when the query started"


def _unchecked(rules: TableRules, written: StructType, day_column: str | None) -> str | None:
    """A rule that tasks cannot check: they make the day last."""
    schema = arrow_schema(StructType([column for column in written if column.name != day_column]))
    for name, text in rules.checks:
        try:
            parse_check(text, schema)
        except UncertainCheckError as error:
            return f"the table has the constraint {name}, which only Spark checks ({error})"
    return f"the column {day_column} is NOT NULL" if day_column in rules.not_null else None


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


def _takes(there: Any, written: Any, *, widens: bool) -> bool:
    """Whether a column takes values of a type, in Spark's JSON: nested fields that are not written are null.

    `widens`: readers of the table take files whose types are narrower than its own.
    """
    if not isinstance(there, dict) or not isinstance(written, dict) or there.get("type") != written.get("type"):
        return bool(there == written) or (widens and type_widening.is_wider_json(there, written))
    if there["type"] == "struct":
        known = {each["name"]: each for each in there["fields"]}
        missing = known.keys() - {each["name"] for each in written["fields"]}
        return all(known[name]["nullable"] for name in missing) and all(
            each["name"] in known and _takes(known[each["name"]]["type"], each["type"], widens=widens)
            for each in written["fields"]
        )
    nested = ("elementType", "keyType", "valueType")
    return all(_takes(there[name], written[name], widens=widens) for name in nested if name in there)


def _bare(kind: Any) -> Any:
    """A type in Spark's JSON, without what column mapping says of the fields in it."""
    if isinstance(kind, dict):
        return {name: _bare(part) for name, part in kind.items() if name != "metadata"}
    return [_bare(part) for part in kind] if isinstance(kind, list) else kind


def _text(kind: Any) -> str:
    return kind if isinstance(kind, str) else orjson.dumps(_bare(kind)).decode()

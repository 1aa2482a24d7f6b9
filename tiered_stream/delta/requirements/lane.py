"""Choice of who writes a table's files: tasks (direct lane), or Spark's Delta sink (Spark lane).

Tasks only append rows. If a table requires more of its writers (Delta protocol: "Writer Requirements", "Table
Features"), Spark's Delta sink writes the table, because it meets these requirements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.types import StructType

from tiered_stream.delta.requirements import writer_requirements as requirements
from tiered_stream.delta.requirements.writer_requirements import Handling, Kind, requirements_of_table
from tiered_stream.delta.schema.row_schema import with_day
from tiered_stream.delta.schema.sql_types import arrow_schema, common_fields, inner_fields, struct_of
from tiered_stream.delta.settings.ingest_settings import COMMIT, COMMIT_BY_DELTALAKE, COMMIT_BY_SPARK, TYPE_WIDENING
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.table_rules import (
    FieldPath,
    TableRules,
    TextLimit,
    UncertainCheckError,
    find_value,
    parse_check,
    path_text,
)
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS
from tiered_stream.spark.source import spark_schema

_KAFKA_COLUMNS = {name.lower() for name in SCHEMA_WITH_HEADERS.names}


class Lane(Enum):
    """Way to write to a table. `DIRECT`: tasks write the table's files. `SPARK`: rows go through Spark's Delta sink."""

    DIRECT = "direct"
    SPARK = "spark"


_STATISTICS = ("delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols")
COMPUTED = frozenset({"delta.generationExpression", "delta.identity.start"})
_FILLED = (*COMPUTED, "CURRENT_DEFAULT")


@dataclass(frozen=True, slots=True)
class TableDescription:
    """Description of a Delta table: the metadata and the protocol in the table's log.

    `fields` are the columns in Spark's JSON, each with name, type, nullable and metadata. `configuration` has the table
    properties, by name.
    """

    fields: tuple[Mapping[str, Any], ...]
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    writer_features: frozenset[str] = frozenset()
    table_id: str = ""
    """Id in the table's metadata; a table that replaces another one has a different id."""


def table_schema(include_headers: bool, day_column: str | None) -> StructType:
    """Return the columns of a table for Kafka records that are not decoded, followed by `day_column` unless it is None.

    The column `headers` is among the columns only if `include_headers` is true.
    """
    return with_day(spark_schema(include_headers), day_column)


def check_fit(table: str, description: TableDescription, written: StructType, day_column: str | None) -> None:
    """Check that the table accepts rows with the columns `written`, from tasks or from Spark's Delta sink.

    `description` describes the table, and `table` is the table's name, for the error.

    Raises:
        ConfigurationError: a written column is missing in the table, or has a type there that does not accept the
            values. Or `day_column` is set and is not the table's only partition column. Or the table has a column that
            is not written and needs a value. The error says what to do.
    """
    columns = {column["name"].lower(): column for column in description.fields}
    widens = bool(description.writer_features & requirements.WIDENING_FEATURES)
    missing, others, advice = [], [], []
    for column in written.jsonValue()["fields"]:
        name, known = column["name"], columns.pop(column["name"].lower(), None)
        if known is None:
            missing.append(name)
        elif not _accepts(known["type"], column["type"], widens=widens):
            others.append(f"{known['name']} as {_type_text(known['type'])}, but rows have {_type_text(column['type'])}")
            if requirements.is_wider_json(column["type"], known["type"]):
                advice.append(f"widen it ({TYPE_WIDENING}, ingest.schemaEvolution=widen)")
    if missing or others:
        found = [f"no column {' and no column '.join(missing)}"] if missing else []
        advice = [*_for_missing(missing, written, day_column), *advice, "land in another table"]
        raise ConfigurationError(f"the table {table} has {'; '.join([*found, *others])}: {', or '.join(advice)}")
    if day_column and [name.lower() for name in description.partition_columns] != [day_column.lower()]:
        raise ConfigurationError(
            f"ingest.dayColumn is {day_column}, but the table {table} is "
            f"{_partitioned(description)}: remove the setting, or land in another table"
        )
    partition_columns = {name.lower() for name in description.partition_columns}
    for column in columns.values():
        _check_unwritten(table, column, is_partition=column["name"].lower() in partition_columns)


def _for_missing(missing: Sequence[str], written: StructType, day_column: str | None) -> list[str]:
    """Return advice for an error, in clauses: what a user can do if the table lacks the columns `missing` of the rows.

    `written` are the columns of the rows. The result is empty if no column is missing.
    """
    names, day = {name.lower() for name in missing}, (day_column or "").lower()
    has_decoded_key = any(column.name == "key" and column.dataType.typeName() != "binary" for column in written)
    decoded = names & {"key"} if has_decoded_key else set()
    of_kafka, others = (names & _KAFKA_COLUMNS) - decoded - {"headers", "value"}, names - _KAFKA_COLUMNS - {day}
    advice = {
        "remove ingest.key.format, or let ingest.schemaEvolution=add add the column of decoded keys": decoded,
        "set includeHeaders=false": names & {"headers"},
        "set ingest.value.format and ingest.value.schema, if the table has decoded values": names & {"value"},
        "remove ingest.dayColumn": names & {day},
        "name the columns that it has in ingest.kafkaColumns": of_kafka,
        "correct ingest.value.schema, or let ingest.schemaEvolution=add add the columns": others,
        "add what is missing with ALTER TABLE": names,
    }
    return [text for text, columns in advice.items() if columns]


def _check_unwritten(table: str, column: Mapping[str, Any], *, is_partition: bool) -> None:
    """Raise ConfigurationError if `column`, which is in the table but is not written, needs a value in each row.

    A column needs a value if it is a partition column, or is NOT NULL, or has a NOT NULL field. A column that Delta
    fills needs no value.
    """
    name = column["name"]
    if _is_filled(column):
        return
    if is_partition:
        raise ConfigurationError(
            f"the table {table} is partitioned by {name}, which records do not have; "
            f"where that is to be their day, set ingest.dayColumn={name}"
        )
    if not _may_be_null(column):
        within = "with a field " if column["nullable"] else ""
        raise ConfigurationError(f"the table {table} has a column {name} {within}NOT NULL, which records do not have")


def table_rules(description: TableDescription) -> TableRules:
    """Return the table's rules for rows: NOT NULL, CHECK constraints, and lengths of VARCHAR and CHAR.

    If a column's metadata for lengths cannot be read, the rules lack these lengths. `why_not_direct` then says that
    tasks cannot write the table's files.
    """
    not_null = (column["name"] for column in description.fields if not column["nullable"])
    checks = (
        (name[len(requirements.CONSTRAINT_PREFIX) :], text)
        for name, text in description.configuration.items()
        if name.lower().startswith(requirements.CONSTRAINT_PREFIX)
    )
    nested = (path for column in description.fields for path in _not_null_within((column["name"],), column["type"]))
    limits: list[TextLimit] = []
    for column in description.fields:
        with suppress(requirements.UnreadableTypeError):
            limits += list(requirements.text_limits(column))
    return TableRules(
        tuple(sorted(not_null)),
        tuple(sorted(checks)),
        tuple(sorted(nested)),
        tuple(sorted(limits, key=lambda limit: limit.path)),
    )


def _not_null_within(path: FieldPath, kind: Any) -> Iterator[FieldPath]:
    """Yield the path of each struct field, element and map value inside the type `kind` that is NOT NULL, at any depth.

    `kind` is in Spark's JSON. Each path begins with `path`, the path of the type.
    """
    for inner in inner_fields(kind):
        if not inner["nullable"]:
            yield (*path, inner["name"])
        yield from _not_null_within((*path, inner["name"]), inner["type"])


def why_not_direct(
    description: TableDescription,
    day_column: str | None,
    written: StructType,
    checked_rules: TableRules | None = None,
    by: str = COMMIT_BY_SPARK,
) -> str | None:
    """Return a line that says why tasks cannot write the table's files (direct lane), or None if they can.

    Args:
        description: the table's metadata and protocol.
        day_column: name of the day column, which is also in `written`; None: there is no day column.
        written: columns of the rows.
        checked_rules: rules by which tasks have checked the rows already. If the table has other rules now, the files
            cannot be committed. None: the rows are not checked yet.
        by: library that commits, `COMMIT_BY_SPARK` or `COMMIT_BY_DELTALAKE`.
    """
    if unmet := unmet_requirements(description, by):
        return unmet
    rules = table_rules(description)
    if checked_rules is not None and rules != checked_rules:
        return _changed_rule(rules, checked_rules)
    if unchecked := _uncheckable_rule(rules, written, day_column):
        return unchecked
    if requirements.CLUSTERING in description.writer_features and any(
        name in description.configuration for name in _STATISTICS
    ):
        return f"the table is clustered, and has statistics of columns of its own choice ({' or '.join(_STATISTICS)})"
    if description.partition_columns != ((day_column,) if day_column else ()):
        return f"the table is {_partitioned(description)}"
    return case_mismatch(struct_of(description.fields), written.jsonValue())


def unmet_requirements(description: TableDescription, by: str = COMMIT_BY_SPARK) -> str | None:
    """Return a line that names a requirement of the table that is not met if tasks write the table's files.

    `by` is the library that commits, `COMMIT_BY_SPARK` or `COMMIT_BY_DELTALAKE`. Requirements with the handling
    `Handling.BY_SPARK` are met only if delta-spark commits. The result is None if all requirements are met.
    """
    if feature := requirements.managing_feature(description.writer_features):
        return f"the table has the feature {feature}: its commits go through a catalog"
    imposed = requirements_of_table(description.writer_features, description.configuration, description.fields)
    unmet = [requirement for requirement in imposed if requirement.entry.handling is not Handling.BY_SPARK]
    features = [requirement.name for requirement in unmet if requirement.entry.kind is Kind.FEATURE]
    others = [requirement.reason for requirement in unmet if requirement.entry.kind is not Kind.FEATURE]
    if others:
        return others[0]
    for column in description.fields:
        try:
            list(requirements.text_limits(column))
        except requirements.UnreadableTypeError as error:
            return f"the column {column['name']} has VARCHAR or CHAR in it, which cannot be read: {error}"
    if features:
        return f"the table has the feature{'s' * (len(features) > 1)} {', '.join(features)}"
    if by == COMMIT_BY_DELTALAKE and (names := requirements_for_spark(description)):
        return f"the table has {names}, which {COMMIT.name}={COMMIT_BY_SPARK} alone supports"
    return None


def requirements_for_spark(description: TableDescription) -> str:
    """Return the names of the table's requirements that only commits by delta-spark meet, joined by "and".

    The text is empty if there is no such requirement.
    """
    unmet = requirements_of_table(description.writer_features, description.configuration, description.fields)
    names = dict.fromkeys(requirement.name for requirement in unmet if requirement.entry.handling is Handling.BY_SPARK)
    if TYPE_WIDENING in names:
        names = dict.fromkeys(name for name in names if name not in requirements.WIDENING_FEATURES)
    return " and ".join(names)


def case_mismatch(table_type: Any, written: Any, above: str = "") -> str | None:
    """Return a text that names a field whose name differs between table and rows only by case; None: there is none.

    `table_type` is a struct, array or map of the table. `written` is the type of the same column or field in the rows.
    Both are in Spark's JSON. `above` is the path of both types followed by a dot, or '' for the struct of all columns.
    For Delta, names that differ only by case are one field; for Parquet, they are two fields.
    """
    for known, own in common_fields(table_type, written):
        if known["name"] != own["name"]:
            return f"its column {above}{known['name']} is called {above}{own['name']} in what is written"
        if reason := case_mismatch(known["type"], own["type"], f"{above}{own['name']}."):
            return reason
    return None


def _changed_rule(rules: TableRules, checked_rules: TableRules) -> str:
    checked = set(_rules_and_texts(checked_rules))
    changed = "its constraints, or the columns that are NOT NULL, are others than when the query started"
    return next((each[1] for each in _rules_and_texts(rules) if each not in checked), changed)


def _rules_and_texts(rules: TableRules) -> Iterator[tuple[object, str]]:
    for check in rules.checks:
        yield check, f"the table has the constraint {check[0]}, by which rows were not checked"
    for column in rules.not_null:
        yield column, f"the column {column} is NOT NULL, which was not checked"
    for path in rules.nested_not_null:
        yield path, f"{path_text(path)} is NOT NULL, which was not checked"
    for limit in rules.text_limits:
        yield limit, f"{path_text(limit.path)} is {limit.kind}, by which texts were not checked"


def _uncheckable_rule(rules: TableRules, written: StructType, day_column: str | None) -> str | None:
    """Return a text that names a rule in `rules` that tasks cannot check, or None if tasks can check all rules.

    Tasks cannot check a rule about the day column, because they add the day after they have checked the rows.
    """
    schema = arrow_schema(StructType([column for column in written if column.name != day_column]))
    for name, text in rules.checks:
        try:
            parse_check(text, schema)
        except UncertainCheckError as error:
            return f"the table has the constraint {name}, which only Spark checks ({error})"
    if day_column in rules.not_null:
        return f"the column {day_column} is NOT NULL"
    row = pa.struct(list(schema))
    for limit in rules.text_limits:
        found = find_value(row, limit.path)
        if found is not None and not pa.types.is_string(found[1]):
            return f"{path_text(limit.path)} is {limit.kind}, but what is written is {found[1]}"
    return None


def columns_left_null(description: TableDescription, written: StructType) -> tuple[str, ...]:
    """Return the names of the table's columns that get NULL in every row with the columns `written`.

    These columns are neither in `written` nor filled by Delta (as generated, identity and default columns are).
    """
    names = {name.lower() for name in written.names}
    missing = (column for column in description.fields if column["name"].lower() not in names)
    return tuple(column["name"] for column in missing if not _is_filled(column))


def _is_filled(column: Mapping[str, Any]) -> bool:
    """Return whether Delta fills the column if rows lack it (generated, identity or default column)."""
    return any(name in column["metadata"] for name in _FILLED)


def _may_be_null(field: Mapping[str, Any]) -> bool:
    """Return whether the column or nested field `field`, which is in Spark's JSON, may be null in rows.

    As in Delta, a struct that has a NOT NULL field, at any depth of structs, cannot be null.
    """
    kind = field["type"]
    fields = kind.get("fields", ()) if isinstance(kind, dict) else ()
    return bool(field["nullable"]) and all(map(_may_be_null, fields))


def _partitioned(description: TableDescription) -> str:
    columns = description.partition_columns
    return f"partitioned by {', '.join(columns)}" if columns else "not partitioned"


def _accepts(table_type: Any, written: Any, *, widens: bool) -> bool:
    """Return whether a column of type `table_type` accepts values of type `written`, both in Spark's JSON.

    A struct in `written` may lack fields that may be null in the table. `widens` is true if the table has Delta's type
    widening, so that its readers accept files with narrower types. Then `written` may be narrower than `table_type`.
    """
    are_nested = isinstance(table_type, dict) and isinstance(written, dict)
    if not are_nested or table_type.get("type") != written.get("type"):
        return bool(table_type == written) or (widens and requirements.is_wider_json(table_type, written))
    if table_type["type"] == "struct":
        known = {inner["name"].lower(): inner for inner in table_type["fields"]}
        names = {inner["name"].lower() for inner in written["fields"]}
        if not names <= known.keys() or not all(_may_be_null(known[name]) for name in known.keys() - names):
            return False
    return all(_accepts(known["type"], own["type"], widens=widens) for known, own in common_fields(table_type, written))


def _without_metadata(kind: Any) -> Any:
    """Return a type in Spark's JSON without the metadata of its nested fields, which column mapping adds."""
    if isinstance(kind, dict):
        return {name: _without_metadata(part) for name, part in kind.items() if name != "metadata"}
    return [_without_metadata(part) for part in kind] if isinstance(kind, list) else kind


def _type_text(kind: Any) -> str:
    return kind if isinstance(kind, str) else orjson.dumps(_without_metadata(kind)).decode()

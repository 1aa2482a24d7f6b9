"""Rules for a MERGE into a table with `ingest.mode=upsert`, such as the columns that it sets.

A MERGE by delta-spark meets all requirements that a table can set for its writers. deltalake can merge into some tables
only (`why_not_merged_by_deltalake`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.types import StructField, StructType

from tiered_stream.delta.requirements.lane import COMPUTED, TableDescription, table_rules
from tiered_stream.delta.requirements.writer_requirements import requirements_of_table
from tiered_stream.delta.schema.row_schema import fit_to_table, struct_type
from tiered_stream.delta.settings.ingest_settings import APPEND_ONLY, TableSpec, is_append_only
from tiered_stream.delta.settings.row_settings import KEYS, MERGE_ON, ORDER_BY
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.rows.table_rules import TableRules, certain_rules

_LOSSY = ("timestamp", "binary")
"""Types of partition columns in which Delta's text for a partition can be ambiguous or wrong.

Delta writes an instant as local time, which occurs twice when clocks are set back. Bytes need not be UTF-8.
"""


def merged_fields(description: TableDescription, own_columns: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the columns that a MERGE into the table sets in each new or changed row, in Spark's JSON.

    They are all columns except generated columns, which Delta computes, and `own_columns`, which keep their values. A
    column that the row's record does not have becomes null. So a row depends only on its key's last record and on the
    table's schema.
    """
    own = {name.lower() for name in own_columns}
    merged = (each for each in description.fields if each["name"].lower() not in own)
    return [each for each in merged if not COMPUTED & each.get("metadata", {}).keys()]


def merged_columns(description: TableDescription, own_columns: Sequence[str]) -> StructType:
    """Return the columns of `merged_fields` as a Spark schema of nullable columns without metadata."""
    fields = struct_type(merged_fields(description, own_columns))
    return StructType([StructField(each.name, each.dataType) for each in fields])


def merge_rules(description: TableDescription) -> TableRules:
    """Return the rules for rows that are merged into the table: `table_rules`, and a rule for partition columns.

    A partition column of type STRING cannot have every text (`TableRules.partition_texts`).
    """
    partitions = {name.lower() for name in description.partition_columns}
    texts = (each["name"] for each in description.fields if each["type"] == "string")
    return replace(
        table_rules(description), partition_texts=tuple(name for name in texts if name.lower() in partitions)
    )


def rules_for_tasks(description: TableDescription, spec: TableSpec) -> TableRules:
    """Return the rules by which tasks check rows for the table `spec`; `description` is the table's description.

    If the table has keys, rules that tasks cannot check are left out, because the MERGE into the table checks them.
    """
    rows = spec.row_format
    if not spec.keys or rows is None:
        return table_rules(description)
    if rows.value.registered:  # values of older schemas have more columns
        rows = fit_to_table(rows, merged_fields(description, spec.own_columns))
    return certain_rules(merge_rules(description), rows.written)


def fitted_rows(rows: Mapping[str, RowFormat], table: TableDescription, spec: TableSpec) -> dict[str, RowFormat]:
    """Return a copy of the row formats, by topic, with the types and the rules of the table `spec`.

    `table` is the table's description. If the table has keys, rules that tasks cannot check are left out, because the
    MERGE into the table checks them.
    """
    if not spec.keys:
        rules = table_rules(table)
        return {topic: replace(fit_to_table(each, table.fields), rules=rules) for topic, each in rows.items()}
    rules, fields = merge_rules(table), merged_fields(table, spec.own_columns)
    fitted = {topic: fit_to_table(each, fields) for topic, each in rows.items()}
    return {topic: replace(each, rules=certain_rules(rules, each.written)) for topic, each in fitted.items()}


_DELETION_VECTORS = "delta.enableDeletionVectors"
_NAMES_OF_DELTA = ("filepath", "_metadata")
"""Lower-case names of columns that Delta adds to rows of a table with deletion vectors while it looks for the rows.

Source: Delta's `DMLWithDeletionVectorsHelper`.
"""


def check_merge(table: str, description: TableDescription, spec: TableSpec) -> None:
    """Check that a MERGE may change the table's rows, and can compare keys and `ingest.orderBy` in partition columns.

    Raises:
        ConfigurationError: the table is append-only, or has deletion vectors and a column with a name that Delta
            uses itself. Or Delta writes a key or `ingest.orderBy` as the text of a partition, which does not hold the
            value: an instant in the local time of the session, or bytes.
    """
    if is_append_only(description.configuration):
        raise ConfigurationError(
            f"the table {table} has {APPEND_ONLY}=true, but a MERGE changes its rows: land in another table, or remove "
            f"the property with ALTER TABLE … SET TBLPROPERTIES ('{APPEND_ONLY}' = 'false')"
        )
    if description.configuration.get(_DELETION_VECTORS, "").lower() == "true":
        for column in description.fields:
            if column["name"].lower() in _NAMES_OF_DELTA:
                raise ConfigurationError(
                    f"the table {table} has deletion vectors and a column {column['name']}, which Delta's own MERGE "
                    "takes for its column of that name, and fails: rename the column, or set "
                    f"{_DELETION_VECTORS}=false"
                )
    partitions = {name.lower() for name in description.partition_columns}
    compared = {name.lower() for name in (*spec.keys, spec.order_by or "")}
    for column in description.fields:
        if column["name"].lower() in partitions & compared and column["type"] in _LOSSY:
            raise ConfigurationError(
                f"the table {table} is partitioned by {column['name']}, a {column['type'].upper()}, and the text of a "
                "partition does not hold each of its values: a MERGE would not find rows again. Partition the table by "
                f"another column, such as a DATE, or leave {column['name']} out of {KEYS.name} and {ORDER_BY.name}"
            )


def why_not_merged_by_deltalake(description: TableDescription, merge_on: str | None) -> str | None:
    """Return in one line why only Spark's MERGE can write the table, or None if deltalake can, too.

    `merge_on` is the value of `ingest.mergeOn`.
    """
    if merge_on is not None:
        return f"{MERGE_ON.name} is SQL of Spark's"
    unmet = requirements_of_table(
        description.writer_features, description.configuration, description.fields, changes_rows=True
    )
    if (first := next(unmet, None)) is not None:
        return first.reason
    columns = description.partition_columns
    return f"the table is partitioned by {', '.join(columns)}" if columns else None

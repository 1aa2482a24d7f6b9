"""Which tables of the latest state deltalake can merge."""

from __future__ import annotations

from typing import Any

import pytest

from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.requirements.merge_requirements import (
    check_merge,
    merge_rules,
    merged_columns,
    why_not_merged_by_deltalake,
)
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import ConfigurationError


def table(**changed: Any) -> TableDescription:
    metadata = changed.pop("metadata", {})
    column = {"name": "id", "type": changed.pop("type", "long"), "nullable": False, "metadata": metadata}
    return TableDescription((column,), **changed)


@pytest.mark.parametrize("kind", ["timestamp", "binary"])
@pytest.mark.parametrize("compared", [{"keys": ("id", "At")}, {"keys": ("id",), "order_by": "at"}])
def test_a_partition_whose_text_does_not_hold_a_key_is_refused(kind: str, compared: dict[str, Any]) -> None:
    fields = tuple({"name": name, "type": of, "nullable": True} for name, of in (("id", "long"), ("AT", kind)))
    with pytest.raises(ConfigurationError, match=f"partitioned by AT, a {kind.upper()}"):
        check_merge("t", TableDescription(fields, ("AT",)), TableSpec("", **compared))
    check_merge("t", TableDescription(fields, ("id",)), TableSpec("", **compared))
    check_merge("t", TableDescription(fields, ("AT",)), TableSpec("", keys=("id",)))


def test_a_table_that_only_appends_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the table t has delta.appendOnly=true"):
        check_merge("t", table(configuration={"delta.appendOnly": "true"}), TableSpec("", keys=("id",)))
    check_merge("t", table(configuration={"delta.appendOnly": "false"}), TableSpec("", keys=("id",)))


@pytest.mark.parametrize("name", ["filePath", "_METADATA"])
def test_a_column_that_deltas_merge_cannot_have_is_refused_with_deletion_vectors(name: str) -> None:
    fields = tuple({"name": each, "type": "string", "nullable": True} for each in ("id", name))
    vectors = {"delta.enableDeletionVectors": "true"}
    with pytest.raises(ConfigurationError, match=f"deletion vectors and a column {name}"):
        check_merge("t", TableDescription(fields, configuration=vectors), TableSpec("", keys=("id",)))
    check_merge("t", TableDescription(fields), TableSpec("", keys=("id",)))
    check_merge("t", TableDescription(fields[:1], configuration=vectors), TableSpec("", keys=("id",)))


def test_texts_of_partitions_are_a_rule_of_rows_that_are_merged() -> None:
    fields = ({"name": name, "type": of, "nullable": True} for name, of in (("Land", "string"), ("n", "integer")))
    assert merge_rules(TableDescription(tuple(fields), ("land", "n"))).partition_texts == ("Land",)


def test_a_merge_sets_all_columns_but_the_users_own_and_those_that_delta_computes() -> None:
    made = {"delta.generationExpression": "id + 1"}
    columns = [("id", {}), ("Note", {}), ("Own", {}), ("made", made), ("filled", {"CURRENT_DEFAULT": "1"})]
    fields = ({"name": name, "type": "long", "nullable": False, "metadata": kind} for name, kind in columns)
    found = merged_columns(TableDescription(tuple(fields)), ["oWN"])
    assert [(each.name, each.nullable) for each in found] == [("id", True), ("Note", True), ("filled", True)]


@pytest.mark.parametrize(
    "suitable",
    [
        table(),
        table(writer_features=frozenset({"timestampNtz", "appendOnly", "invariants", "changeDataFeed"})),
        table(configuration={"delta.appendOnly": "false", "delta.logRetentionDuration": "interval 1 days"}),
        table(configuration={"delta.enableDeletionVectors": "FALSE", "owner": "me"}),
    ],
)
def test_deltalake_merges_plain_tables(suitable: TableDescription) -> None:
    assert why_not_merged_by_deltalake(suitable, None) is None


@pytest.mark.parametrize(
    ("of_spark", "why"),
    [
        (table(writer_features=frozenset({"deletionVectors"})), "the table has deletionVectors"),
        (table(writer_features=frozenset({"clustering"})), "the table has clustering"),
        (table(writer_features=frozenset({"of2030"})), "the table has the feature of2030, which is not known here"),
        (table(configuration={"delta.enableDeletionVectors": "true"}), "the table has delta.enableDeletionVectors"),
        (table(configuration={"delta.enableChangeDataFeed": "true"}), "the table has delta.enableChangeDataFeed"),
        (table(configuration={"delta.appendOnly": "True"}), "the table has delta.appendOnly"),
        (table(configuration={"delta.constraints.some": "id > 1"}), "the table has delta.constraints.some"),
        (table(configuration={"delta.columnMapping.mode": "name"}), "the table has column mapping"),
        (table(metadata={"delta.generationExpression": "1"}), "the column id has a generation expression"),
        (table(type="string", metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}), "the column id has"),
        (table(partition_columns=("id",)), "the table is partitioned by id"),
    ],
)
def test_other_tables_are_merged_by_spark(of_spark: TableDescription, why: str) -> None:
    assert (why_not_merged_by_deltalake(of_spark, None) or "").startswith(why)


def test_conditions_of_the_user_are_spark_sql() -> None:
    assert why_not_merged_by_deltalake(table(), "target.id > 1") == "ingest.mergeOn is SQL of Spark's"

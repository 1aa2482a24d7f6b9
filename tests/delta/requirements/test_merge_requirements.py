"""Which tables of the latest state deltalake can merge."""

from __future__ import annotations

from typing import Any

import pytest

from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.requirements.merge_requirements import why_not_merged_by_deltalake


def table(**changed: Any) -> TableDescription:
    metadata = changed.pop("metadata", {})
    column = {"name": "id", "type": changed.pop("type", "long"), "nullable": False, "metadata": metadata}
    return TableDescription((column,), **changed)


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

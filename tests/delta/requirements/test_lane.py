from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from pyspark.sql.types import StructType

from tiered_stream.delta.requirements.lane import (
    TableDescription,
    check_fit,
    columns_left_null,
    table_rules,
    table_schema,
    why_not_direct,
)
from tiered_stream.delta.requirements.writer_requirements import DECLARED_TYPE
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.table_rules import NO_RULES, TableRules, TextLimit

WRITTEN = table_schema(True, None)
FIELDS: list[dict[str, Any]] = orjson.loads(table_schema(True, None).json())["fields"]
DAY = {"name": "day", "type": "date", "nullable": True, "metadata": {}}


def described(
    *more: dict[str, Any], changed: dict[str, dict[str, Any]] | None = None, columns_left_null: str = "", **others: Any
) -> TableDescription:
    """The table of a landing with headers, altered."""
    fields = [field | (changed or {}).get(field["name"], {}) for field in FIELDS if field["name"] != columns_left_null]
    return TableDescription((*fields, *more), **others)


@pytest.mark.parametrize(
    "found",
    [
        described(),
        described({"name": "note", "type": "string", "nullable": True, "metadata": {}}),
        described(writer_features=frozenset(("appendOnly", "deletionVectors", "changeDataFeed", "invariants"))),
        described(configuration={"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"}),
        described(configuration={"delta.columnMapping.mode": "none"}, writer_features=frozenset(("columnMapping",))),
        described(configuration={"delta.constraints.positive": "offset >= 0"}),
        described(changed={"offset": {"nullable": False}}),
    ],
)
def test_a_table_that_asks_nothing_special_takes_the_direct_lane(found: TableDescription) -> None:
    assert why_not_direct(found, None, WRITTEN) is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            described(configuration={"delta.constraints.short": "soundex(topic) = 'A'"}),
            "the table has the constraint short, which only Spark checks (\"soundex(topic) = 'A'\" is no SQL of the "
            "list (docs/guides/typed-tables.md#sql): the function soundex is not on the list, which has what all "
            "engines compute alike)",
        ),
        (described(configuration={"delta.columnMapping.mode": "name"}), "the table has column mapping"),
        (
            described(
                {"name": "note", "type": "string", "nullable": True, "metadata": {}},
                configuration={"delta.constraints.noted": "note = 'x'"},
            ),
            "the table has the constraint noted, which only Spark checks (\"note = 'x'\" is refused: there is no "
            "column note, or it is not clear: none of this name. Known are key, value, topic, partition, offset, "
            "timestamp, timestampType, headers)",
        ),
        (described(changed={"offset": {"metadata": {"delta.invariants": "{}"}}}), "the column offset has an invariant"),
        (
            described(DAY | {"metadata": {"delta.generationExpression": "CAST(timestamp AS DATE)"}}),
            "the column day has a generation expression",
        ),
        (
            described({"name": "id", "type": "long", "nullable": True, "metadata": {"delta.identity.start": 1}}),
            "the column id has identity values",
        ),
        (
            described({"name": "n", "type": "long", "nullable": True, "metadata": {"CURRENT_DEFAULT": "3"}}),
            "the column n has a default",
        ),
        (
            described(writer_features=frozenset(("rowTracking", "domainMetadata", "appendOnly"))),
            "the table has the feature rowTracking",
        ),
        (described(writer_features=frozenset(("inCommitTimestamp",))), "the table has the feature inCommitTimestamp"),
        (described(writer_features=frozenset(("of tomorrow",))), "the table has the feature of tomorrow"),
        (described(partition_columns=("topic",)), "the table is partitioned by topic"),
    ],
)
def test_what_the_direct_lane_cannot_honour_is_named_in_one_line(found: TableDescription, reason: str) -> None:
    assert why_not_direct(found, None, WRITTEN) == reason
    check_fit("lake.orders", found, table_schema(True, None), None)  # the Spark lane takes them all


def test_a_day_partition_takes_the_direct_lane() -> None:
    found = described(DAY, partition_columns=("day",))
    check_fit("lake.orders", found, table_schema(True, "day"), "day")
    assert why_not_direct(found, "day", table_schema(True, "day")) is None


@pytest.mark.parametrize(
    ("found", "day_column", "message"),
    [
        (
            described(columns_left_null="headers"),
            None,
            "lake.orders has no column headers: set includeHeaders=false, or add what",
        ),
        (described(changed={"value": {"type": "string"}}), None, "has value as string, but rows have binary"),
        (described(), "day", "lake.orders has no column day: remove ingest.dayColumn"),
        (
            described(columns_left_null="value", changed={"offset": {"type": "string"}, "key": {"type": "long"}}),
            "day",
            "has no column value and no column day; key as long, but rows have binary; offset as string, but rows have "
            "long: set ingest.value.format and ingest.value.schema, if the table has decoded values, or remove ing",
        ),
        (described(DAY), "day", "ingest.dayColumn is day, but the table lake.orders is not partitioned"),
        (described(DAY, partition_columns=("day",)), None, "where that is to be their day, set ingest.dayColumn=day"),
        (described(DAY | {"nullable": False}), None, "has a column day NOT NULL, which records do not have"),
        (
            described(DAY | {"type": {"type": "struct", "fields": [DAY | {"nullable": False}]}}),
            None,
            "has a column day with a field NOT NULL, which records do not have",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(found: TableDescription, day_column: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_fit("lake.orders", found, table_schema(True, day_column), day_column)


@pytest.mark.parametrize(
    ("kind", "message"),
    [("string", "no column key: remove ingest.key.format"), ("binary", "no column key: name the columns")],
)
def test_the_advice_for_a_missing_key_fits_its_format(kind: str, message: str) -> None:
    table = described(columns_left_null="key")
    with pytest.raises(ConfigurationError, match=message):
        check_fit("t", table, StructType().add("key", kind), None)
    with pytest.raises(ConfigurationError, match="no column amount: correct .*ingest.schemaEvolution=add"):
        check_fit("t", table, StructType().add("amount", "integer"), None)


def test_a_table_that_changes_its_rules_meanwhile_does_not_fit_its_rows() -> None:
    found = described(
        changed={"offset": {"nullable": False}}, configuration={"delta.constraints.positive": "offset >= 0"}
    )
    rules = table_rules(found)
    assert rules == TableRules(("offset",), (("positive", "offset >= 0"),))
    assert why_not_direct(found, None, WRITTEN, rules) is None
    unchecked = "the table has the constraint positive, by which rows were not checked"
    assert why_not_direct(found, None, WRITTEN, NO_RULES) == unchecked
    unchecked = "the column offset is NOT NULL, which was not checked"
    assert why_not_direct(found, None, WRITTEN, TableRules(checks=rules.checks)) == unchecked
    nested = replace(rules, nested_not_null=(("headers", "element"),), text_limits=(TextLimit(("topic",), 3, True),))
    columns = {
        "offset": {"nullable": False}, "topic": {"metadata": {DECLARED_TYPE: "char(3)"}},
        "headers": {"type": {**FIELDS[-1]["type"], "containsNull": False}},
    }  # fmt: skip
    more = replace(described(changed=columns), configuration=found.configuration)
    assert table_rules(more) == nested and why_not_direct(more, None, WRITTEN, nested) is None
    assert why_not_direct(more, None, WRITTEN, rules) == "headers.element is NOT NULL, which was not checked"
    unchecked = "topic is CHAR(3), by which texts were not checked"
    assert why_not_direct(more, None, WRITTEN, replace(nested, text_limits=())) == unchecked
    changed = "its constraints, or the columns that are NOT NULL, are others than when the query started"
    assert why_not_direct(described(), None, WRITTEN, rules) == changed


def test_a_day_that_may_not_be_null_is_left_to_spark() -> None:
    found = described(DAY | {"nullable": False}, partition_columns=("day",))
    assert why_not_direct(found, "day", table_schema(True, "day")) == "the column day is NOT NULL"
    found = described(DAY, partition_columns=("day",), configuration={"delta.constraints.c": "day IS NOT NULL"})
    assert "constraint c" in str(why_not_direct(found, "day", table_schema(True, "day")))


def test_names_that_differ_by_case_only_are_one_name_for_the_spark_lane() -> None:
    found = described(changed={"value": {"name": "Value"}, "headers": {"name": "HEADERS"}})
    check_fit("lake.orders", found, WRITTEN, None)
    assert why_not_direct(found, None, WRITTEN) == "its column Value is called value in what is written"
    assert columns_left_null(found, WRITTEN) == ()
    found = described(DAY | {"name": "Day"}, partition_columns=("Day",))
    check_fit("lake.orders", found, table_schema(True, "day"), "day")
    assert why_not_direct(found, "day", table_schema(True, "day")) == "the table is partitioned by Day"


def test_a_length_of_what_is_no_text_is_left_to_spark() -> None:
    found = described(changed={"value": {"type": "string", "metadata": {DECLARED_TYPE: "varchar(3)"}}})
    assert why_not_direct(found, None, WRITTEN) == "value is VARCHAR(3), but what is written is binary"

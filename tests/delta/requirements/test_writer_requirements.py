"""The list of all that a table, its columns and the session may ask of a writer: each entry, and what is in none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.delta.requirements.made_hadoop import made_hadoop
from tests.delta.requirements.test_lane import FIELDS, WRITTEN, described
from tests.docs.writer_requirements import NOTES, render_writer_requirements
from tests.rigs.stack.spark import ROOT, configured
from tiered_stream.delta.requirements.hadoop_settings import HadoopSettings, NotForTasksError, SessionStore
from tiered_stream.delta.requirements.lane import TableDescription, table_rules, table_schema, why_not_direct
from tiered_stream.delta.requirements.s3a import S3aStore
from tiered_stream.delta.requirements.store_access import AbfsStore, GsStore
from tiered_stream.delta.requirements.writer_requirements import (
    CONSTRAINT_PREFIX,
    DECLARED_TYPE,
    WRITER_REQUIREMENTS,
    Handling,
    Kind,
    Requirement,
    find_requirement,
    requirements_of_session,
)

DAY = {"name": "day", "type": "date", "nullable": False, "metadata": {}}


def column(kind: Any, metadata: dict[str, Any] | None = None, name: str = "c") -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata or {}}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def listed(element: Any, *, contains_null: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": contains_null}


HEADER = FIELDS[-1]["type"]["elementType"]


NOT_NULL_WITHIN = listed(struct(*(field | {"nullable": False} for field in HEADER["fields"])), contains_null=False)
SCHEMAS: dict[str, tuple[TableDescription, str | None, bool]] = {
    "NOT NULL of a column": (described(changed={"value": {"nullable": False}}), None, True),
    # Nothing that is written has structs: one in a list stands for them.
    "NOT NULL within a column": (described(changed={"headers": {"type": NOT_NULL_WITHIN}}), None, True),
    "NOT NULL of the day's column": (described(DAY, partition_columns=("day",)), "day", False),
    "another case": (described(changed={"value": {"name": "Value"}}), None, False),
    "another partition": (described(partition_columns=("topic",)), None, False),
}
"""Tables that ask for something by their schema, the day's column, and whether rows are checked by it."""


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_direct_lane_checks_rows_by_the_schema_or_leaves_the_table(name: str) -> None:
    found, day, is_checked = SCHEMAS[name]
    for by in ("spark", "deltalake"):
        assert (why_not_direct(found, day, table_schema(True, day), by=by) is None) is is_checked
    assert bool(table_rules(found)) is (is_checked or day is not None)


def asking(entry: Requirement) -> tuple[TableDescription, str | None]:
    """A table that asks for what the entry says, as deep within its columns as may be, and the day's column."""
    name = f"{entry.name[:-1]}x" if entry.name.endswith("*") else entry.name
    if entry.kind is Kind.FEATURE:
        return described(writer_features=frozenset([name])), None
    if entry.kind is Kind.PROPERTY:
        value = "offset > 0" if name.startswith(CONSTRAINT_PREFIX) else "true"
        return described(configuration={name: value}), None
    if entry.kind is Kind.METADATA:
        field = column("string", {name: "varchar(3)"}, "f")
        return described(column(struct(column(listed(struct(field)), name="l")))), None
    kind = "decimal(10,2)" if entry.name == "decimal*" else name
    return described(column({"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True})), None


@pytest.mark.parametrize(
    "entry", [each for each in WRITER_REQUIREMENTS if each.kind is not Kind.SESSION], ids=lambda each: each.name
)
def test_the_direct_lane_does_what_the_list_says(entry: Requirement) -> None:
    found, day = asking(entry)
    written = table_schema(True, day)
    why_not = why_not_direct(found, day, written)
    by_deltalake = why_not_direct(found, day, written, by="deltalake")
    match entry.handling:
        case Handling.HONOURED | Handling.NOTHING:
            assert why_not is by_deltalake is None
        case Handling.BY_SPARK:
            assert why_not is None
            assert by_deltalake == f"the table has {entry.name}, which ingest.commit=spark alone supports"
        case Handling.SPARK_LANE:
            assert why_not
    is_checked = entry.name in (DECLARED_TYPE, f"{CONSTRAINT_PREFIX}*")
    assert bool(table_rules(found)) is (is_checked or day is not None), "rows are checked by what is honoured so"


STORES = {"s3a": "s3a://lake/t", "azure": "abfss://lake@mine.dfs.core.windows.net/t", "gs": "gs://lake/t"}


@pytest.mark.parametrize(
    "entry", [each for each in WRITER_REQUIREMENTS if each.name.startswith("fs.")], ids=lambda each: each.name
)
def test_a_file_systems_setting_leads_to_the_spark_lane_where_the_list_says_so(entry: Requirement) -> None:
    name = f"{entry.name[:-1]}x" if entry.name.endswith("*") else entry.name
    uri = STORES[name.split(".")[1]]
    given = open_store(made_hadoop({name: "some value"}), uri)
    if entry.handling is Handling.SPARK_LANE:
        with pytest.raises(NotForTasksError, match=re.escape(f"{name} is set")):
            given.check_supported()
    else:
        assert entry.handling in (Handling.HONOURED, Handling.NOTHING)
        given.check_supported()
    open_store(made_hadoop({name: next(iter(entry.off - {""}), "false")}), uri).check_supported()


def open_store(hadoop: HadoopSettings, uri: str) -> SessionStore:
    stores: dict[str, type[SessionStore]] = {"s3a": S3aStore, "abfss": AbfsStore, "gs": GsStore}
    return stores[uri.partition(":")[0]](hadoop, uri)


def test_a_sessions_setting_is_asked_for_unless_it_is_off(spark: SparkSession) -> None:
    entries = [each for each in WRITER_REQUIREMENTS if each.kind is Kind.SESSION and not each.name.startswith("fs.")]
    values = {"spark.databricks.delta.autoCompact.enabled": "true", "spark.sql.parquet.compression.codec": "lz4"}
    assert {entry.name for entry in entries} == values.keys()
    for entry in entries:
        with configured(spark, {entry.name: values[entry.name]}):
            assert [each.entry for each in requirements_of_session(spark)] == [entry]
        with configured(spark, {entry.name: next(iter(entry.off - {""}), "false")}):
            assert not list(requirements_of_session(spark))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            described(configuration={"delta.ofTomorrow": "no"}),
            "the table has the property delta.ofTomorrow, which is not known here",
        ),
        (
            described(configuration={"DELTA.ofTomorrow": ""}),
            "the table has the property DELTA.ofTomorrow, which is not known here",
        ),
        (described(writer_features=frozenset(["ofTomorrow", "appendOnly"])), "the table has the feature ofTomorrow"),
        (described(configuration={"delta.feature.ofTomorrow": "supported"}), "the table has the feature ofTomorrow"),
        (
            described(column(struct(column("string", {"delta.ofTomorrow": 1}, "f")))),
            "the column c.f has the metadata delta.ofTomorrow, which is not known here",
        ),
        (
            described(column(listed("string"), {"__OF_TOMORROW": 1})),
            "the column c has the metadata __OF_TOMORROW, which is not known here",
        ),
        (
            described(column("string", {"OF_TOMORROW": 1})),
            "the column c has the metadata OF_TOMORROW, which is not known here",
        ),
        (
            described(column(listed("of tomorrow"))),
            "the column c.element has the type of tomorrow, which is not known here",
        ),
        (described(column(struct(column("void", name="f")))), "the column c.f is void"),
        (
            described(column("string", {DECLARED_TYPE: "of tomorrow<varchar(3)>"})),
            "the column c has VARCHAR or CHAR in it, which cannot be read: 'of tomorrow<varchar(3)>' is not the type "
            "of the column",
        ),
    ],
)  # fmt: skip
def test_what_nobody_knows_leads_to_the_spark_lane(found: TableDescription, reason: str) -> None:
    assert why_not_direct(found, None, WRITTEN) == reason


def test_properties_and_notes_of_users_ask_for_nothing() -> None:
    found = described(
        column("string", {"comment": "a", "owner": "b", "ml_attr": {}}), configuration={"owner": "x", "myDelta.x": "y"}
    )
    assert why_not_direct(found, None, WRITTEN) is None


def test_a_property_asks_for_nothing_where_it_is_off() -> None:
    off = {
        "delta.enableRowTracking": "False", "delta.columnMapping.mode": "NONE", "delta.checkpointPolicy": "classic",
        "delta.compatibility.symlinkFormatManifest.enabled": "false", "delta.autoOptimize.autoCompact": "",
    }  # fmt: skip
    assert why_not_direct(described(configuration=off), None, WRITTEN) is None
    assert why_not_direct(described(configuration=off), None, WRITTEN, by="deltalake") is None


def test_no_entry_is_in_the_list_twice_and_each_is_in_the_docs_table() -> None:
    keys = [(each.kind, each.name.lower()) for each in WRITER_REQUIREMENTS]
    assert len(set(keys)) == len(keys)
    table = render_writer_requirements()
    assert all(each.name in table for each in WRITER_REQUIREMENTS)
    assert NOTES.keys() <= {(each.kind, each.name) for each in WRITER_REQUIREMENTS}


def test_the_list_has_every_feature_and_property_that_delta_spark_knows(spark: SparkSession) -> None:
    delta: Any = spark._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
    features = getattr(delta, "TableFeature$")
    known = getattr(features, "MODULE$").allSupportedFeaturesMap().values()
    of_features = [str(each.name()) for each in scala_items(known)]
    configs = getattr(getattr(delta, "DeltaConfigs$"), "MODULE$").entries().values()  # a Java map
    of_configs = [str(each.key()) for each in configs]
    assert len(of_features) > 20 and len(of_configs) > 40
    page = (Path(ROOT) / "docs/guides/table-requirements.md").read_text()
    assert [name for name in of_features if f"`{name.partition('-')[0]}" not in page] == []
    assert [name for name in of_configs if find_requirement(Kind.PROPERTY, name) is None] == []


def scala_items(collection: Any) -> list[Any]:
    items, iterator = [], collection.iterator()
    while iterator.hasNext():
        items.append(iterator.next())
    return items


def test_the_sessions_settings_in_the_list_are_those_that_are_set(spark: SparkSession) -> None:
    name = "spark.databricks.delta.autoCompact.enabled"
    assert not list(requirements_of_session(spark))
    with configured(spark, {name: "true"}):
        assert [each.reason for each in requirements_of_session(spark)] == [f"the session has {name}"]

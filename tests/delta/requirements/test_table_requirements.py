"""What tables ask of their writers, by both lanes, with Spark and Delta: both land the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType

from tests.delta.test_typed_tables import Typed, same
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.delta.requirements.lane import Lane
from tiered_stream.errors import ConfigurationError, TableError

pytestmark = pytest.mark.slow

JSON = {"ingest.value.format": "json", "ingest.kafkaColumns": "none"}


def written(bucket: Path, values: list[Any], keys: list[str] | None = None) -> None:
    records = [
        Record(
            keys[at].encode() if keys else None, orjson.dumps(value) if not isinstance(value, str) else value.encode()
        )
        for at, value in enumerate(values)
    ]
    write_topic(bucket, "orders", [records])


def landed(typed: Typed, lane: str, **given: str) -> tuple[list[Any], dict[int, str]]:
    """The rows that are in the table, by `id` where there is one, and the reasons of dead letters by offset."""
    typed.run(lane, **given, **typed.aside)
    rows = [row.asDict(recursive=True) for row in typed.read().collect()]
    dead = {row.offset: row.reason for row in typed.read(typed.dead).collect()}
    return sorted(rows, key=lambda row: row.get("id") or 0), dead


def by_both_lanes(
    spark: SparkSession, folder: Path, make: Any, **given: str
) -> tuple[Typed, list[Any], dict[int, str]]:
    """Land the topic into a table of each lane, made by `make`; they come out alike."""
    found = []
    for lane in ("direct", "spark"):
        typed = Typed(spark, folder, lane)
        make(typed)
        found.append((typed, *landed(typed, lane, **given)))
    (direct, rows, dead), (by_spark, _, spark_dead) = found
    assert same(direct.read(), by_spark.read()) and dead == spark_dead
    return direct, rows, dead


def test_a_field_of_a_struct_that_may_not_be_null_is_a_rule_in_both_lanes(spark: SparkSession, tmp_path: Path) -> None:
    written(
        tmp_path / "bucket",
        [{"id": 1, "s": {"a": 1, "b": 1}}, {"id": 2, "s": {"b": 1}}, {"id": 3}, {"id": 4, "s": {"a": 4, "t": {}}},
         {"id": 5, "s": {"a": 5, "t": {"x": 5}}}, {"id": 6, "s": {"a": 6}}],
    )  # fmt: skip

    def make(typed: Typed) -> None:
        kind = "STRUCT<a: INT NOT NULL, b: INT, t: STRUCT<x: INT>>"
        spark.sql(f"CREATE TABLE delta.`{typed.table}` (id INT, s {kind}) USING delta")

    schema = {"ingest.value.schema": "id INT, s STRUCT<a: INT, b: INT, t: STRUCT<x: INT>>"}
    direct, rows, dead = by_both_lanes(spark, tmp_path, make, **JSON, **schema)
    assert [row["id"] for row in rows] == [1, 4, 5, 6]
    assert dead == {1: "the field s.a is NOT NULL", 2: "the field s.a is NOT NULL"}
    assert [row["s"]["a"] for row in rows] == [1, 4, 5, 6]
    read = sorted(DeltaTable(direct.table).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert [row["s"]["a"] for row in read] == [1, 4, 5, 6]
    spark.sql(f"UPDATE delta.`{direct.table}` SET id = id + 1")


def test_a_new_table_of_a_schema_with_not_null_within_a_struct_has_that_rule(
    spark: SparkSession, tmp_path: Path
) -> None:
    written(tmp_path / "bucket", [{"id": 1, "s": {"a": 1}}, {"id": 2, "s": {"b": 1}}])
    schema = {"ingest.value.schema": "id INT, s STRUCT<a: INT NOT NULL, b: INT>"}
    direct, rows, dead = by_both_lanes(spark, tmp_path, lambda _: None, **JSON, **schema)
    assert [row["id"] for row in rows] == [1] and dead == {1: "the field s.a is NOT NULL"}
    assert not direct.read().schema["s"].dataType["a"].nullable  # type: ignore[index]
    assert DeltaTable(direct.table).to_pyarrow_table().num_rows == 1
    many = Typed(spark, tmp_path, "many")
    many.table = tmp_path / "{topic}"
    many.run("direct", **JSON, **schema, **many.aside)
    assert [row.id for row in many.read(tmp_path / "orders").collect()] == [1]
    assert [row.offset for row in many.read(many.dead).collect()] == [1]


def test_elements_and_values_that_may_not_be_null_are_rules_in_both_lanes(spark: SparkSession, tmp_path: Path) -> None:
    written(
        tmp_path / "bucket",
        [
            {"id": 1, "a": [1], "m": {"k": 1}},
            {"id": 2, "a": [1, None]},
            {"id": 3, "m": {"k": None}},
            {"id": 4, "a": []},
        ],
    )
    columns = (
        StructType().add("id", IntegerType()).add("a", ArrayType(IntegerType(), False))
        .add("m", MapType(StringType(), IntegerType(), False))
    )  # fmt: skip

    def make(typed: Typed) -> None:
        SparkTable.create(spark).location(str(typed.table)).addColumns(columns).execute()

    schema = {"ingest.value.schema": "id INT, a ARRAY<INT>, m MAP<STRING, INT>"}
    direct, rows, dead = by_both_lanes(spark, tmp_path, make, **JSON, **schema)
    assert [(row["id"], row["a"], row["m"]) for row in rows] == [(1, [1], {"k": 1}), (4, [], None)]
    assert dead == {1: "the field a.element is NOT NULL", 2: "the field m.value is NOT NULL"}
    assert DeltaTable(direct.table).to_pyarrow_table().num_rows == 2


def test_texts_that_are_too_long_are_dead_letters_wherever_they_are(spark: SparkSession, tmp_path: Path) -> None:
    fits = {"v": "abc", "c": "a", "s": {"x": "é\U0001f600", "y": ["q", None]}, "m": {"k": "v"}}
    written(
        tmp_path / "bucket",
        [{"id": 0, **fits}, {"id": 1}, *({"id": number, **fits, **other} for number, other in enumerate([
            {"v": "abcd"}, {"v": "abc "}, {"c": "abcd"}, {"s": {"x": "xyz"}}, {"s": {"y": ["ok", "xyz"]}},
            {"m": {"klm": "v"}}, {"m": {"k": "xyz"}}, {"v": "\U0001f600\U0001f600\U0001f600"},
        ], 2))],
    )  # fmt: skip

    def make(typed: Typed) -> None:
        spark.sql(
            f"CREATE TABLE delta.`{typed.table}` (id INT, v VARCHAR(3), c CHAR(3), s STRUCT<x: VARCHAR(2), "
            "y: ARRAY<CHAR(2)>>, m MAP<VARCHAR(2), CHAR(2)>) USING delta"
        )

    schema = {"ingest.value.schema": "id INT, v STRING, c STRING, s STRUCT<x: STRING, y: ARRAY<STRING>>, "
              "m MAP<STRING, STRING>"}  # fmt: skip
    direct, rows, dead = by_both_lanes(spark, tmp_path, make, **JSON, **schema)
    assert [row["id"] for row in rows] == [0, 1, 9] and sorted(dead) == [2, 3, 4, 5, 6, 7, 8]
    assert dead[2] == "v is VARCHAR(3), and the value has more characters"
    assert dead[6] == "s.y.element is CHAR(2), and the value has more characters"
    assert dead[7] == "m.key is VARCHAR(2), and the value has more characters"
    whole = {"id": 0, "v": "abc", "c": "a  ", "s": {"x": "é\U0001f600", "y": ["q ", None]}, "m": {"k": "v "}}
    assert rows[0] == whole
    read = DeltaTable(direct.table).to_pyarrow_table(columns=["id", "c"]).to_pylist()
    assert {"id": 0, "c": "a  "} in read
    with duckdb.connect() as connection:
        arrow = DeltaTable(direct.table).to_pyarrow_dataset()
        assert connection.sql("SELECT max(length(v)), max(length(c)) FROM arrow").fetchall() == [(3, 3)], arrow
    spark.sql(f"UPDATE delta.`{direct.table}` SET id = id + 1")
    spark.sql(
        f"MERGE INTO delta.`{direct.table}` t USING (SELECT 1 AS id) n ON t.id = n.id "
        "WHEN MATCHED THEN UPDATE SET v = 'z'"
    )


def test_keys_and_texts_have_lengths_too_and_fail_the_query_where_that_is_asked(
    spark: SparkSession, tmp_path: Path
) -> None:
    written(tmp_path / "bucket", ["ab", "abc", "abcd", "a"], ["k", "k", "k", "keys"])
    text = {"ingest.value.format": "string", "ingest.key.format": "string", "ingest.kafkaColumns": "topic, offset"}

    def make(typed: Typed) -> None:
        columns = "value VARCHAR(3), key CHAR(2), topic CHAR(7), offset BIGINT"
        spark.sql(f"CREATE TABLE delta.`{typed.table}` ({columns}) USING delta")

    direct, _, dead = by_both_lanes(spark, tmp_path, make, **text)
    found = sorted((row.value, row.key, row.topic, row.offset) for row in direct.read().collect())
    assert found == [("ab", "k ", "orders ", 0), ("abc", "k ", "orders ", 1)]
    assert dead == {
        2: "value is VARCHAR(3), and the value has more characters",
        3: "key is CHAR(2), and the value has more characters",
    }
    failing = Typed(spark, tmp_path, "failing")
    make(failing)
    with pytest.raises(StreamingQueryException, match=r"offset 2: value is VARCHAR\(3\)"):
        failing.run("direct", **text)


def test_keys_of_a_map_that_are_one_when_padded_are_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "bucket", [{"id": 1, "m": {"a": 1, "a ": 2}}, {"id": 2, "m": {"a": 1, "b": 2}}])

    def make(typed: Typed) -> None:
        spark.sql(f"CREATE TABLE delta.`{typed.table}` (id INT, m MAP<CHAR(2), INT>) USING delta")

    _, rows, dead = by_both_lanes(
        spark, tmp_path, make, **JSON, **{"ingest.value.schema": "id INT, m MAP<STRING, INT>"}
    )
    assert [row["m"] for row in rows] == [{"a ": 1, "b ": 2}]
    assert dead == {0: "m.key is CHAR(2), and two keys are the same with the blanks that it adds"}


@pytest.mark.parametrize(
    ("columns", "layout", "schema", "day", "reason"),
    [
        ("Id BIGINT NOT NULL, s STRUCT<a: INT>", "", "id INT, s STRUCT<a: INT>", None,
         "its column Id is called id in what is written"),
        ("id INT, S STRUCT<Aa: INT, b: INT>", "", "id INT, S STRUCT<aa: INT>", None,
         "its column S.Aa is called S.aa in what is written"),
        ("id INT, Day DATE", "PARTITIONED BY (Day)", "id INT", "day", "the table is partitioned by Day"),
    ],
)  # fmt: skip
def test_columns_that_are_called_otherwise_by_case_only_take_the_spark_lane(
    spark: SparkSession, tmp_path: Path, columns: str, layout: str, schema: str, day: str | None, reason: str
) -> None:
    typed = Typed(spark, tmp_path)
    written(typed.bucket, [{"id": 7, "s": {"a": 1, "aa": 2}, "S": {"aa": 3}}, {"s": {}}])
    spark.sql(f"CREATE TABLE delta.`{typed.table}` ({columns}) USING delta {layout}")
    given = {**JSON, "ingest.value.schema": schema, **({"ingest.dayColumn": day} if day else {})}
    options = topic_options(typed.bucket, "orders", given)
    planned = plan_query(spark, options=options, table=str(typed.table), run=QueryRun(str(typed.checkpoint)))
    assert (planned.lane, planned.reason) == (Lane.SPARK, reason)
    typed.run("auto", **given, **typed.aside)
    rows = [row.asDict() for row in typed.read().collect()]
    assert [row.get("Id", row.get("id")) for row in rows if row.get("Id", row.get("id"))] == [7]
    assert len(rows) + typed.read(typed.dead).count() == 2
    with pytest.raises(ConfigurationError, match=f"direct lane .*{typed.table}"):
        typed.run("direct", **given)


@pytest.mark.parametrize("lane", ["auto", "spark"])
def test_a_field_that_delta_refuses_is_refused_before_a_table_is_made(
    spark: SparkSession, tmp_path: Path, lane: str
) -> None:
    options = topic_options(tmp_path, "orders", {**JSON, "ingest.value.schema": "l ARRAY<STRUCT<`a=b`: INT>>"})
    with pytest.raises(ConfigurationError, match=r"'l\.element\.a=b' "):
        plan_query(spark, options=options, table=f"{tmp_path}/table", run=QueryRun(f"{tmp_path}/checkpoint"), lane=lane)
    assert not list(tmp_path.glob("table/_delta_log/*.json"))


def test_a_new_table_with_column_mapping_has_such_names_by_the_spark_lane(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path)
    written(typed.bucket, [{"s": {"a b": 1}}])
    mapped = {"ingest.value.schema": "s STRUCT<`a b`: INT>", "ingest.tableProperty.delta.columnMapping.mode": "name"}
    typed.run("auto", **JSON, **mapped)
    assert [row.s["a b"] for row in typed.read().collect()] == [1]


def test_the_manifest_of_symlinks_has_the_files_that_the_direct_lane_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    typed = Typed(spark, tmp_path)
    written(typed.bucket, [{"id": 1}])
    spark.sql(
        f"CREATE TABLE delta.`{typed.table}` (id INT) USING delta "
        "TBLPROPERTIES ('delta.compatibility.symlinkFormatManifest.enabled' = 'true')"
    )
    given = {**JSON, "ingest.value.schema": "id INT"}
    typed.run("direct", **given)
    manifest = (typed.table / "_symlink_format_manifest" / "manifest").read_text().split()
    assert {Path(each).name for each in manifest} == {Path(each).name for each in DeltaTable(typed.table).file_uris()}
    assert len(manifest) == 1
    options = topic_options(typed.bucket, "orders", {**given, "ingest.commit": "deltalake"})
    planned = plan_query(spark, options=options, table=str(typed.table), run=QueryRun(str(typed.checkpoint)))
    name = "delta.compatibility.symlinkFormatManifest.enabled"
    assert planned.reason == f"the table has {name}, which ingest.commit=spark alone supports"


def test_a_new_table_whose_properties_ask_for_more_is_made_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path)
    written(typed.bucket, [{"id": 1}])
    given = {**JSON, "ingest.value.schema": "id INT", "ingest.tableProperty.delta.enableRowTracking": "true"}
    typed.run("auto", **given)
    assert "rowTracking" in (DeltaTable(typed.table).protocol().writer_features or [])
    assert typed.read().count() == 1


def test_a_field_that_delta_refuses_is_no_new_field_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path)
    written(typed.bucket, [{"s": {"a": 1, "a b": 2}}])
    spark.sql(f"CREATE TABLE delta.`{typed.table}` (s STRUCT<a: INT>) USING delta")
    given = {**JSON, "ingest.value.schema": "s STRUCT<a: INT, `a b`: INT>", "ingest.schemaEvolution": "add"}
    with pytest.raises(TableError, match=r"'s\.a b' "):
        typed.run("direct", **given)
    assert typed.read().schema["s"].dataType.names == ["a"]  # type: ignore[attr-defined]

"""Typed tables and dead letters, by both lanes, with Spark and Delta."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.formats.scripted_registry import ScriptedRegistry
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land
from tiered_stream.delta.checkpoint.query_run import AVAILABLE_NOW
from tiered_stream.errors import ConfigurationError

JSON = {
    "ingest.value.format": "json",
    "ingest.value.schema": "id BIGINT, name STRING",
    "ingest.kafkaColumns": "topic, partition, offset as kafka_offset",
}


class Typed:
    """Lands a topic of documents, of which some are garbage."""

    def __init__(self, spark: SparkSession, folder: Path, name: str = "table") -> None:
        self.spark, self.folder = spark, folder
        self.bucket = folder / "bucket"
        self.table, self.dead = folder / name, folder / f"{name} dead"
        self.checkpoint = folder / f"{name} checkpoint"

    @property
    def aside(self) -> dict[str, str]:
        return {"ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": str(self.dead)}

    def start(
        self, lane: str, topics: str, trigger: str = AVAILABLE_NOW, given: Mapping[str, str] = MappingProxyType({})
    ) -> StreamingQuery:
        return land(
            self.spark, options=topic_options(self.bucket, topics, given), table=str(self.table),
            checkpoint=str(self.checkpoint), lane=lane, trigger=trigger,
        )  # fmt: skip

    def run(self, lane: str = "direct", topics: str = "orders", **given: str) -> StreamingQuery:
        query = self.start(lane, topics, given=given)
        query.awaitTermination()
        return query

    def read(self, which: Path | None = None) -> DataFrame:
        return self.spark.read.format("delta").load(str(which or self.table))


def same(one: DataFrame, other: DataFrame) -> bool:
    assert [(each.name, each.dataType) for each in one.schema] == [(each.name, each.dataType) for each in other.schema]
    one, other = (
        frame.selectExpr(*(_comparable(each.name, each.dataType.typeName()) for each in one.schema))
        for frame in (one, other)
    )
    return one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty()


def _comparable(name: str, kind: str) -> str:
    """Spark compares no maps."""
    return f"array_sort(map_entries(`{name}`)) AS `{name}`" if kind == "map" else f"`{name}`"


def test_too_many_dead_letters_stop_the_run_before_anything_is_committed(spark: SparkSession, tmp_path: Path) -> None:
    for lane in ("direct", "spark"):
        typed = Typed(spark, tmp_path, lane)
        write_topic(typed.bucket, "orders", [[Record(None, b"{"), Record(None, b'{"id": 1}')]])
        with pytest.raises(StreamingQueryException, match="1 of the 2 records"):
            typed.run(lane, **JSON, **typed.aside, **{"ingest.maxDeadLetters": "0"})
        assert typed.read().isEmpty() and typed.read(typed.dead).isEmpty()


def test_a_record_that_does_not_decode_fails_the_query_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    for lane, said in (("direct", "value of topic orders, partition 0, offset 1: "), ("spark", "TASK_WRITE_FAILED")):
        typed = Typed(spark, tmp_path, lane)
        write_topic(typed.bucket, "orders", [[Record(None, b'{"id": 1}'), Record(None, b"secret")]])
        with pytest.raises(StreamingQueryException, match=said) as raised:
            typed.run(lane, **JSON)
        assert "secret" not in str(raised.value)
        assert typed.read().isEmpty()


def test_both_lanes_ask_rows_for_a_tables_constraints(spark: SparkSession, tmp_path: Path) -> None:
    for lane in ("direct", "spark"):
        typed = Typed(spark, tmp_path, lane)
        write_topic(typed.bucket, "orders", [[Record(None, b'{"id": %d}' % number) for number in range(10)]])
        spark.sql(f"CREATE TABLE delta.`{typed.table}` (id BIGINT NOT NULL) USING delta")
        spark.sql(f"ALTER TABLE delta.`{typed.table}` ADD CONSTRAINT even CHECK (id IN (0, 2, 4) OR id > 7)")
        typed.run(lane, **{**JSON, "ingest.value.schema": "id BIGINT", "ingest.kafkaColumns": "none"}, **typed.aside)
        assert sorted(row.id for row in typed.read().collect()) == [0, 2, 4, 8, 9]
        dead = typed.read(typed.dead).collect()
        assert sorted(row.offset for row in dead) == [1, 3, 5, 6, 7]
        assert {(row.failed, row.reason) for row in dead} == {("row", "the constraint even does not hold")}


def test_a_constraint_that_is_not_simple_is_kept_by_the_spark_lane(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path)
    spark.sql(f"CREATE TABLE delta.`{typed.table}` (id BIGINT) USING delta")
    spark.sql(f"ALTER TABLE delta.`{typed.table}` ADD CONSTRAINT power CHECK (bit_count(id) = 1)")
    given = {**JSON, "ingest.value.schema": "id BIGINT", "ingest.kafkaColumns": "none"}
    write_topic(typed.bucket, "orders", [[Record(None, b'{"id": 2}'), Record(None, b"garbage")]])
    typed.run("auto", **given, **typed.aside)
    assert ([row.id for row in typed.read().collect()], typed.read(typed.dead).count()) == ([2], 1)
    write_topic(typed.bucket, "orders", [[Record(None, b'{"id": 3}')]], first=2)
    with pytest.raises(StreamingQueryException, match="CHECK constraint power"):
        typed.run("auto", **given, **typed.aside)


def test_the_spark_lane_takes_a_schemas_new_fields_in_at_its_start(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path)
    given = {**JSON, "ingest.kafkaColumns": "none", "ingest.schemaEvolution": "add"}
    for first, schema in enumerate(("id BIGINT", "id BIGINT, new STRING", "id BIGINT")):
        write_topic(typed.bucket, "orders", [[Record(None, b'{"id": %d, "new": "x"}' % first)]], first=first)
        aside = typed.aside if first else {}
        typed.run("spark", **{**given, "ingest.value.schema": schema}, **aside)
    assert sorted(map(tuple, typed.read().collect())) == [(0, None), (1, "x"), (2, None)]


def test_a_query_of_many_tables_keeps_the_constraints_of_each(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path, "{topic}")
    typed.checkpoint, typed.dead = tmp_path / "checkpoint", tmp_path / "dead"
    names = {topic: f"delta.`{tmp_path / topic}`" for topic in ("orders", "payments", "raw")}
    spark.sql(f"CREATE TABLE {names['orders']} (id BIGINT NOT NULL, name STRING) USING delta")
    spark.sql(f"ALTER TABLE {names['orders']} ADD CONSTRAINT small CHECK (id < 4)")
    spark.sql(f"CREATE TABLE {names['raw']} (value BINARY NOT NULL) USING delta")
    rows = [b'{"id": 1}', b'{"id": 5}', b'{"name": "a"}', b"{"]
    for topic in names:
        write_topic(typed.bucket, topic, [[Record(None, each) for each in [*rows, None]]])
    json = {"value.format": "json", "value.schema": "id BIGINT, name STRING", "kafkaColumns": "none"}
    given = {f"ingest.topic.{topic}.{name}": each for topic in ("orders", "payments") for name, each in json.items()}
    given |= {"ingest.kafkaColumns": "value", **typed.aside}
    typed.run(topics="orders,payments,raw", **given)
    landed = {topic: typed.read(tmp_path / topic) for topic in names}
    assert [row.id for row in landed["orders"].collect()] == [1]
    assert sorted(str(row.id) for row in landed["payments"].collect()) == ["1", "5", "None", "None"]
    assert sorted(bytes(row.value) for row in landed["raw"].collect()) == sorted(rows)
    dead = [(row.topic, row.offset, row.failed, row.reason) for row in typed.read(typed.dead).collect()]
    assert sorted((topic, offset, failed) for topic, offset, failed, _ in dead) == [
        ("orders", 1, "row"), ("orders", 2, "row"), ("orders", 3, "value"), ("orders", 4, "row"),
        ("payments", 3, "value"), ("raw", 4, "row"),
    ]  # fmt: skip
    assert "the constraint small does not hold" in {reason for *_, reason in dead}

    # A constraint that comes between two runs holds in the second.
    spark.sql(f"DELETE FROM {names['payments']} WHERE id IS NULL OR id > 3")
    spark.sql(f"ALTER TABLE {names['payments']} ADD CONSTRAINT tiny CHECK (id < 3)")
    for topic in names:
        write_topic(typed.bucket, topic, [[Record(None, b'{"id": 3}')]], first=5)
    typed.run(topics="orders,payments,raw", **given)
    assert sorted(row.id for row in typed.read(tmp_path / "orders").collect()) == [1, 3]
    assert [row.id for row in typed.read(tmp_path / "payments").collect()] == [1]
    assert typed.read(typed.dead).where("topic = 'payments' AND failed = 'row' AND offset = 5").count() == 1


def test_constraints_hold_where_tables_may_be_parked(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path, "{topic}")
    typed.checkpoint, typed.dead = tmp_path / "checkpoint", tmp_path / "dead"
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'orders'}` (value BINARY NOT NULL) USING delta")
    for topic in ("orders", "payments"):
        write_topic(typed.bucket, topic, [[Record(None, b"a"), Record(None, None)]])
    given = {"ingest.kafkaColumns": "value", "ingest.onTableError": "park", **typed.aside}
    typed.run(topics="orders,payments", **given)
    assert [bytes(row.value) for row in typed.read(tmp_path / "orders").collect()] == [b"a"]
    assert typed.read(tmp_path / "payments").count() == 2
    assert [(row.topic, row.offset) for row in typed.read(typed.dead).collect()] == [("orders", 1)]


def test_each_topic_of_one_query_has_its_own_format(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path, "{topic}")
    typed.checkpoint, typed.dead = tmp_path / "checkpoint", tmp_path / "dead"
    write_topic(typed.bucket, "orders", [[Record(b"k", b'{"id": 1}'), Record(None, b"{")]])
    write_topic(typed.bucket, "raw", [[Record(b"k", b"\xff")]])
    write_topic(typed.bucket, "text", [[Record(b"k", b"\xff"), Record(b"k", b"a")]])
    given = {
        "ingest.topic.orders.value.format": "json", "ingest.topic.orders.value.schema": "id BIGINT",
        "ingest.topic.text.value.format": "string",
    }  # fmt: skip
    typed.run(topics="orders,raw,text", **given, **typed.aside)
    assert [row.id for row in typed.read(tmp_path / "orders").collect()] == [1]
    assert [bytes(row.value) for row in typed.read(tmp_path / "raw").collect()] == [b"\xff"]
    assert [row.value for row in typed.read(tmp_path / "text").collect()] == ["a"]
    dead = typed.read(typed.dead).collect()
    assert sorted((row.topic, row.offset) for row in dead) == [("orders", 1), ("text", 0)]


@pytest.mark.parametrize("lane", ["direct", "spark"])
def test_both_lanes_read_json_whose_schema_is_named_in_a_header_or_in_front(
    spark: SparkSession, tmp_path: Path, lane: str
) -> None:
    typed = Typed(spark, tmp_path)
    schema = {"title": "Order", "properties": {"id": {"type": "integer"}}}
    stored = {"schema": orjson.dumps(schema).decode(), "schemaType": "JSON"}
    header = (("__value_schema_id", b"\1" + bytes(16)),)
    write_topic(typed.bucket, "orders", [[Record(None, b'{"id": 1}', header), Record(None, b'\0\0\0\0\1{"id": 2}')]])
    with ScriptedRegistry() as registry:
        registry.versions["orders-Order", "latest"] = registry.schemas[1] = registry.guids[str(UUID(int=0))] = stored
        given = {
            "ingest.value.format": "json", "ingest.value.schema": "registry", "ingest.value.message": "Order",
            "ingest.value.subject.name.strategy": "TopicRecordNameStrategy", "ingest.kafkaColumns": "offset",
            "ingest.schema.registry.url": registry.url,
        }  # fmt: skip
        typed.run(lane, **given)
    assert sorted((row.id, row.offset) for row in typed.read().collect()) == [(1, 0), (2, 1)]


def test_statistics_let_spark_skip_files(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path)
    values = (b'{"id": %d, "name": "%s"}' % (number, "xé"[number % 2].encode()) for number in range(100))
    write_topic(typed.bucket, "orders", [[Record(None, each) for each in values]])
    typed.run(**JSON)
    add = pa.table(DeltaTable(typed.table).get_add_actions(flatten=True)).to_pylist()[0]
    assert (add["min.id"], add["max.id"], add["max.name"]) == (0, 99, "é")
    assert typed.read().where("id = 50").count() == 1
    assert typed.read().where("id > 99").isEmpty()


def test_names_that_clash_are_refused_before_anything_is_made(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path)
    write_topic(typed.bucket, "orders", [[Record(None, b"{}")]])
    with pytest.raises(ConfigurationError, match="columns .*offset: .*Kafka's"):
        typed.run(**{"ingest.value.format": "json", "ingest.value.schema": "OFFSET INT"})
    assert not typed.table.exists()


def test_an_inferred_schema_is_pinned_by_the_first_run(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path)
    given = {
        "ingest.value.format": "json", "ingest.value.schema": "infer", "ingest.dayColumn": "day",
        "ingest.kafkaColumns": "offset",
    }  # fmt: skip
    write_topic(typed.bucket, "orders", [[Record(None, b'{"id": 1, "s": {"x": true}}')]])
    typed.run(**given)
    write_topic(typed.bucket, "orders", [[Record(None, b'{"id": 2, "new": 1}')]], first=1)
    typed.run(**given)
    rows = typed.read().orderBy("offset").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {"id": 1, "s": {"x": True}, "offset": 0, "day": date(2023, 11, 14)},
        {"id": 2, "s": None, "offset": 1, "day": date(2023, 11, 14)},
    ]


def with_name_in_capitals(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that have a name."""
    named = batch.filter(batch.column("name").is_valid())
    at = batch.schema.get_field_index("name")
    return named.set_column(at, "capitals", pa.compute.utf8_upper(named.column("name")))


def test_both_lanes_take_debeziums_envelope_off_and_call_the_users_function(
    spark: SparkSession, tmp_path: Path
) -> None:
    row, other = {"id": 1, "name": "a"}, {"id": 1, "name": None}
    events = [
        {"before": None, "after": row, "op": "c", "source": {"lsn": 1}},
        {"before": row, "after": other, "op": "u", "source": {"lsn": 2}},
        {"before": {"id": 1, "name": "b"}, "after": None, "op": "d", "source": {"lsn": 3}},
        None,
        {"id": 5},
    ]
    image = "STRUCT<id: BIGINT, name: STRING>"
    given = {
        "ingest.value.format": "json", "ingest.envelope": "debezium", "ingest.kafkaColumns": "offset",
        "ingest.value.schema": f"before {image}, after {image}, op STRING, source STRUCT<lsn: BIGINT>",
        "ingest.transform": f"{__name__}:{with_name_in_capitals.__name__}",
    }  # fmt: skip
    made = []
    for lane in ("direct", "spark"):
        typed = Typed(spark, tmp_path, lane)
        write_topic(typed.bucket, "orders", [[Record(None, each and orjson.dumps(each)) for each in events]])
        typed.run(lane, **given, **typed.aside)
        assert [row.offset for row in typed.read(typed.dead).collect()] == [4]
        made.append(typed.read())
    assert same(*made)
    assert [row.asDict(recursive=True) for row in made[0].orderBy("offset").collect()] == [
        {"id": 1, "capitals": "A", "__op": "c", "__source": {"lsn": 1}, "offset": 0},
        {"id": 1, "capitals": "B", "__op": "d", "__source": {"lsn": 3}, "offset": 2},
    ]

"""Both lanes make the same of made-up schemas and values, hostile ones among them: tables and dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from tests.delta.made_topics import (
    MadeTopic,
    avro_topic,
    json_topic,
    protobuf_topic,
    registered_avro_topic,
    registered_protobuf_topic,
)
from tests.delta.typed_archive import typed_options
from tests.formats.scripted_registry import ScriptedRegistry
from tiered_stream import land

KAFKA = "topic, partition, offset as kafka_offset, timestamp as kafka_timestamp"


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with ScriptedRegistry() as server:
        yield server


def made_topics(random: Random, rounds: int, count: int, folder: Path, registry: ScriptedRegistry) -> list[MadeTopic]:
    topics = []
    for at in range(rounds):
        topics += [
            json_topic(random, f"json{at}", count),
            avro_topic(random, f"avro{at}", count),
            protobuf_topic(random, f"protobuf{at}", count, folder),
            registered_avro_topic(random, f"ravro{at}", count, registry),
            registered_protobuf_topic(random, f"rprotobuf{at}", count, registry),
        ]
    return topics


class Lanes:
    """Lands topics by one query of the direct lane, and by one each of the Spark lane."""

    def __init__(self, spark: SparkSession, folder: Path, topics: Sequence[MadeTopic], registry: str) -> None:
        self._spark, self._folder, self._registry = spark, folder, registry
        self._bucket = folder / "bucket"
        self.topics = {topic.name: topic for topic in topics}
        for topic in topics:
            topic.write(self._bucket)

    def land(self) -> None:
        by_topic = {
            f"ingest.topic.{name}.value.{key}": value
            for name, topic in self.topics.items()
            for key, value in topic.settings.items()
        }
        self._run("direct", ",".join(self.topics), "{topic}", by_topic)
        for name, topic in self.topics.items():
            self._run("spark", name, name, {f"ingest.value.{key}": value for key, value in topic.settings.items()})

    def _run(self, lane: str, topics: str, table: str, formats: Mapping[str, str]) -> None:
        given = {
            **formats, "ingest.kafkaColumns": KAFKA, "ingest.onDecodeError": "deadLetter",
            "ingest.schema.registry.url": self._registry, "ingest.deadLetterTable": str(self._folder / lane / "dead"),
        }  # fmt: skip
        query = land(
            self._spark, options=typed_options(self._bucket, topics, given), table=str(self._folder / lane / table),
            checkpoint=str(self._folder / f"{lane} checkpoint of {table}"), lane=lane,
        )  # fmt: skip
        query.awaitTermination()

    def read(self, lane: str, table: str) -> DataFrame:
        return self._spark.read.format("delta").load(str(self._folder / lane / table))


def differences(one: DataFrame, other: DataFrame) -> list[object]:
    assert [(each.name, each.dataType) for each in one.schema] == [(each.name, each.dataType) for each in other.schema]
    frames = [
        frame.select(*(comparable(sql.col(f"`{each.name}`"), each.dataType).alias(each.name) for each in one.schema))
        for frame in (one, other)
    ]
    return frames[0].exceptAll(frames[1]).take(3) + frames[1].exceptAll(frames[0]).take(3)


def comparable(column: Column, kind: DataType) -> Column:
    """As EXCEPT compares it: it takes no maps, and 0.0 for -0.0."""
    match kind:
        case FloatType() | DoubleType():
            return column.cast("string")
        case ArrayType():
            return sql.transform(column, lambda item: comparable(item, kind.elementType))
        case MapType():
            entry = StructType().add("key", kind.keyType).add("value", kind.valueType)
            return sql.sort_array(sql.transform(sql.map_entries(column), lambda item: comparable(item, entry)))
        case StructType():
            fields = [comparable(column.getField(each.name), each.dataType).alias(each.name) for each in kind]
            return sql.when(column.isNotNull(), sql.struct(*fields))
    return column


def compare(lanes: Lanes) -> None:
    lanes.land()
    for name in lanes.topics:
        assert differences(lanes.read("direct", name), lanes.read("spark", name)) == [], name
    assert differences(lanes.read("direct", "dead"), lanes.read("spark", "dead")) == []
    landed = {name: lanes.read("direct", name).count() for name in lanes.topics}
    dead = lanes.read("direct", "dead").groupBy("topic").count().collect()
    for topic, count in dead:
        landed[topic] += count
    assert landed == {name: len(topic.values) for name, topic in lanes.topics.items()}
    assert {topic for topic, _ in dead} == landed.keys()


def test_both_lanes_make_the_same_of_a_schema_of_each_format(
    spark: SparkSession, tmp_path: Path, registry: ScriptedRegistry
) -> None:
    compare(Lanes(spark, tmp_path, made_topics(Random(1), 1, 100, tmp_path, registry), registry.url))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_both_lanes_make_the_same_of_any_schemas(
    spark: SparkSession, tmp_path: Path, registry: ScriptedRegistry, seed: int
) -> None:
    compare(Lanes(spark, tmp_path, made_topics(Random(seed), 4, 400, tmp_path, registry), registry.url))

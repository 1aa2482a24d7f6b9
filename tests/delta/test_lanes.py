"""Both lanes make the same of made-up schemas and values, hostile ones among them: tables and dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, BinaryType, DataType, DateType, MapType, StructType, TimestampType

from tests.formats.avro_cases import Schemas, encoded, value
from tests.formats.json_documents import document, make_kind
from tests.formats.protobuf_cases import MESSAGE, WRAPPERS, Files, made, message_class
from tests.formats.scripted_registry import ScriptedRegistry
from tests.rigs.fuzz.mutation import spoiled
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land

SPOILED = 0.3
"""Of values that were right before."""


@dataclass(frozen=True)
class MadeTopic:
    """One schema, and values that mostly are of it."""

    name: str
    settings: Mapping[str, str]
    """Without the prefix `ingest.value.`."""
    values: tuple[bytes | None, ...]

    def write(self, bucket: Path) -> None:
        """In two partitions; some records have keys and headers."""
        records = [Record(b"k%d" % at if at % 3 else None, each, (("h", b"1"), ("h", None)) if at % 5 == 0 else ())
                   for at, each in enumerate(self.values)]  # fmt: skip
        middle = len(records) // 3
        write_topic(bucket, self.name, [records[:middle], records[middle:]])


def json_topic(random: Random, name: str, count: int) -> MadeTopic:
    """By Spark's JSON of a type."""
    kind = make_kind(random)
    values = [document(random, kind) for _ in range(count)]
    settings = {"format": "json", "schema": from_arrow_type(kind, prefer_timestamp_ntz=True).json()}
    return MadeTopic(name, settings, _hostile(random, values))


def avro_topic(random: Random, name: str, count: int) -> MadeTopic:
    """By a schema as JSON."""
    schema = Schemas(random).record()
    values = [encoded(schema, value(random, schema)) for _ in range(count)]
    return MadeTopic(name, {"format": "avro", "schema": json.dumps(schema)}, _hostile(random, values))


def protobuf_topic(random: Random, name: str, count: int, folder: Path) -> MadeTopic:
    """By a `.proto` file in the folder."""
    file = folder / f"{name}.proto"
    text = Files(random, known=WRAPPERS).text()
    file.write_text(text)
    values = [made(random, message_class(text)()).SerializeToString() for _ in range(count)]
    settings = {"format": "protobuf", "schema": str(file), "message": MESSAGE}
    return MadeTopic(name, settings, _hostile(random, values))


def registered_avro_topic(random: Random, name: str, count: int, registry: ScriptedRegistry) -> MadeTopic:
    """By a registry: two writers, one with a field more; and ids of nobody."""
    schema = Schemas(random).record()
    older = {**schema, "fields": [{"name": "gone", "type": "int"}, *schema["fields"]]}
    number = 10 * (len(registry.schemas) + 1)
    registry.schemas |= {number: {"schema": json.dumps(schema)}, number + 1: {"schema": json.dumps(older)}}
    registry.versions[f"{name}-value", "latest"] = {"id": number, "schema": json.dumps(schema)}
    values = []
    for _ in range(count):
        schema_id = random.choice((number, number, number, number + 1, number + 2))
        content = encoded(schema, value(random, schema))
        values.append(b"\0" + schema_id.to_bytes(4) + (b"\x02" if schema_id == number + 1 else b"") + content)
    return MadeTopic(name, {"format": "avro", "schema": "registry"}, _hostile(random, values))


def registered_protobuf_topic(random: Random, name: str, count: int, registry: ScriptedRegistry) -> MadeTopic:
    """By a registry; some say that they are another message."""
    text = Files(random, known=WRAPPERS).text()
    number = 10 * (len(registry.schemas) + 1)
    registry.schemas[number] = {"schema": text, "schemaType": "PROTOBUF"}
    registry.versions[f"{name}-value", "latest"] = {"id": number, **registry.schemas[number]}
    values = []
    for _ in range(count):
        which = random.choice((b"\0", b"\0", b"\x02\0", b"\x02\x02", b""))
        values.append(b"\0" + number.to_bytes(4) + which + made(random, message_class(text)()).SerializeToString())
    settings = {"format": "protobuf", "schema": "registry", "message": MESSAGE}
    return MadeTopic(name, settings, _hostile(random, values))


def _hostile(random: Random, values: list[bytes]) -> tuple[bytes | None, ...]:
    found = [spoiled(random, each, values) if random.random() < SPOILED else each for each in values]
    return (*found, b"", random.randbytes(40), None)


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
        self._start("direct", ",".join(self.topics), "{topic}", by_topic).awaitTermination()
        queries = [
            self._start("spark", name, name, {f"ingest.value.{key}": value for key, value in topic.settings.items()})
            for name, topic in self.topics.items()
        ]
        for query in queries:
            query.awaitTermination()

    def _start(self, lane: str, topics: str, table: str, formats: Mapping[str, str]) -> StreamingQuery:
        given = {
            **formats, "ingest.kafkaColumns": KAFKA, "ingest.onDecodeError": "deadLetter",
            "ingest.schema.registry.url": self._registry, "ingest.deadLetterTable": str(self._folder / lane / "dead"),
        }  # fmt: skip
        return land(
            self._spark, options=topic_options(self._bucket, topics, given), table=str(self._folder / lane / table),
            checkpoint=str(self._folder / f"{lane} checkpoint of {table}"), lane=lane,
        )  # fmt: skip

    def read(self, lane: str, table: str) -> DataFrame:
        rows = self._spark.read.format("delta").load(str(self._folder / lane / table))
        # Each lane has a table and a query of its own.
        return rows.drop("target", "query") if table == "dead" else rows


def texts(lanes: Lanes, lane: str) -> DataFrame:
    """Each row of each table as a text that says all of it."""
    tables = {name: lanes.read(lane, name) for name in (*lanes.topics, "dead")}
    return reduce(DataFrame.unionAll, (text_of(name, rows) for name, rows in tables.items()))


def text_of(name: str, rows: DataFrame) -> DataFrame:
    whole = sql.struct(*(exact(sql.col(f"`{each.name}`"), each.dataType).alias(each.name) for each in rows.schema))
    return rows.select(sql.lit(name).alias("table"), sql.to_json(whole, {"ignoreNullFields": "false"}).alias("text"))


def exact(column: Column, kind: DataType) -> Column:
    """As JSON tells it without loss; a map's entries in an order of their own."""
    match kind:
        case BinaryType():
            return sql.hex(column)
        case TimestampType():
            return sql.unix_micros(column)
        case DateType():
            return sql.unix_date(column)
        case ArrayType():
            return sql.transform(column, lambda item: exact(item, kind.elementType))
        case MapType():
            entry = StructType().add("key", kind.keyType).add("value", kind.valueType)
            return sql.sort_array(sql.transform(sql.map_entries(column), lambda item: exact(item, entry)))
        case StructType():
            fields = [exact(column.getField(each.name), each.dataType).alias(each.name) for each in kind]
            return sql.when(column.isNotNull(), sql.struct(*fields))
    return column.cast("string")


def compare(lanes: Lanes) -> None:
    lanes.land()
    for name in lanes.topics:
        assert lanes.read("direct", name).schema == lanes.read("spark", name).schema
    direct, by_spark = texts(lanes, "direct"), texts(lanes, "spark")
    assert direct.exceptAll(by_spark).take(3) == by_spark.exceptAll(direct).take(3) == []
    landed = dict(direct.where("table != 'dead'").groupBy("table").count().collect())
    dead = dict(lanes.read("direct", "dead").groupBy("topic").count().collect())
    assert {name: landed[name] + dead[name] for name in dead} == {
        name: len(topic.values) for name, topic in lanes.topics.items()
    }


def test_both_lanes_make_the_same_of_json_and_of_a_registrys_avro(
    spark: SparkSession, tmp_path: Path, registry: ScriptedRegistry
) -> None:
    random = Random(1)
    topics = [json_topic(random, "json", 200), registered_avro_topic(random, "avro", 200, registry)]
    compare(Lanes(spark, tmp_path, topics, registry.url))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_both_lanes_make_the_same_of_schemas_of_each_format(
    spark: SparkSession, tmp_path: Path, registry: ScriptedRegistry, seed: int
) -> None:
    compare(Lanes(spark, tmp_path, made_topics(Random(seed), 2, 500, tmp_path, registry), registry.url))

"""A query runs on while its producers change their schema: fields come, types become wider, fields go."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.delta.test_typed_tables import Typed, same
from tests.formats.avro_cases import encoded
from tests.rigs.stack.apicurio import Apicurio
from tests.rigs.stack.rows import Record
from tests.tier.topics import write_topic

pytestmark = [pytest.mark.stack, pytest.mark.slow]

NULLABLE = ["null", "string"]
FIRST = [("id", "int"), ("x", "float"), ("n", "int"), ("old", NULLABLE), ("state", "string")]
ADDED = [*FIRST, ("new", NULLABLE)]
WIDER = [("id", "long"), ("x", "double"), ("n", "double"), *ADDED[3:]]
FEWER = [("id", "long"), ("x", "double"), ("n", "double"), ("new", NULLABLE)]
FOREIGN = [("id", "string"), *FIRST[1:]]
INNER = [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "int"], "default": None}]
DEFAULTS: dict[str, Any] = {"old": None, "new": None, "state": "unknown"}
COLUMNS = "id BIGINT, x DOUBLE, n DOUBLE, old STRING, state STRING, offset BIGINT, new STRING"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as running:
        yield running


def avro(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    listed = [
        {"name": name, "type": kind, **({"default": DEFAULTS[name]} if name in DEFAULTS else {})}
        for name, kind in fields
    ]
    return {"type": "record", "name": "order", "fields": listed}


@dataclass
class Producer:
    """Writes a topic of Avro values, each with the schema that it has at the time."""

    typed: Typed
    registry: Apicurio
    topic: str
    records: int = 0
    _ids: dict[str, int] = field(default_factory=dict)

    def record(self, fields: Sequence[tuple[str, Any]], **values: Any) -> Record:
        schema = avro(fields)
        text = json.dumps(schema)
        if text not in self._ids:
            self._ids[text] = self.registry.register(f"{self.topic}-value", text)
        return Record(None, b"\0" + self._ids[text].to_bytes(4) + encoded(schema, values))

    def write(self, *records: Record) -> None:
        write_topic(self.typed.bucket, self.topic, [records], first=self.records)
        self.records += len(records)


def started(typed: Typed, topic: str, **given: str) -> StreamingQuery:
    return typed.start("direct", topic, "1 second", given)


def landed_by(query: StreamingQuery) -> None:
    query.processAllAvailable()
    assert query.isActive and query.exception() is None


def rows_of(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), COLUMNS)


def avro_settings(registry: Apicurio, typed: Typed, evolution: str, committer: str) -> dict[str, str]:
    return {
        "ingest.value.format": "avro", "ingest.value.schema": "registry", "ingest.schema.registry.url": registry.url,
        "ingest.schema.registry.basic.auth.user.info": f"{typed.table.name}:of-this-test",
        "ingest.schemaEvolution": evolution, "ingest.kafkaColumns": "offset", "ingest.commit": committer, **typed.aside,
    }  # fmt: skip


def test_a_running_query_follows_a_schema_that_changes_within_batches(
    spark: SparkSession, tmp_path: Path, registry: Apicurio
) -> None:
    typed = Typed(spark, tmp_path, "widened")
    producer = Producer(typed, registry, "widened")
    first = {"x": 0.5, "n": 3, "old": "o", "state": "s"}
    settings = avro_settings(registry, typed, "widen", "auto")
    producer.write(producer.record(FIRST, id=0, **first))
    query = started(typed, "widened", **settings)
    landed_by(query)
    assert typed.read().schema["id"].dataType.typeName() == "integer"
    # A field is added in the middle of a batch.
    producer.write(producer.record(FIRST, id=1, **first), producer.record(ADDED, id=2, **first, new="n"))
    landed_by(query)
    # Types become wider in the middle of a batch, while another producer still has the first schema.
    wide = {"x": 0.1, "n": 1.5, "old": "o", "state": "s", "new": "n"}
    producer.write(
        producer.record(FIRST, id=3, **first), producer.record(WIDER, id=1 << 40, **wide),
        producer.record(FOREIGN, id="five", **first), producer.record(FIRST, id=6, **first),
    )  # fmt: skip
    landed_by(query)
    # Fields are removed: the one is null from then on, the other as the reader's default has it.
    producer.write(producer.record(FEWER, id=7, x=0.25, n=2.5, new="n"), producer.record(FIRST, id=8, **first))
    landed_by(query)
    query.stop()
    expected = [
        (0, 0.5, 3.0, "o", "s", 0, None), (1, 0.5, 3.0, "o", "s", 1, None), (2, 0.5, 3.0, "o", "s", 2, "n"),
        (3, 0.5, 3.0, "o", "s", 3, None), (1 << 40, 0.1, 1.5, "o", "s", 4, "n"), (6, 0.5, 3.0, "o", "s", 6, None),
        (7, 0.25, 2.5, None, "unknown", 7, "n"), (8, 0.5, 3.0, "o", "s", 8, None),
    ]  # fmt: skip
    assert same(typed.read(), rows_of(spark, *expected))
    assert [row.offset for row in typed.read(typed.dead).collect()] == [5]

    # Started again, it has the newest schema for its own, which lacks what the table has.
    query = started(typed, "widened", **settings)
    producer.write(producer.record(FIRST, id=9, **first), producer.record(FEWER, id=10, x=1.0, n=1.0, new="n"))
    landed_by(query)
    query.stop()
    expected += [(9, 0.5, 3.0, "o", "s", 9, None), (10, 1.0, 1.0, None, None, 10, "n")]
    assert same(typed.read(), rows_of(spark, *expected))
    by_sql = spark.sql(
        f"SELECT count(*) AS c, sum(n) AS n, max(id) AS m FROM delta.`{typed.table}` WHERE id > 2"
    ).first()
    assert by_sql is not None and (by_sql.c, by_sql.n, by_sql.m) == (7, 17.0, 1 << 40)


@pytest.mark.parametrize("committer", ["deltalake", "spark"])
def test_what_would_widen_a_column_is_kept_aside_with_what_to_do(
    spark: SparkSession, tmp_path: Path, registry: Apicurio, committer: str
) -> None:
    typed = Typed(spark, tmp_path, f"added by {committer}")
    producer = Producer(typed, registry, f"added-{committer}")
    narrow, wide = ({"type": "record", "name": "i", "fields": INNER[:end]} for end in (1, 2))
    first = {"x": 0.5, "n": 3, "old": "o", "state": "s", "inner": {"a": 1}}
    after = {**first, "inner": {"a": 1, "b": 2}, "new": "n"}
    before, inner = [*FIRST, ("inner", narrow)], ("inner", wide)
    producer.write(producer.record(before, id=0, **first))
    query = started(typed, producer.topic, **avro_settings(registry, typed, "add", committer))
    landed_by(query)
    producer.write(
        producer.record(before, id=1, **first),
        producer.record([*ADDED, inner], id=2, **after),
        producer.record([*WIDER, inner], id=3, **{**after, "x": 0.1, "n": 1.5}),
    )
    landed_by(query)
    query.stop()
    rows = typed.read().orderBy("id").select("id", "new", "inner.a", "inner.b").collect()
    assert [tuple(row) for row in rows] == [(0, None, 1, None), (1, None, 1, None), (2, "n", 1, 2)]
    (dead,) = typed.read(typed.dead).collect()
    assert dead.offset == 3 and "schema evolution widen would widen the column" in dead.reason


def test_each_table_of_a_query_for_many_becomes_wider_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    typed = Typed(spark, tmp_path, "{topic}")
    typed.checkpoint = tmp_path / "checkpoint"
    settings = {
        "ingest.value.format": "json", "ingest.value.schema": "id INT", "ingest.kafkaColumns": "none",
        "ingest.schemaEvolution": "widen",
    }  # fmt: skip
    for first, values in enumerate([(1, 1), (1 << 40, 2), (3, 3)]):
        for topic, value in zip(("grows", "stays"), values, strict=True):
            write_topic(typed.bucket, topic, [[Record(None, b'{"id": %d}' % value)]], first=first)
        typed.run(topics="grows,stays", **settings)
    for topic, kind, rows in (("grows", "BIGINT", (1, 1 << 40, 3)), ("stays", "INT", (1, 2, 3))):
        found = typed.read(tmp_path / topic)
        assert same(found, spark.createDataFrame([(each,) for each in rows], f"id {kind}"))


def test_json_numbers_widen_columns_and_fields_that_no_column_has_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    typed = Typed(spark, tmp_path, "json")
    settings = {
        "ingest.value.format": "json", "ingest.value.schema": "id INT, n INT, s STRING", "ingest.kafkaColumns": "none",
        "ingest.schemaEvolution": "widen", **typed.aside,
    }  # fmt: skip

    def write(first: int, *documents: dict[str, Any]) -> None:
        write_topic(typed.bucket, "json", [[Record(None, orjson.dumps(each)) for each in documents]], first=first)

    write(0, {"id": 0, "n": 1, "s": "a"})
    query = started(typed, "json", **settings)
    landed_by(query)
    write(1, {"id": 1, "n": 1, "s": "a", "more": 1}, {"id": 1 << 40, "n": 1.5}, {"id": 2, "n": "x"}, {"id": 3, "n": 2})
    landed_by(query)
    query.stop()
    rows = [(0, 1.0, "a"), (1, 1.0, "a"), (1 << 40, 1.5, None), (3, 2.0, None)]
    assert same(typed.read(), spark.createDataFrame(rows, "id BIGINT, n DOUBLE, s STRING"))
    assert [row.offset for row in typed.read(typed.dead).collect()] == [3]

    # By then the table's own type is the narrowest that there is.
    query = started(typed, "json", **settings)
    write(5, {"id": 1.5, "n": 1}, {"id": 4, "n": 4})
    landed_by(query)
    query.stop()
    assert same(typed.read(), spark.createDataFrame([*rows, (4, 4.0, None)], "id BIGINT, n DOUBLE, s STRING"))
    assert sorted(row.offset for row in typed.read(typed.dead).collect()) == [3, 5]

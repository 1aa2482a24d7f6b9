"""Schemas that grow while a query runs, by a registry whose writers are ahead of the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.delta.test_typed_tables import Typed
from tests.formats.avro_cases import encoded
from tests.formats.scripted_registry import ScriptedRegistry
from tests.rigs.stack.rows import Record
from tests.tier.topics import write_topic

pytestmark = pytest.mark.slow


def schema(*fields: tuple[str, Any]) -> dict[str, Any]:
    listed = [
        {"name": name, "type": kind, **({"default": None} if isinstance(kind, list) else {})} for name, kind in fields
    ]
    return {"type": "record", "name": "r", "fields": listed}


INNER = {"type": "record", "name": "i", "fields": [{"name": "x", "type": "int"}]}
WIDER_INNER = {"type": "record", "name": "i", "fields": [
    {"name": "x", "type": "int"}, {"name": "y", "type": ["null", "int"], "default": None}]}  # fmt: skip
FIRST = schema(("id", "long"), ("old", ["null", "string"]), ("inner", INNER))
ADDED = schema(("id", "long"), ("old", ["null", "string"]), ("inner", WIDER_INNER), ("new", ["null", "int"]))
REMOVED = schema(("id", "long"), ("inner", INNER))
CHANGED = schema(("id", "string"), ("old", ["null", "string"]), ("inner", INNER))


def framed(schema_id: int, schema: dict[str, Any], value: dict[str, Any]) -> Record:
    return Record(None, b"\0" + schema_id.to_bytes(4) + encoded(schema, value))


@pytest.mark.parametrize("committer", ["spark", "deltalake"])
def test_a_field_that_is_added_in_the_middle_of_a_batch_becomes_a_column(
    spark: SparkSession, tmp_path: Path, committer: str
) -> None:
    typed = Typed(spark, tmp_path)
    records = [
        framed(1, FIRST, {"id": 0, "old": "a", "inner": {"x": 1}}),
        framed(2, ADDED, {"id": 1, "old": "b", "inner": {"x": 1, "y": 2}, "new": 7}),
        framed(3, REMOVED, {"id": 2, "inner": {"x": 1}}),
        framed(4, CHANGED, {"id": "three", "old": "a", "inner": {"x": 1}}),
        framed(9, FIRST, {"id": 4, "old": "a", "inner": {"x": 1}}),
    ]
    write_topic(typed.bucket, "orders", [records])
    with ScriptedRegistry() as registry:
        for number, each in enumerate((FIRST, ADDED, REMOVED, CHANGED), 1):
            registry.schemas[number] = {"schema": json.dumps(each)}
        registry.versions["orders-value", "latest"] = {"id": 1, "schema": json.dumps(FIRST)}
        given = {
            "ingest.value.format": "avro", "ingest.value.schema": "registry",
            "ingest.schema.registry.url": registry.url, "ingest.schemaEvolution": "add",
            "ingest.kafkaColumns": "offset", "ingest.commit": committer,
        }  # fmt: skip
        typed.run(**given, **typed.aside)
        found = [row.asDict(recursive=True) for row in typed.read().orderBy("id").collect()]
        assert found == [
            {"id": 0, "old": "a", "inner": {"x": 1, "y": None}, "offset": 0, "new": None},
            {"id": 1, "old": "b", "inner": {"x": 1, "y": 2}, "offset": 1, "new": 7},
            {"id": 2, "old": None, "inner": {"x": 1, "y": None}, "offset": 2, "new": None},
        ]
        dead = {row.offset: row.reason for row in typed.read(typed.dead).collect()}
        assert dead.keys() == {3, 4} and all(dead.values())

        # The next run knows the newest schema, which lacks what the table has.
        write_topic(typed.bucket, "orders", [[framed(3, REMOVED, {"id": 5, "inner": {"x": 3}})]], first=5)
        registry.versions["orders-value", "latest"] = {"id": 3, "schema": json.dumps(REMOVED)}
        typed.run(**given, **typed.aside)
    (last,) = typed.read().where("id = 5").collect()
    assert last.asDict(recursive=True) == {
        "id": 5, "old": None, "inner": {"x": 3, "y": None}, "offset": 5, "new": None,
    }  # fmt: skip

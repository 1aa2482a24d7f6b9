"""Topics of one query, in turns with values in JSON, in Avro by a schema registry, and in bytes that stay as they are.

Each record tells its topic, partition and offset, so that none can be taken for another.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from fastavro import schemaless_writer

from tests.rigs.stack.apicurio import Apicurio
from tests.rigs.stack.rows import Record
from tests.tier.topics import write_topic

FORMATS = ("json", "avro", "binary")
PARTITIONS, BATCH_RECORDS, BATCHES = 2, 20, 6
"""Of each topic; records in a record batch, and record batches in a partition."""
RECORDS = PARTITIONS * BATCH_RECORDS * BATCHES
_DDL = "id BIGINT, name STRING, price DOUBLE, paid BOOLEAN, note STRING"
_OLD: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": "string"},
    {"name": "price", "type": ["null", "double"]},
    {"name": "paid", "type": "boolean"},
]
_NEW = [*_OLD, {"name": "note", "type": ["null", "string"], "default": None}]
"""The first half of a partition has no notes, and in Avro an older schema."""
_MILLISECONDS = 1_700_000_000_000


def topic_names(count: int) -> list[str]:
    """A topic's number says its format, so that its name has to."""
    return [f"{FORMATS[number % len(FORMATS)]}-{number:04d}" for number in range(count)]


def format_of(topic: str) -> str:
    return topic.partition("-")[0]


def write_topics(bucket: Path, topics: Sequence[str], registry: Apicurio) -> None:
    """All topics, tiered, and the schemas of those in Avro."""
    for topic in topics:
        ids = (
            [registry.register(f"{topic}-value", _schema(topic, each)) for each in (_OLD, _NEW)]
            if format_of(topic) == "avro"
            else []
        )
        partitions = [
            [_record(topic, partition, offset, ids) for offset in range(BATCH_RECORDS * BATCHES)]
            for partition in range(PARTITIONS)
        ]
        write_topic(bucket, topic, partitions, batch_records=BATCH_RECORDS)


def format_settings(topics: Sequence[str], registry: Apicurio) -> dict[str, str]:
    """What the job is told of the topics' values."""
    schemas = {"json": _DDL, "avro": "registry"}
    told = {
        f"ingest.topic.{topic}.value.{name}": value
        for topic in topics
        if (schema := schemas.get(format_of(topic)))
        for name, value in (("format", format_of(topic)), ("schema", schema))
    }
    return {"ingest.schema.registry.url": registry.url, **told}


def check_table(table: Path) -> None:
    """Every record of the topic by that name is in the table, once, as it was meant.

    Raises AssertionError: it is not.
    """
    topic = table.name
    decoded = {"id": pa.int64(), "name": pa.string(), "price": pa.float64(), "paid": pa.bool_(), "note": pa.string()}
    plain = {"value": pa.binary()}
    of_value = plain if format_of(topic) == "binary" else decoded
    found = DeltaTable(table).to_pyarrow_table()
    assert {each.name: each.type for each in found.schema if each.name in of_value} == of_value, found.schema
    rows = found.select(["partition", "offset", "topic", "key", *of_value]).to_pylist()
    assert sorted(rows, key=lambda row: (row["partition"], row["offset"])) == [
        {"partition": partition, "offset": offset, "topic": topic, "key": b"k%d" % offset}
        | ({"value": _bytes(topic, partition, offset)} if of_value is plain else _order(topic, partition, offset))
        for partition in range(PARTITIONS)
        for offset in range(BATCH_RECORDS * BATCHES)
    ], topic


def _schema(topic: str, fields: Sequence[Any]) -> str:
    return json.dumps({"type": "record", "name": topic.replace("-", "_"), "fields": fields})


def _record(topic: str, partition: int, offset: int, schema_ids: Sequence[int]) -> Record:
    return Record(b"k%d" % offset, _value(topic, partition, offset, schema_ids), (), _MILLISECONDS + offset)


def _value(topic: str, partition: int, offset: int, schema_ids: Sequence[int]) -> bytes | None:
    if format_of(topic) == "binary":
        return _bytes(topic, partition, offset)
    order = _order(topic, partition, offset)
    if format_of(topic) == "json":
        return json.dumps({name: value for name, value in order.items() if value is not None}).encode()
    old = _is_old(offset)
    written = io.BytesIO()
    schemaless_writer(written, json.loads(_schema(topic, _OLD if old else _NEW)), order)
    return b"\0" + schema_ids[0 if old else 1].to_bytes(4) + written.getvalue()


def _order(topic: str, partition: int, offset: int) -> dict[str, Any]:
    return {
        "id": offset * 10 + partition,
        "name": f"{topic} é {partition}-{offset}",
        "price": None if offset % 5 == 0 else offset / 8,
        "paid": offset % 3 == 0,
        "note": None if _is_old(offset) else f"note {offset}",
    }


def _is_old(offset: int) -> bool:
    return offset < BATCH_RECORDS * BATCHES // 2


def _bytes(topic: str, partition: int, offset: int) -> bytes | None:
    return None if offset % 7 == 0 else b"\0\xff%s %d-%d" % (topic.encode(), partition, offset)

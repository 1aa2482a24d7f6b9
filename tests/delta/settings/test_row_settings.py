"""What the settings say of rows, without Spark."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest

from tests.formats.scripted_registry import ScriptedRegistry
from tiered_stream.delta.schema.routing import Routing, TaskSettings
from tiered_stream.delta.schema.row_plan import plan_rows, plan_topics
from tiered_stream.delta.schema.row_schema import fit_to_table
from tiered_stream.delta.settings.ingest_settings import TableSpec, check_names, table_spec
from tiered_stream.delta.settings.row_settings import DeadLetterLimit, row_settings
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_choices import Format, OnDecodeError

AVRO = {"ingest.value.format": "avro", "ingest.value.schema": "registry"}
JSON = {"ingest.value.format": "json", "ingest.value.schema": '{"properties": {"a": {"type": "integer"}}}'}
DEAD = {"ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": "lake.dead"}


def test_what_is_not_set_is_kafkas_records_as_they_are() -> None:
    found = row_settings({})
    assert (found.key.format, found.value.format, found.kafka_columns) == (Format.BINARY, Format.BINARY, None)
    assert found.on_decode_error is OnDecodeError.FAIL


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("none", ()),
        ("offset", (("offset", "offset"),)),
        (" offset AS kafka_offset ,TOPIC", (("topic", "topic"), ("offset", "kafka_offset"))),
        ("timestamptype as t", (("timestampType", "t"),)),
    ],
)
def test_kafkas_columns_are_kept_and_renamed(given: str, kept: tuple[tuple[str, str], ...]) -> None:
    assert row_settings({"ingest.kafkaColumns": given}).kafka_columns == kept


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ingest.kafkaColumns": "ofset"}, "must be none, or some of key, value"),
        ({"ingest.kafkaColumns": "offset,offset as o"}, "names offset twice"),
        ({"ingest.kafkaColumns": ""}, "must be none, or some of"),
        ({"ingest.value.format": "xml"}, "ingest.value.format: 'xml' must be one of binary"),
        ({"ingest.value.format": "json"}, "ingest.value.format is json: set ingest.value.schema, too"),
        ({"ingest.key.schema": "a INT"}, "ingest.key.schema is set, but ingest.key.format is binary"),
        (
            {"ingest.key.format": "string", "ingest.key.schema": "registry"},
            "registry, which is for json, avro and protobuf, not for string",
        ),
        ({**AVRO, "ingest.value.subject.name.strategy": "MyStrategy"}, "must be one of TopicNameStrategy, Record"),
        (
            {**AVRO, "ingest.value.subject.name.strategy": "RecordNameStrategy"},
            "set ingest.value.message to the record",
        ),
        (
            {**AVRO, "ingest.value.subject": "s", "ingest.value.subject.name.strategy": "TopicNameStrategy"},
            "ingest.value.subject and ingest.value.subject.name.strategy exclude each other",
        ),
        ({**JSON, "ingest.value.subject": "s"}, "ingest.value.subject is set, but ingest.value.schema is not registry"),
        ({**AVRO, "ingest.value.message": "a.B"}, "ingest.value.message is set, but ingest.value.format is avro"),
        ({**AVRO, "ingest.value.schema.id.deserializer": "Header"}, "must be one of DualSchemaId"),
        (
            {"ingest.key.schema.id.deserializer": "PrefixSchemaIdDeserializer"},
            "ingest.key.schema.id.deserializer is for json, avro and protobuf",
        ),
        ({"ingest.key.format": "avro", "ingest.key.schema": "infer"}, "infer, which is for json alone, not for avro"),
        ({"ingest.onDecodeError": "deadLetter"}, "belong together"),
        ({"ingest.deadLetterTable": "lake.dead"}, "belong together"),
        ({"ingest.maxDeadLetters": "5%"}, "ingest.maxDeadLetters needs ingest.onDecodeError=deadLetter"),
        ({**DEAD, "ingest.maxDeadLetters": "few"}, "must be a number of records a micro-batch, or a percentage"),
        ({**DEAD, "ingest.maxDeadLetters": "101%"}, "must be at most 100%"),
        ({"ingest.select": "key", "ingest.transform": "a:b"}, "ingest.transform and ingest.select exclude each other"),
        ({"ingest.where": "TRUE", "ingest.schemaEvolution": "widen"}, "widen and ingest.where exclude each other"),
        ({"ingest.envelope": "debezium"}, "ingest.envelope needs a value that is json, avro or protobuf"),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        row_settings(given)


@pytest.mark.parametrize(
    ("limit", "dead", "records", "passed"),
    [("0", 0, 9, False), ("0", 1, 9, True), ("5", 5, 5, False), ("1%", 1, 100, False), ("1%", 2, 100, True)],
)
def test_dead_letters_are_counted_against_their_limit(limit: str, dead: int, records: int, passed: bool) -> None:
    found = row_settings({**DEAD, "ingest.maxDeadLetters": limit}).max_dead_letters
    assert isinstance(found, DeadLetterLimit) and str(found) == limit
    assert found.is_exceeded(dead, records) == passed


def test_the_settings_of_a_registry_are_not_shown() -> None:
    settings = {"ingest.schema.registry.url": "http://r:8081", "ingest.schema.registry.basic.auth.user.info": "u:p"}
    check_names(settings)
    rows = row_settings(settings)
    assert dict(rows.registry) == {"url": "http://r:8081", "basic.auth.user.info": "u:p"}
    assert "u:p" not in repr(rows)


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        ({}, "orders-value"),
        ({"subject.name.strategy": "TopicNameStrategy"}, "orders-value"),
        ({"subject.name.strategy": "RecordNameStrategy", "message": "shop.Order"}, "shop.Order"),
        (
            {
                "subject.name.strategy": "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy",
                "message": "shop.Order",
            },
            "orders-shop.Order",
        ),
        ({"subject": "all orders"}, "all orders"),
        ({"subject": "{topic}-v"}, "orders-v"),
    ],
)
def test_the_subject_has_the_name_that_writers_give_it(given: dict[str, str], subject: str) -> None:
    record = {"type": "record", "name": "shop.Order", "fields": [{"name": "a", "type": "int"}]}
    with ScriptedRegistry() as registry:
        registry.versions[quote(subject, safe=""), "latest"] = {"schema": json.dumps(record)}
        settings = {**AVRO, "subscribe": "orders", "ingest.schema.registry.url": registry.url,
                    **{f"ingest.value.{name}": value for name, value in given.items()}}  # fmt: skip
        check_names(settings)
        (how,) = plan_topics(table_spec(settings), ["orders"], include_headers=False).values()
        assert len(registry.asked) == 1
    assert how.decoded.names[1] == "a"
    assert pickle.loads(pickle.dumps(how)) == how


def test_a_subject_that_is_not_of_a_topic_needs_no_topics_by_name() -> None:
    with ScriptedRegistry() as registry:
        registry.versions["s", "latest"] = {"schema": '"int"'}
        settings = {**AVRO, "subscribePattern": "o.*", "ingest.schema.registry.url": registry.url}
        (how,) = plan_topics(table_spec({**settings, "ingest.value.subject": "s"}), (), include_headers=False).values()
        assert how.is_resolved
        with pytest.raises(ConfigurationError, match="subscribe"):
            plan_topics(table_spec(settings), (), include_headers=False)


def test_headers_are_read_where_they_may_name_a_schema() -> None:
    given = {**JSON, "ingest.schema.registry.url": "http://r:8081"}
    place = "ingest.value.schema.id.deserializer"
    assert not plan_rows(table_spec(given), include_headers=False).needs_headers
    for mode, needed in ("PrefixSchemaIdDeserializer", False), ("DualSchemaIdDeserializer", True):
        how = plan_rows(table_spec({**given, place: mode}), include_headers=False)
        assert how.value.registered and how.needs_headers is needed
        settings = TaskSettings(Routing(TableSpec(""), (), rows={"": how}))
        assert (settings.added_to({}).get("includeHeaders") == "true") is needed


def test_names_like_ours_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"ingest\.value\.formt .*ingest\.value\.format"):
        check_names({"ingest.value.formt": "json"})


def test_a_proto_file_is_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "an order.proto"
    given = {"ingest.value.format": "protobuf", "ingest.value.schema": str(file), "ingest.value.message": "Order"}
    with pytest.raises(ConfigurationError, match=r"ingest\.value\.schema: .*an order\.proto .*No such file"):
        plan_rows(table_spec(given), include_headers=False)
    file.write_text("message {")
    with pytest.raises(ConfigurationError, match=r"ingest\.value\.schema: .*compiled"):
        plan_rows(table_spec(given), include_headers=False)
    file.write_text('syntax = "proto3"; message Order { int64 id = 1; }')
    assert plan_rows(table_spec(given), include_headers=False).decoded.names[:2] == ["key", "id"]


def test_an_avro_decimal_that_no_column_holds_is_refused_with_the_setting_that_helps() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 39}
    schema = {"type": "record", "name": "r", "fields": [{"name": "price", "type": price}]}
    given = {"ingest.value.format": "avro", "ingest.value.schema": orjson.dumps(schema).decode()}
    with pytest.raises(ConfigurationError, match=r"r\.price: .* at most 38\. Set ingest\.largeDecimals to string, "):
        plan_rows(table_spec(given), include_headers=False)
    assert plan_rows(table_spec({**given, "ingest.largeDecimals": "string"}), include_headers=False).decoded.field(
        "price"
    )


@pytest.mark.parametrize("kind", ["varchar(3)", "char(3)"])
def test_a_type_that_no_column_can_have_is_refused_with_what_to_write(kind: str) -> None:
    field = {"name": "v", "type": kind, "nullable": True, "metadata": {}}
    schema = orjson.dumps({"type": "struct", "fields": [field]}).decode()
    with pytest.raises(ConfigurationError, match=r"the type (VAR)?CHAR is not on the list.* write STRING"):
        plan_rows(table_spec({"ingest.value.format": "json", "ingest.value.schema": schema}), include_headers=False)


def test_rows_fit_to_a_table_with_columns_of_types_that_nobody_here_knows() -> None:
    how = plan_rows(table_spec({"ingest.value.format": "string"}), include_headers=False)
    fields = [
        {"name": "Value", "type": "string", "nullable": True, "metadata": {}},
        {"name": "place", "type": "of tomorrow", "nullable": True, "metadata": {}},
    ]
    assert fit_to_table(how, fields) == how

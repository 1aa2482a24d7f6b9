"""What the settings say of rows, without Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tiered_stream.delta.ingest_settings import TableFiles, as_options, check_names
from tiered_stream.delta.row_schema import plan_rows
from tiered_stream.delta.row_settings import DeadLetterLimit, registry_properties, row_settings
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.row_choices import Format, OnDecodeError

DEAD = {"ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": "lake.dead"}


def test_what_is_not_set_is_kafkas_records_as_they_are() -> None:
    found = row_settings({})
    assert (found.key_format, found.value_format, found.kafka_columns) == (Format.BINARY, Format.BINARY, None)
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
            {"ingest.key.format": "json", "ingest.key.schema": "registry"},
            "registry, which is for avro and protobuf, not for json",
        ),
        ({"ingest.key.format": "avro", "ingest.key.schema": "infer"}, "infer, which is for json alone, not for avro"),
        ({"ingest.onDecodeError": "deadLetter"}, "belong together"),
        ({"ingest.deadLetterTable": "lake.dead"}, "belong together"),
        ({"ingest.maxDeadLetters": "5%"}, "ingest.maxDeadLetters needs ingest.onDecodeError=deadLetter"),
        ({**DEAD, "ingest.maxDeadLetters": "few"}, "must be a number of records a micro-batch, or a percentage"),
        ({**DEAD, "ingest.maxDeadLetters": "101%"}, "must be at most 100%"),
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
    assert found.is_passed(dead, records) == passed


def test_the_settings_of_a_registry_travel_by_names_that_spark_redacts() -> None:
    settings = {"ingest.schema.registry.url": "http://r:8081", "ingest.schema.registry.basic.auth.user.info": "u:p"}
    check_names(settings)
    options = as_options(settings, TableFiles(""))
    assert registry_properties(options) == registry_properties(settings) == {
        "url": "http://r:8081", "basic.auth.user.info": "u:p",
    }  # fmt: skip
    shown = {name: value for name, value in options.items() if not re.search("(?i)secret|password|token", name)}
    assert "u:p" not in shown.values()


def test_names_like_ours_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="the nearest known one is ingest.value.format"):
        check_names({"ingest.value.formt": "json"})


def test_a_proto_file_is_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "an order.proto"
    given = {"ingest.value.format": "protobuf", "ingest.value.schema": str(file), "ingest.value.message": "Order"}
    with pytest.raises(ConfigurationError, match=r"ingest.value.schema: the file .*an order.proto cannot be read"):
        plan_rows(given, include_headers=False)
    file.write_text("message {")
    with pytest.raises(ConfigurationError, match=r"ingest.value.schema: a .proto file cannot be compiled"):
        plan_rows(given, include_headers=False)
    file.write_text('syntax = "proto3"; message Order { int64 id = 1; }')
    assert plan_rows(given, include_headers=False).decoded.names[:2] == ["key", "id"]

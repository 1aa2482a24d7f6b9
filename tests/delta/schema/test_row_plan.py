"""Columns of rows, as settings and schemas name them."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tiered_stream.delta.schema.row_plan import plan_rows, record_columns
from tiered_stream.delta.settings.ingest_settings import table_spec
from tiered_stream.errors import ConfigurationError

JSON = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT"}
KEY = {"ingest.key.format": "json", "ingest.key.schema": "payload STRUCT<id: BIGINT>"}
NONE = {"ingest.kafkaColumns": "none"}


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        (KEY | NONE, ["id"]),
        (KEY | {"ingest.kafkaColumns": "key"}, ["key", "id"]),
        (KEY | {"ingest.kafkaColumns": "offset"}, ["key", "id", "offset"]),
        (KEY | NONE | {"ingest.select": "key.payload.id AS key_id, id"}, ["key_id", "id"]),
        ({"ingest.key.format": "string"} | NONE | {"ingest.keys": "key", "ingest.mode": "upsert"}, ["key", "id"]),
        ({"ingest.key.format": "string"} | NONE, ["id"]),
    ],
)
def test_a_decoded_key_is_a_column_unless_no_column_of_kafkas_is_wanted(
    given: dict[str, str], columns: list[str]
) -> None:
    settings = JSON | given
    planned = plan_rows(table_spec(settings), include_headers=False)
    assert planned.written.names == columns
    recorded = record_columns(table_spec(settings))
    assert ("key" in recorded) == ("key" in columns and given["ingest.key.format"] == "string")


@pytest.mark.parametrize("name", ["a b", "a\n", "a\0", "\0a", "\0offset", "{a}"])
def test_a_field_that_cannot_be_a_column_is_refused_and_not_left_out(name: str) -> None:
    schema = orjson.dumps({"type": "object", "properties": {name: {"type": "integer"}}}).decode()
    with pytest.raises(ConfigurationError, match="cannot be a column of a Delta table") as refused:
        plan_rows(table_spec({"ingest.value.format": "json", "ingest.value.schema": schema}), include_headers=False)
    assert str(refused.value).isprintable()


def test_flattened_rows_need_a_schema_that_says_which_are_deletes() -> None:
    schema = orjson.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}).decode()
    settings = {"ingest.mode": "upsert", "ingest.keys": "id", "ingest.envelope": "flattened"}
    settings |= {"ingest.value.format": "json", "ingest.value.schema": schema}
    with pytest.raises(ConfigurationError, match="__deleted"):
        plan_rows(table_spec(settings), include_headers=False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.ddl", "`größe` BIGINT"),
        ("s.json", '{"type": "object", "properties": {"größe": {"type": "integer"}}}'),
    ],
)
def test_a_schema_file_may_begin_with_a_byte_order_mark(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_bytes(text.encode("utf-8-sig"))
    settings = NONE | {"ingest.value.format": "json", "ingest.value.schema": str(file)}
    assert plan_rows(table_spec(settings), include_headers=False).written.names == ["größe"]

"""Whether a decoded key is a column of the table."""

from __future__ import annotations

import pytest

from tiered_stream.delta.schema.row_plan import plan_rows, record_columns
from tiered_stream.delta.settings.ingest_settings import table_spec

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

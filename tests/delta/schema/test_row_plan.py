"""Columns of rows, as settings and schemas name them."""

from __future__ import annotations

import orjson
import pytest

from tiered_stream.delta.schema.row_plan import plan_rows
from tiered_stream.delta.settings.ingest_settings import table_spec
from tiered_stream.errors import ConfigurationError


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

"""Schemas of JSON that come from a table's columns, or from the first records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest
from pyspark.sql.types import StructType

from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream.delta.landing.inferred_schema import with_inferred
from tiered_stream.delta.requirements.lane import TableDescription
from tiered_stream.delta.settings.ingest_settings import table_spec
from tiered_stream.delta.settings.row_settings import PartSettings

VALUE = {"ingest.value.format": "json", "ingest.value.schema": "infer"}
KEY = {"ingest.key.format": "json", "ingest.key.schema": "infer"}


def described(columns: str) -> TableDescription:
    """Columns as `name: type` pairs of Spark, separated by commas."""
    pairs = (column.split(": ") for column in columns.split(", "))
    return TableDescription(tuple({"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in pairs))


def columns_of(part: PartSettings) -> str:
    return StructType.fromJson(orjson.loads(part.schema or "")).simpleString()


@pytest.mark.parametrize("day", ["day", "Day"])
def test_columns_of_kafka_and_of_the_day_are_no_fields_in_whatever_case_the_table_has_them(day: str) -> None:
    table = described(f"Topic: string, OFFSET: long, id: long, Name: string, {day}: date")
    found = with_inferred(table_spec({**VALUE, "ingest.dayColumn": "DAY"}), {}, table, include_headers=False)
    assert columns_of(found.rows.value) == "struct<id:bigint,Name:string>"


@pytest.mark.parametrize("settings", [KEY, {**VALUE, "ingest.value.columns": "document"}])
def test_records_give_the_schema_if_the_table_lacks_the_column(tmp_path: Path, settings: Mapping[str, str]) -> None:
    write_topic(tmp_path, "orders", [[Record(b'{"id": 1}', b'{"id": 2}')]])
    table = described("topic: string, id: long")
    found = with_inferred(table_spec(settings), topic_options(tmp_path, "orders"), table, include_headers=False)
    assert columns_of(found.rows.key if settings is KEY else found.rows.value) == "struct<id:bigint>"

"""Schemas that fit one record, which errors show."""

from __future__ import annotations

import orjson
import pytest
from pyspark.sql import SparkSession

from tiered_stream.formats.json.json_inference import MAX_CHARACTERS, fitting_schema

EVENT = {
    "before": None,
    "after": {"id": 1, "name": "a", "paid": True, "tags": ["x"], "price": 1.5, "odd name": None},
    "source": {"lsn": 7, "table": "orders"},
    "op": "c",
    "ts_ms": 5,
    "transaction": None,
}
IMAGE = "STRUCT<id BIGINT, name STRING, `odd name` STRING, paid BOOLEAN, price DOUBLE, tags ARRAY<STRING>>"
ENVELOPE = f"before {IMAGE}, after {IMAGE}, op STRING, ts_ms BIGINT"


@pytest.mark.parametrize("event", [EVENT, {**EVENT, "before": EVENT["after"], "after": None, "op": "d"}])
def test_an_envelope_has_the_same_columns_before_and_after(event: dict[str, object]) -> None:
    assert fitting_schema(orjson.dumps(event), is_debezium=True) == ENVELOPE


def test_a_document_with_its_schema_is_within_payload() -> None:
    document = orjson.dumps({"schema": {"type": "struct", "fields": []}, "payload": EVENT})
    assert fitting_schema(document, is_debezium=True) == f"payload STRUCT<{ENVELOPE}>"
    key = b'{"schema":{"type":"struct"},"payload":{"id":123456789012345678901}}'
    assert fitting_schema(key) == "payload STRUCT<id DECIMAL(21,0)>"


def test_spark_reads_the_schema(spark: SparkSession) -> None:
    document = orjson.dumps({"schema": {}, "payload": EVENT})
    assert spark.createDataFrame([], fitting_schema(document, is_debezium=True)).columns == ["payload"]


@pytest.mark.parametrize("document", [None, b"", b"no json", b"[1]", b"{}", b'{"payload":7}'[:-2], b'{"\\ud800":1}'])
def test_other_documents_have_no_schema(document: bytes | None) -> None:
    assert fitting_schema(document) == ""


def test_a_schema_that_is_too_long_to_read_is_not_shown() -> None:
    assert fitting_schema(orjson.dumps({f"field{number}": 1 for number in range(MAX_CHARACTERS)})) == ""

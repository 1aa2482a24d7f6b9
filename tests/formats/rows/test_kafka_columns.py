"""Where Kafka's columns are in rows."""

from __future__ import annotations

import pyarrow as pa

from tiered_stream.formats.rows.kafka_columns import find_column, hidden, marked, table_columns


def test_a_column_is_found_by_what_its_field_says_and_not_by_its_name() -> None:
    schema = pa.schema(
        [("offset", pa.string()), marked(pa.field("o", pa.int64()), "offset"), hidden("timestamp", pa.int64())]
    )
    assert [find_column(schema, name) for name in ("offset", "timestamp", "topic")] == [1, 2, -1]
    assert table_columns(schema).names == ["offset", "o"]


def test_without_such_fields_names_tell() -> None:
    schema = pa.schema([("offset", pa.int64())])
    assert (find_column(schema, "offset"), find_column(schema, "topic")) == (0, -1)
    assert table_columns(schema) is schema

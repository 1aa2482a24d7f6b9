"""Kafka's columns in rows that are on their way into a table: under any name, or hidden where the table has none.

A writer needs a row's offset, timestamp and topic, whatever the table makes of them. So a field that holds one of
Kafka's columns says so in its metadata.
"""

from __future__ import annotations

import pyarrow as pa

HIDDEN = "\0"
"""What the names of columns begin with that the table does not get."""
OFFSET, TIMESTAMP, TOPIC = "offset", "timestamp", "topic"
_MARK = b"kafka"


def marked(field: pa.Field, column: str) -> pa.Field:
    """The field, holding this column of Kafka's."""
    return field.with_metadata({_MARK: column.encode()})


def hidden(column: str, kind: pa.DataType) -> pa.Field:
    """The field of a column that the table does not get."""
    return marked(pa.field(HIDDEN + column, kind), column)


def find_column(schema: pa.Schema, column: str) -> int:
    """Where this column of Kafka's is; -1: nowhere. Where no field says what it holds, names do."""
    held = [(field.metadata or {}).get(_MARK) for field in schema]
    if any(held):
        return held.index(column.encode()) if column.encode() in held else -1
    found: int = schema.get_field_index(column)
    return found


def kafka_column(batch: pa.RecordBatch, column: str) -> pa.Array:
    """This column of Kafka's, which is there."""
    return batch.column(find_column(batch.schema, column))


def table_columns(schema: pa.Schema) -> pa.Schema:
    """What the table gets of it."""
    shown = [field for field in schema if not field.name.startswith(HIDDEN)]
    return schema if len(shown) == len(schema) else pa.schema(shown)

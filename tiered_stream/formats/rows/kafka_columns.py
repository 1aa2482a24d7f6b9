"""Kafka's columns in rows on their way into a table: under any name, or hidden if the table does not have them.

A writer needs a row's offset, timestamp and topic, even if the table has no columns for them. So a field that holds one
of Kafka's columns has the column's name in its metadata.
"""

from __future__ import annotations

import pyarrow as pa

HIDDEN = "\0"
"""Prefix of the names of columns that are not written to the table."""
OFFSET, TIMESTAMP, TOPIC = "offset", "timestamp", "topic"
_MARK = b"kafka"


def marked(field: pa.Field, column: str) -> pa.Field:
    """Return the field with the mark that it holds Kafka's column `column`."""
    return field.with_metadata({_MARK: column.encode()})


def hidden(column: str, kind: pa.DataType) -> pa.Field:
    """Return a field for Kafka's column `column` that is not written to the table."""
    return marked(pa.field(HIDDEN + column, kind), column)


def find_column(schema: pa.Schema, column: str) -> int:
    """Return the index of Kafka's column `column`, or -1. If no field is marked, fields are found by their names."""
    held = [(field.metadata or {}).get(_MARK) for field in schema]
    if any(held):
        return held.index(column.encode()) if column.encode() in held else -1
    index: int = schema.get_field_index(column)
    return index


def kafka_column(batch: pa.RecordBatch, column: str) -> pa.Array:
    """Return Kafka's column `column`, which must be in the batch."""
    return batch.column(find_column(batch.schema, column))


def table_columns(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the hidden columns, as it is written to the table."""
    shown = [field for field in schema if not field.name.startswith(HIDDEN)]
    return schema if len(shown) == len(schema) else pa.schema(shown)

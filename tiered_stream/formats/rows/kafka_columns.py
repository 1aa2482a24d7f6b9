"""Kafka's columns in rows that will be written to a table, where they may have other names or be missing.

A writer needs a row's offset, timestamp and topic, even if the table has no columns for them. A field that holds a
Kafka column has Kafka's name of the column in its metadata. A Kafka column that the table lacks is hidden: the rows
have the column, but it is not written to the table.
"""

from __future__ import annotations

import pyarrow as pa

HIDDEN = "\0"
"""Prefix of the names of columns that are not written to the table."""
OFFSET, TIMESTAMP, TOPIC = "offset", "timestamp", "topic"
FIRST_OFFSET = "first offset"
"""Hidden column of rows from a user's function: the lowest offset of the records that the row may be made of."""
_MARK = b"kafka"


def marked(field: pa.Field, column: str) -> pa.Field:
    """Return `field` with metadata that names `column` as the Kafka column that the field holds."""
    return field.with_metadata({_MARK: column.encode()})


def hidden(column: str, kind: pa.DataType) -> pa.Field:
    """Return a field for Kafka's column `column` that is not written to the table."""
    return marked(pa.field(HIDDEN + column, kind), column)


def held_column(field: pa.Field) -> str | None:
    """Return the name of the Kafka column in the field's metadata (set by `marked`), or None if there is none."""
    held: bytes | None = (field.metadata or {}).get(_MARK)
    return None if held is None else held.decode()


def find_column(schema: pa.Schema, column: str) -> int:
    """Return the index of the field in `schema` that holds Kafka's column `column`, or -1 if there is none.

    The metadata that `marked` sets decides. If no field has this metadata, the name `column` is searched for.
    """
    held = [held_column(field) for field in schema]
    if any(held):
        return held.index(column) if column in held else -1
    index: int = schema.get_field_index(column)
    return index


def kafka_column(batch: pa.RecordBatch, column: str) -> pa.Array:
    """Return the array of the field in `batch` that holds Kafka's column `column`; there must be such a field."""
    return batch.column(find_column(batch.schema, column))


def table_columns(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the hidden columns, as it is written to the table."""
    shown = [field for field in schema if not field.name.startswith(HIDDEN)]
    return schema if len(shown) == len(schema) else pa.schema(shown)

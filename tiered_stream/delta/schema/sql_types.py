"""Types of columns as SQL text, as Arrow types and in Spark's JSON, independent of `spark.sql.timestampType`.

In a schema's text, TIMESTAMP means an instant, and TIMESTAMP_NTZ a local time. By `spark.sql.timestampType`, a session
can make Spark's parser read TIMESTAMP as a local time. Then a table's types would depend on the session that creates
the table, so the functions here do not follow this setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampType

from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.table_rules import ELEMENT, MAP_KEY, MAP_VALUE

_INSTANTS = "TIMESTAMP_LTZ"
"""SQL name of the type for instants, which no setting changes; also the default value of `spark.sql.timestampType`."""


def sql_type(kind: DataType) -> str:
    """Return a Spark type as SQL text, such as `ARRAY<BIGINT>`."""
    match kind:
        case TimestampType():
            return _INSTANTS
        case ArrayType():
            return f"ARRAY<{sql_type(kind.elementType)}>"
        case MapType():
            return f"MAP<{sql_type(kind.keyType)}, {sql_type(kind.valueType)}>"
        case StructType():
            return f"STRUCT<{', '.join(map(_field, kind))}>"
    return kind.simpleString().upper()


def sql_columns(schema: StructType) -> str:
    """Return the columns as SQL text for `CREATE TABLE`: names, types and NOT NULL, without parentheses around them."""
    return ", ".join(f"{sql_name((column.name,))} {sql_type(column.dataType)}{_null(column)}" for column in schema)


def sql_name(path: Sequence[str]) -> str:
    """Return the quoted SQL name of a column, of a nested field given by its path, or of a table given by its parts.

    Raises:
        ConfigurationError: a name has `${`. In SQL, also within quotes, Spark replaces `${…}` by the value of a setting
            or environment variable (Spark: `VariableSubstitution`). No escape prevents this in a name.
    """
    if found := next((name for name in path if "${" in name), None):
        raise ConfigurationError(
            f"the name {found!r:.300} has ${{, which begins a variable in Spark's SQL: give another name, for a field "
            "of values by ingest.transform"
        )
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)


def sql_text(text: str) -> str:
    """Return the text as a string literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")  # no variable: `sql_name`
    return f"'{escaped}'"


def _field(field: StructField) -> str:
    return f"{sql_name((field.name,))}: {sql_type(field.dataType)}{_null(field)}"


def _null(field: StructField) -> str:
    return "" if field.nullable else " NOT NULL"


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema to which Spark converts these columns; instants get the time zone UTC."""
    # Before Spark 4.2, the function has no such argument, and gives instants UTC.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


# Types in Spark's JSON, as Delta's log has them: a text, or a dict for a struct, an array or a map.

_ITEMS = (
    (ELEMENT, "elementType", "containsNull"),
    (MAP_KEY, "keyType", None),
    (MAP_VALUE, "valueType", "valueContainsNull"),
)
"""Inner types of arrays and maps: the name of each inner type in a path, and two keys of Spark's JSON.

The value of the first key is the inner type. The value of the second key says if the inner type may be null; None: the
JSON does not say it for keys of maps.
"""


def inner_fields(kind: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of a struct, or the inner types of an array or a map as fields; all are in Spark's JSON.

    The fields of an array or map are called `element`, `key` and `value`. A map's keys count as nullable. Nothing is
    yielded for a type without inner types.
    """
    if isinstance(kind, dict):
        yield from kind.get("fields", ())
        for step, name, nullable in _ITEMS:
            if name in kind:
                yield {"name": step, "type": kind[name], "nullable": kind.get(nullable, True), "metadata": {}}


def parts_of(kind: Any) -> Iterator[Any]:
    """Yield the type `kind`, which is in Spark's JSON, and all types nested in it at any depth."""
    yield kind
    for field in inner_fields(kind):
        yield from parts_of(field["type"])


def common_fields(one: Any, other: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the fields that two types in Spark's JSON have in common, as pairs of the field of `one` and of `other`.

    Names are compared without regard to case. The inner types of arrays and maps count as fields (`inner_fields`).
    Nothing is yielded unless the two types are both structs, both arrays or both maps.
    """
    if not isinstance(one, dict) or not isinstance(other, dict) or one["type"] != other["type"]:
        return
    known = {field["name"].lower(): field for field in inner_fields(one)}
    for field in inner_fields(other):
        if (same := known.get(field["name"].lower())) is not None:
            yield same, field


def struct_of(fields: Any) -> dict[str, Any]:
    """Return a struct type with the fields `fields`; the type and the fields are in Spark's JSON."""
    return {"type": "struct", "fields": list(fields)}

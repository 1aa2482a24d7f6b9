"""Checks for local times (TIMESTAMP_NTZ): in maps, where `deltalake` overlooks them, and mixed up with instants.

Local times need a table feature. deltalake adds the feature for columns, lists and structs, but not for maps, and then
refuses the table. So columns with local times in maps are added once the table has the feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import orjson
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampNTZType

from tiered_stream.delta.schema.json_types import common_fields, struct_of
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.nested_columns import FieldPath

LOCAL_TIMES = "timestampNtz"
"""Name of the table feature that local times need."""
_TIMES = {"timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ"}
"""SQL types by their names in Spark's JSON: an instant, and a local time."""


def made_first(schema: StructType, day_column: str | None) -> tuple[StructType, StructType]:
    """Split the schema into columns for creating the table, and columns to add later (local times in maps).

    The order of columns is kept if possible.
    """
    hidden = [each for each in schema if hides_local_times(each)]
    first = list(takewhile(lambda each: each not in hidden, schema))
    if hidden and (not first or day_column not in (None, *(each.name for each in first))):
        first = [each for each in schema if each not in hidden]
    if not first:  # a table needs a column; deltalake then raises an error for the whole schema
        return schema, StructType()
    return StructType(first), StructType([each for each in schema if each not in first])


def hides_local_times(field: StructField) -> bool:
    """Return whether a map anywhere in the column contains local times (TIMESTAMP_NTZ)."""
    return any(_has_local_times(kind) for kind in parts_of(field.dataType) if isinstance(kind, MapType))


def _has_local_times(kind: DataType) -> bool:
    return any(isinstance(each, TimestampNTZType) for each in parts_of(kind))


def parts_of(kind: DataType) -> Iterator[DataType]:
    """Yield the type and all types nested in it."""
    yield kind
    inner: list[DataType] = []
    match kind:
        case StructType():
            inner = [each.dataType for each in kind]
        case ArrayType():
            inner = [kind.elementType]
        case MapType():
            inner = [kind.keyType, kind.valueType]
    for each in inner:
        yield from parts_of(each)


def check_times(table: str, fields: Sequence[Mapping[str, Any]], written: StructType) -> None:
    """Check that instants are written to columns of instants, and local times to columns of local times.

    Spark's Delta sink would convert between them by the session's time zone. `fields` are the table's, in Spark's JSON.

    Raises:
        ConfigurationError: a column mixes the two kinds; the error names it.
    """
    for path, there, here in _other_times(struct_of(fields), orjson.loads(written.json())):
        raise ConfigurationError(
            f"the table {table} has {'.'.join(path)} as {there}, but it is {here} in what is written: land in another "
            f"table, or write {there} in the schema (a local time has no time zone)"
        )


def _other_times(there: Any, here: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, str, str]]:
    """Yield path, the table's type and the written type, in SQL, of each field that mixes the two kinds of times."""
    if isinstance(there, str) and isinstance(here, str) and there != here and {there, here} <= _TIMES.keys():
        yield path, _TIMES[there], _TIMES[here]
    for known, field in common_fields(there, here):
        yield from _other_times(known["type"], field["type"], (*path, known["name"]))

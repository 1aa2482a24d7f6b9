"""Two precautions for columns with local times (TIMESTAMP_NTZ).

1. Local times need a table feature. deltalake adds the feature for local times in columns, lists and structs. It
   overlooks local times in maps, and then refuses to create the table without the feature. So columns with local times
   in maps are added after the table has got the feature (`columns_for_creation`).
2. Spark's Delta sink would convert local times to instants, or the reverse. `check_times` raises an error instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from pyspark.sql.types import StructField, StructType

from tiered_stream.delta.schema.sql_types import common_fields, parts_of, struct_of
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.nested_columns import FieldPath

LOCAL_TIMES = "timestampNtz"
"""Name of the table feature that local times need."""
_TIMES = {"timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ"}
"""SQL types by their names in Spark's JSON: an instant, and a local time."""


def columns_for_creation(schema: StructType, day_column: str | None) -> tuple[StructType, StructType]:
    """Split `schema` into the columns with which the table is created, and the columns to add afterwards.

    The first column with local times in a map and all columns after it are added afterwards, so that the order of the
    columns is kept. If then the table would be created without any column, or without the day column, only columns with
    local times in maps are added afterwards. If all columns have local times in maps, no column is added afterwards.
    """
    hidden = [column for column in schema if hides_local_times(column)]
    first = list(takewhile(lambda column: column not in hidden, schema))
    if hidden and (not first or day_column not in (None, *(column.name for column in first))):
        first = [column for column in schema if column not in hidden]
    if not first:  # a table needs a column; deltalake then raises an error for the whole schema
        return schema, StructType()
    return StructType(first), StructType([column for column in schema if column not in first])


def hides_local_times(field: StructField) -> bool:
    """Return whether a map anywhere in the column contains local times (TIMESTAMP_NTZ)."""
    parts = parts_of(field.dataType.jsonValue())
    return any("timestamp_ntz" in parts_of(part) for part in parts if isinstance(part, dict) and part["type"] == "map")


def check_times(table: str, fields: Sequence[Mapping[str, Any]], written: StructType) -> None:
    """Check that instants are written to columns of instants, and local times to columns of local times.

    Spark's Delta sink would convert a local time to an instant, or the reverse, by the session's time zone. `fields`
    are the columns of the table `table`, in Spark's JSON. `written` are the columns of the rows.

    Raises:
        ConfigurationError: a field is an instant in the table and a local time in the rows, or the reverse.
    """
    for path, table_type, written_type in _other_times(struct_of(fields), written.jsonValue()):
        raise ConfigurationError(
            f"the table {table} has {'.'.join(path)} as {table_type}, but it is {written_type} in what is written: "
            f"land in another table, or write {table_type} in the schema (a local time has no time zone)"
        )


def _other_times(table_type: Any, written_type: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, str, str]]:
    """Yield each field that is an instant in one of the two types and a local time in the other.

    A field is yielded as its path, its SQL type in the table, and its SQL type in the rows.
    """
    if {str(table_type), str(written_type)} == _TIMES.keys():
        yield path, _TIMES[table_type], _TIMES[written_type]
    for known, field in common_fields(table_type, written_type):
        yield from _other_times(known["type"], field["type"], (*path, known["name"]))

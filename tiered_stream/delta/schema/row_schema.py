"""Columns of tables in Arrow and in Spark: conversions, and checks of new columns, of SQL and of local times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import takewhile
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructField, StructType

from tiered_stream.delta.schema.row_plan import FORBIDDEN, checked
from tiered_stream.delta.schema.sql_types import arrow_schema, common_fields, inner_fields, parts_of, struct_of
from tiered_stream.delta.settings.ingest_settings import COLUMN_MAPPING, PROPERTY_PREFIX
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.columns.conform import grown, joined
from tiered_stream.formats.rows.kafka_columns import table_columns
from tiered_stream.formats.rows.row_format import KEY, VALUE, RowFormat
from tiered_stream.formats.rows.table_rules import FieldPath
from tiered_stream.formats.sql.parser import STRING, SqlQuery, Tree


def time_zone(spark: SparkSession) -> str:
    """Return the session's time zone, which applies to times in keys and values that name no zone; default: UTC."""
    return spark.conf.get("spark.sql.session.timeZone", None) or "UTC"


def shared_columns(rows: Iterable[RowFormat], day_column: str | None) -> StructType:
    """Return the columns of a table that takes rows of all these formats, then `day_column` unless it is None.

    A column whose type differs between formats has the type of the first format.
    """
    return spark_columns(_reduced((row_format.written for row_format in rows), grown), day_column)


def joined_columns(schemas: Iterable[StructType]) -> StructType:
    """Return the columns of a table that takes rows of all `schemas`.

    The schemas must have grown from one schema by new fields and wider types.

    Raises:
        UnsupportedDataError: a number has become wider in two ways, so that no type holds both.
    """
    return spark_columns(_reduced(map(arrow_schema, schemas), joined), None)


def _reduced(schemas: Iterable[pa.Schema], by: Callable[[pa.DataType, pa.DataType], pa.DataType]) -> pa.Schema:
    return pa.schema(list(reduce(by, (pa.struct(list(schema)) for schema in schemas))))


def check_new_columns(
    columns: StructType, properties: Mapping[str, str] = MappingProxyType({}), path: str = ""
) -> None:
    """Check that Delta accepts the fields of all structs in new columns, at any depth.

    Args:
        columns: the struct of the new columns. Characters in the names of the new columns themselves are not checked
            here, but by `plan_rows`, unless `path` is given.
        properties: the table's properties, by name.
        path: path of the struct `columns` in the table; '' for columns of the table.

    Raises:
        ConfigurationError: Delta refuses a field, which the error names.
    """
    is_mapped = properties.get(COLUMN_MAPPING, "none").lower() != "none"
    _check_fields(columns.jsonValue(), path, is_mapped=is_mapped, in_items=False)


def _check_fields(kind: Any, path: str, *, is_mapped: bool, in_items: bool) -> None:
    """Check the fields inside the type `kind`, which is in Spark's JSON and has the path `path`.

    `is_mapped` is true if the table has column mapping, which allows all names. `in_items` is true if `kind` is inside
    a list or a map, where Delta refuses NOT NULL.
    """
    is_struct = isinstance(kind, dict) and kind["type"] == "struct"
    seen: set[str] = set()
    for field in inner_fields(kind):
        name = f"{path}.{field['name']}" if path else field["name"]
        if is_struct and path and not is_mapped and FORBIDDEN.search(field["name"]):
            raise ConfigurationError(
                f"{name!r:.100} cannot be a field in a Delta table: blanks and ,;{{}}()= are not allowed in its "
                f"name. Rename it by ingest.transform, or give a new table {PROPERTY_PREFIX}{COLUMN_MAPPING}=name"
            )
        if field["name"].lower() in seen:
            raise ConfigurationError(
                f"{name!r:.100} is in its struct twice, since Delta heeds no case: rename one by ingest.transform"
            )
        if is_struct and in_items and not field["nullable"]:
            raise ConfigurationError(
                f"{name} is NOT NULL, which Delta refuses within lists and maps: take NOT NULL away"
            )
        seen.add(field["name"].lower())
        _check_fields(field["type"], name, is_mapped=is_mapped, in_items=in_items or not is_struct)


def struct_type(fields: Iterable[Mapping[str, Any]]) -> StructType:
    """Return the struct type of columns that are given in Spark's JSON."""
    return StructType.fromJson(struct_of(fields))


def fit_to_table(row_format: RowFormat, fields: Sequence[Mapping[str, Any]]) -> RowFormat:
    """Return the row format with the table's types, where the table has wider numbers or more fields in a struct.

    `fields` are the table's columns in Spark's JSON. If `fields` is empty, or the row format has a transform or
    selects columns, the row format is returned unchanged.

    If the table has key columns and each value names its schema, the values also get the table's columns that the
    newest schema lacks. Values of older schemas may have these fields.
    """
    if not fields or row_format.transform or row_format.selected is not None:
        return row_format
    decoded = {name.lower() for name in row_format.decoded.names}
    known = [field for field in fields if field["name"].lower() in decoded]
    table = arrow_schema(struct_type(known))
    kinds = {column.name.lower(): column.type for column in table}
    key, value = row_format.key, row_format.value
    adds = bool(row_format.keys) and value.registered
    if value.kind is not None and pa.types.is_struct(value.kind):  # a field may be decoded without a column of its own
        decoded |= {column.name.lower() for column in value.kind}
    older = [column for field in fields if adds and field["name"].lower() not in decoded for column in _columns(field)]
    if key.kind is not None and KEY in kinds:
        key = replace(key, kind=grown(key.kind, kinds[KEY], widen=True))
    if value.kind is not None and row_format.struct_column is None and pa.types.is_struct(value.kind):
        columns = [
            (column.name, grown(column.type, kinds.get(column.name.lower(), column.type), widen=True))
            for column in value.kind
        ]
        value = replace(value, kind=pa.struct([*columns, *older]))
    elif value.kind is not None and (name := (row_format.struct_column or VALUE).lower()) in kinds:
        value = replace(value, kind=grown(value.kind, kinds[name], widen=True))
    fitted = replace(row_format, key=key, value=value)
    return fitted if row_format.query is None else checked(fitted)


def _columns(field: Mapping[str, Any]) -> pa.Schema:
    """Return an Arrow schema with the table's column `field`, or an empty one if its type has no Arrow type."""
    try:
        return arrow_schema(struct_type([field]))
    except (PySparkException, ValueError, KeyError):
        return pa.schema([])


def spark_columns(schema: pa.Schema, day_column: str | None) -> StructType:
    """Return the Spark schema of the Arrow columns, then `day_column` unless it is None.

    Hidden columns, which are not written to the table, are left out.
    """
    bare = pa.schema([(column.name, column.type) for column in table_columns(schema)])
    return with_day(from_arrow_schema(bare, prefer_timestamp_ntz=True), day_column)


def with_day(columns: StructType, day_column: str | None) -> StructType:
    """Return the columns, then a column `day_column` of type DATE unless it is None."""
    return StructType([*columns, StructField(day_column, DateType())]) if day_column else columns


# `ingest.select` and `ingest.where` by Spark's SQL: in the Spark lane, and to check at the start what Spark reads.


def queried(rows: DataFrame, query: SqlQuery, kept: Iterable[str] = ()) -> DataFrame:
    """Return the rows and columns that `query` selects from `rows`, and then the columns `kept`, by Spark's SQL."""
    names = [name for name in rows.columns if name not in set(kept)]
    if query.where is not None:
        rows = rows.where(query.where_text)
    if not query.select:
        return rows
    items = ([item.text] if item.tree is not None else map(_quoted, names) for item in query.select)
    return rows.selectExpr(*(text for texts in items for text in texts), *map(_quoted, kept))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _has_quote(tree: Tree) -> bool:
    return (tree.op == STRING and "'" in tree.text) or any(map(_has_quote, tree.args))


def check_by_spark(spark: SparkSession, row_format: RowFormat) -> None:
    """Check that `ingest.select` and `ingest.where` of a row format give the same columns in Spark's SQL as in tasks.

    Raises:
        ConfigurationError: Spark refuses the SQL, or gives columns with other names or types.
    """
    if row_format.query is None or not row_format.is_resolved:
        return
    query = row_format.query
    trees = [item.tree for item in query.select if item.tree is not None] + ([query.where] if query.where else [])
    if any(map(_has_quote, trees)) and spark.sql("SELECT 'it''s'").columns != ["it's"]:
        raise ConfigurationError(
            "two single quotes within a text stand for no quote in this session: set "
            "spark.sql.legacy.consecutiveStringLiterals.enabled=false"
        )
    written = spark_columns(row_format.written, None)
    decoded = spark.createDataFrame([], spark_columns(row_format.decoded, None))
    given = "ingest.select" if query.select else "ingest.where"
    try:
        by_spark = queried(decoded, query).schema
    except PySparkException as error:
        line = str(error).strip().partition("\n")[0]
        raise ConfigurationError(f"Spark refuses {given}: {line:.500}") from error
    columns, ours = ([(each.name, each.dataType) for each in one] for one in (by_spark, written))
    if columns != ours:
        one, other = next(pair for pair in zip(columns, ours, strict=True) if pair[0] != pair[1])
        raise ConfigurationError(
            f"{given} gives {one[0]} {one[1].simpleString()} in Spark, and {other[0]} {other[1].simpleString()} in the "
            "direct lane, by a setting of the session: give the type by CAST"
        )


# Two precautions for columns with local times (TIMESTAMP_NTZ).
#
# 1. Local times need a table feature. deltalake adds the feature for local times in columns, lists and structs. It
#    overlooks local times in maps, and then refuses to create the table without the feature. So columns with local
#    times in maps are added after the table has got the feature (`columns_for_creation`).
# 2. Spark's Delta sink would convert local times to instants, or the reverse. `check_times` raises an error instead.

LOCAL_TIMES = "timestampNtz"
"""Name of Delta's table feature for columns with local times (TIMESTAMP_NTZ)."""
_TIMES = {"timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ"}
"""SQL types by their names in Spark's JSON: an instant, and a local time."""


def columns_for_creation(schema: StructType, day_column: str | None) -> tuple[StructType, StructType]:
    """Split `schema` into the columns with which deltalake creates a table, and the columns to add afterwards.

    The first column with local times (TIMESTAMP_NTZ) in a map and all columns after it are added afterwards, which
    keeps the order of the columns. If then the table would be created without any column, or without the day column,
    only columns with local times in maps are added afterwards. If all columns have local times in maps, no column is
    added afterwards.
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

"""Schema evolution: commits that add columns and nested fields to a table, or widen columns, before rows are committed.

New columns are null in rows of older files. If two queries need the same new column, only the first query adds it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.catalog.java_errors import spark_errors
from tiered_stream.delta.commit.commit_library import lock_for_deltalake
from tiered_stream.delta.requirements.writer_requirements import is_wider
from tiered_stream.delta.schema.row_schema import check_new_columns, struct_type
from tiered_stream.delta.schema.sql_types import sql_name, sql_type
from tiered_stream.delta.settings.ingest_settings import COMMIT_BY_SPARK, TableSpec
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.formats.rows.row_choices import Evolution

log = logging.getLogger(__name__)

FieldPath = tuple[str, ...]
_TypedPath = tuple[FieldPath, DataType]
Grow = Callable[[Sequence[Mapping[str, Any]], StructType], bool]
"""Function that adds the columns and nested fields of a schema that a table lacks, or widens columns of the table.

Arguments are the table's columns in Spark's JSON, and the schema. The function returns whether it changed the table.
"""


def growth_of(spark: SparkSession, address: TableAddress, spec: TableSpec, by: str) -> Grow | None:
    """Return a function that adds columns to the table, and widens columns, as `ingest.schemaEvolution` allows.

    The library `by`, which commits, adds columns. Spark widens columns, whichever library commits. The function raises
    TableError if the table refuses the columns. None is returned if the columns never change.
    """
    evolution = spec.rows.schema_evolution

    def grow(fields: Sequence[Mapping[str, Any]], schema: StructType) -> bool:
        table = struct_type(fields)
        paths = list(_missing_or_leaf_fields(table, schema, ()))
        missing = [(path, kind) for path, old, kind in paths if old is None]
        widens = evolution is Evolution.WIDEN
        wider = [(path, kind) for path, old, kind in paths if widens and old is not None and is_wider(kind, old)]
        if missing:
            _check_names(address, missing)
            log.info("%s: new columns: %s", address, _names(missing))
            _add(missing, schema)
        if wider:
            log.info("%s: wider columns: %s", address, _names(wider))
            _widen(spark, address, wider)
        return bool(missing or wider)

    def _add(missing: Sequence[_TypedPath], schema: StructType) -> None:
        if by == COMMIT_BY_SPARK:
            columns = ", ".join(f"{sql_name(path)} {sql_type(kind)}" for path, kind in missing)
            with spark_errors(str(address), "changed"):
                spark.sql(f"ALTER TABLE {address.sql_name} ADD COLUMNS ({columns})")
        else:
            from tiered_stream.delta.commit.deltalake_commit import add_columns

            tops = {path[0].lower() for path, _ in missing}
            added = StructType([field for field in schema if field.name.lower() in tops])
            add_columns(spec, added, lock_for_deltalake(spark, address, spec))

    return None if evolution is Evolution.NONE else grow


def _check_names(address: TableAddress, missing: Sequence[_TypedPath]) -> None:
    """Raise TableError if Delta refuses one of the new fields `missing`; deltalake would add the field anyway."""
    try:
        for path, kind in missing:
            check_new_columns(StructType().add(path[-1], kind), path=".".join(path[:-1]))
    except ConfigurationError as error:
        raise TableError(f"the table {address} cannot be changed: {error}") from error


def _widen(spark: SparkSession, address: TableAddress, wider: Sequence[_TypedPath]) -> None:
    with spark_errors(str(address), "changed"):
        for path, kind in wider:
            spark.sql(f"ALTER TABLE {address.sql_name} ALTER COLUMN {sql_name(path)} TYPE {sql_type(kind)}")


def _missing_or_leaf_fields(
    table: DataType, schema: DataType, path: FieldPath
) -> Iterator[tuple[FieldPath, DataType | None, DataType]]:
    """Yield the path and both types of each field of `schema` that `table` lacks, or that has no inner fields in both.

    The first type is the field's type in `table`, or None if `table` lacks the field. The second type is the field's
    type in `schema`. In a path, `element` stands for the elements of a list, and `value` for the values of a map, as in
    Delta. Inner fields of a missing field are not yielded.
    """
    match table, schema:
        case StructType(), StructType():
            known = {field.name.lower(): field for field in table}
            for field in schema:
                if (old := known.get(field.name.lower())) is None:
                    yield (*path, field.name), None, field.dataType
                else:
                    yield from _missing_or_leaf_fields(old.dataType, field.dataType, (*path, old.name))
        case ArrayType(), ArrayType():
            yield from _missing_or_leaf_fields(table.elementType, schema.elementType, (*path, "element"))
        case MapType(), MapType():
            yield from _missing_or_leaf_fields(table.valueType, schema.valueType, (*path, "value"))
        case (StructType() | ArrayType() | MapType(), _) | (_, StructType() | ArrayType() | MapType()):
            pass
        case _:
            yield path, table, schema


def _names(fields: Sequence[_TypedPath]) -> str:
    return ", ".join(".".join(path) for path, _ in fields)

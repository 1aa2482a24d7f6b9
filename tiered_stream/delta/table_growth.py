"""Columns and nested fields that a table gets more (`ingest.schemaEvolution=add`), by a commit before the rows.

A reader finds them null in older files. Two queries may add the same: who comes second finds it there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tiered_stream.delta.address import TableAddress
from tiered_stream.delta.committer import Committer
from tiered_stream.delta.ingest_settings import COMMIT_BY_SPARK, TableFiles
from tiered_stream.delta.java_errors import spark_errors

log = logging.getLogger(__name__)

FieldPath = tuple[str, ...]
Grow = Callable[[Sequence[Mapping[str, Any]], StructType], bool]
"""Gives the table what it lacks of a schema, its fields being these; whether it lacked anything."""


def growth_of(spark: SparkSession, address: TableAddress, files: TableFiles, committer: Committer) -> Grow:
    """By whoever commits to the table. It raises TableError: the table refuses the columns."""

    def grow(fields: Sequence[Mapping[str, Any]], wanted: StructType) -> bool:
        there = StructType.fromJson({"type": "struct", "fields": list(fields)})
        missing = list(missing_fields(there, wanted))
        if not missing:
            return False
        log.info("%s: new columns: %s", address, ", ".join(".".join(path) for path, _ in missing))
        if committer.by == COMMIT_BY_SPARK:
            columns = ", ".join(f"{_sql_name(path)} {kind.simpleString()}" for path, kind in missing)
            with spark_errors(str(address), "changed"):
                spark.sql(f"ALTER TABLE {address.sql_name} ADD COLUMNS ({columns})")
        else:
            from tiered_stream.delta.deltalake_commit import add_columns

            tops = {path[0] for path, _ in missing}
            add_columns(files, StructType([field for field in wanted if field.name in tops]))
        return True

    return grow


def missing_fields(there: DataType, wanted: DataType, path: FieldPath = ()) -> Iterator[tuple[FieldPath, DataType]]:
    """The fields of `wanted` that are not there, each with its path; those of lists and maps too (Delta: `element`)."""
    match there, wanted:
        case StructType(), StructType():
            known = {field.name.lower(): field for field in there}
            for field in wanted:
                if (old := known.get(field.name.lower())) is None:
                    yield (*path, field.name), field.dataType
                else:
                    yield from missing_fields(old.dataType, field.dataType, (*path, field.name))
        case ArrayType(), ArrayType():
            yield from missing_fields(there.elementType, wanted.elementType, (*path, "element"))
        case MapType(), MapType():
            yield from missing_fields(there.valueType, wanted.valueType, (*path, "value"))


def _sql_name(path: FieldPath) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)

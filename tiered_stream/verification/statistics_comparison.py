"""Comparison of the statistics in a Delta table's log with the rows of the files, for the function `verify`.

Readers skip files by these statistics (Delta protocol: "Per-file Statistics"), so wrong statistics hide rows. A
comparison that reads the table without a filter does not find wrong statistics. Files with a deletion vector are left
out, because their statistics also cover rows that are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as sql

from tiered_stream.delta.catalog.address import find_address
from tiered_stream.delta.catalog.java_errors import spark_errors
from tiered_stream.delta.commit.delta_spark_commit import DeltaSparkTable, DeltaSparkTransaction, has_delta_spark
from tiered_stream.delta.schema.row_schema import struct_type
from tiered_stream.delta.schema.sql_types import sql_name, sql_text
from tiered_stream.errors import ConfigurationError
from tiered_stream.spark.session import is_connect
from tiered_stream.verification.verify_report import ComparedStatistics, WrongStatistic

MAX_FILES, MAX_BYTES = 1000, 4 << 30
"""Maximum number of files whose statistics are compared, and their maximum size in bytes. The newest files are chosen.

If the newest file is larger, it alone is compared.
"""
NAMED = 5
"""Maximum number of wrong statistics that a report names."""
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_READ = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED", "__globPaths__": "false"}
"""Options with which Spark reads dates and times unchanged from Parquet files, and does not take paths as patterns."""
_TIMES = (types.TimestampType, types.TimestampNTZType)
_BOUNDED = (types.NumericType, types.StringType, types.DateType, types.BooleanType, *_TIMES)
_BOUNDS = ("minValues", "maxValues")
_NULLS = "nullCount"
_Leaf = tuple[tuple[str, ...], types.DataType]
"""Path and type of a column, or of a nested field, that is not a struct. The path has the names from the outside in."""


def check_statistics(spark: SparkSession, table: str, *, repair: bool = False) -> ComparedStatistics:
    """Compare the statistics of the table's newest files with the files' rows, and return the result.

    No file is compared if the session gives no access to the table's log (without delta-spark, or with Spark Connect).
    If `repair` is true, and a statistic is wrong, Delta computes the statistics of all files again, in one commit.

    Raises:
        ConfigurationError: the session gives no access to the log, and `repair` is true.
        TableError: Spark cannot read the table, or cannot commit to it.
    """
    if is_connect(spark) or not has_delta_spark(spark):
        if repair:
            raise ConfigurationError(
                f"the session gives no access to the log of the table {table}, so its statistics cannot be repaired: "
                "take a session of Spark with delta-spark (conf/spark-defaults.conf), and not Spark Connect"
            )
        return ComparedStatistics()
    found = DeltaSparkTable(spark, find_address(spark, table))
    with spark_errors(table, "read"):
        compared = _compared(spark, found.begin())
    if not repair or not compared.wrong:
        return compared
    found.compute_statistics()
    with spark_errors(table, "read"):
        return replace(_compared(spark, found.begin()), repaired=True)


def _compared(spark: SparkSession, transaction: DeltaSparkTransaction) -> ComparedStatistics:
    files = transaction.files().where("stats IS NOT NULL")
    order = "OVER (ORDER BY modificationTime DESC, path"
    ranked = files.where("deletionVector IS NULL").selectExpr(
        "path", "stats", f"row_number() {order}) AS number", f"sum(size) {order} ROWS UNBOUNDED PRECEDING) AS bytes"
    )
    chosen = ranked.where(f"number <= {MAX_FILES} AND (number = 1 OR bytes <= {MAX_BYTES})")
    rows = chosen.select("path", "stats").collect()
    skipped = files.count() - len(rows)
    if not rows:
        return ComparedStatistics(skipped=skipped)
    leaves = list(_named_leaves(struct_type(transaction.state.description.fields), [row["stats"] for row in rows]))
    in_rows = _figures(spark, [transaction.place(row["path"]) for row in rows], leaves)
    in_log = chosen.select("path", sql.from_json("stats", _schema(leaves)).alias("log"))
    joined = in_log.join(in_rows, sql.expr("file = path OR endswith(file, concat('/', path))"))
    wrong = joined.select("path", sql.explode(sql.filter(sql.array(*_checks(leaves)), lambda each: each.isNotNull())))
    wrong = wrong.select("path", "col.*").persist()
    try:
        named = wrong.orderBy("path", "column", "name").limit(NAMED).collect()
        return ComparedStatistics(len(rows), skipped, wrong.count(), tuple(WrongStatistic(*row) for row in named))
    finally:
        wrong.unpersist()


def _named_leaves(table: types.StructType, texts: list[str]) -> Iterator[_Leaf]:
    """Yield path and type of the table's columns and nested fields for which at least one file has statistics.

    Structs are not yielded, only their fields. A path has the names in the Parquet files, which can differ from the
    names in the table (column mapping).

    Args:
        texts: statistics of each file as JSON, as they are in the log.
    """
    named = set[tuple[str, ...]]()
    for statistics in map(orjson.loads, texts):
        for kind in (*_BOUNDS, _NULLS):
            named.update(_paths(statistics.get(kind) or {}))
    yield from (leaf for leaf in _leaves(table) if leaf[0] in named)


def _paths(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _paths(value, (*path, name))
        else:
            yield (*path, name)


def _leaves(table: types.StructType, path: tuple[str, ...] = ()) -> Iterator[_Leaf]:
    for field in table:
        own = (*path, (field.metadata or {}).get(_PHYSICAL_NAME, field.name))
        if isinstance(field.dataType, types.StructType):
            yield from _leaves(field.dataType, own)
        else:
            yield own, field.dataType


def _is_bounded(kind: types.DataType) -> bool:
    # Statistics of texts are in the order of their bytes, which is not the order of another collation.
    return isinstance(kind, _BOUNDED) and kind.simpleString().count("collate") == 0


def _nested(leaves: list[_Leaf]) -> types.StructType:
    """Return the struct type that has exactly the columns and nested fields `leaves`."""
    fields: dict[str, list[_Leaf]] = {}
    for (name, *inner), kind in leaves:
        fields.setdefault(name, []).append((tuple(inner), kind))
    return types.StructType([
        types.StructField(name, own[0][1] if not own[0][0] else _nested(own)) for name, own in fields.items()
    ])  # fmt: skip


def _schema(leaves: list[_Leaf]) -> types.StructType:
    """Return the struct type by which the JSON of a file's statistics (Delta: `stats`) is parsed for these leaves."""
    bounds = _nested([leaf for leaf in leaves if _is_bounded(leaf[1])])
    nulls = _nested([(path, types.LongType()) for path, _ in leaves])
    kinds = {"numRecords": types.LongType(), _NULLS: nulls, **dict.fromkeys(_BOUNDS, bounds)}
    return types.StructType(
        [types.StructField(name, kind) for name, kind in kinds.items() if kind != types.StructType()]
    )


def _figures(spark: SparkSession, paths: list[str], leaves: list[_Leaf]) -> DataFrame:
    """Compute the statistics of the Parquet files at `paths` from their rows; return one row for each file.

    The columns are `file` (the file's URI), `numRecords`, and for each leaf `nullCount`, `minValues` and `maxValues`.
    The names of a leaf's columns end with the leaf's index in `leaves`, such as `nullCount0`.
    """
    rows = spark.read.schema(_nested(leaves)).options(**_READ).parquet(*paths)
    figures = [sql.expr("count(*) AS numRecords")]
    for number, (path, kind) in enumerate(leaves):
        column = sql_name(path)
        figures.append(sql.expr(f"count_if({column} IS NULL) AS {_NULLS}{number}"))
        if _is_bounded(kind):
            figures += [sql.expr(f"{name[:3]}({column}) AS {name}{number}") for name in _BOUNDS]
    return rows.groupBy(rows.metadataColumn("_metadata").getField("file_path").alias("file")).agg(*figures)


def _checks(leaves: list[_Leaf]) -> Iterator[Column]:
    """Yield one Spark column for each statistic: null if it is right, or else a struct that describes the difference.

    The struct has the table's column, the statistic's name, its value in the log, and its value computed from the rows.
    """
    yield _check("", "numRecords", "log.numRecords", "numRecords", "log.numRecords <> numRecords")
    for number, (path, kind) in enumerate(leaves):
        for name in (_NULLS, *(_BOUNDS if _is_bounded(kind) else ())):
            log, rows = f"log.{name}.{sql_name(path)}", f"{name}{number}"
            # Delta cuts times to milliseconds.
            end = f"{log} + INTERVAL '0.001' SECOND <= {rows}" if isinstance(kind, _TIMES) else f"{log} < {rows}"
            wrong = {_NULLS: f"{log} <> {rows}", _BOUNDS[0]: f"{log} > {rows}", _BOUNDS[1]: end}[name]
            yield _check(".".join(path), name, log, rows, wrong)


def _check(column: str, name: str, log: str, rows: str, wrong: str) -> Column:
    values = f"'log', CAST({log} AS STRING), 'rows', CAST({rows} AS STRING)"
    return sql.expr(
        f"CASE WHEN {wrong} THEN named_struct('column', {sql_text(column)}, 'name', '{name}', {values}) END"
    )

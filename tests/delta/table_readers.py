"""A local table's rows, read by engines that share no code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import orjson
from deltalake import DeltaTable
from pyarrow.dataset import ParquetReadOptions
from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]


def by_spark(spark: SparkSession, table: Path) -> Rows:
    rows = spark.read.format("delta").load(str(table)).collect()
    return [row.asDict(recursive=True) for row in rows]


def by_deltalake(table: Path) -> Rows:
    as_spark_has_them = ParquetReadOptions(coerce_int96_timestamp_unit="us")
    rows = DeltaTable(table.as_uri()).to_pyarrow_dataset(parquet_read_options=as_spark_has_them).to_table()
    found: Rows = rows.to_pylist()
    return found


def by_duckdb(table: Path) -> Rows:
    """By its extension where it is installed; else DuckDB reads the table's files, as the log names them."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    try:
        connection.execute("LOAD delta")
        read = f"delta_scan({_quoted(str(table))})"
    except duckdb.Error:
        read = _files(connection, table)
    found = connection.sql(f"SELECT * FROM {read}")
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def _files(connection: duckdb.DuckDBPyConnection, table: Path) -> str:
    """A table function over the files that no later version has removed."""
    log = _quoted(str(table / "_delta_log" / "*.json"))
    columns = "{add: 'STRUCT(path VARCHAR, partitionValues JSON)', remove: 'STRUCT(path VARCHAR)'}"
    actions = f"read_json({log}, format = 'newline_delimited', columns = {columns})"
    added, *_ = connection.sql(
        f"SELECT json_group_array([url_decode(add.path), add.partitionValues::VARCHAR]) FROM {actions} WHERE "
        f"add IS NOT NULL AND add.path NOT IN (SELECT remove.path FROM {actions} WHERE remove IS NOT NULL)"
    ).fetchall()
    selects = [_file(str(table / path), orjson.loads(values)) for path, values in orjson.loads(added[0] or "[]")]
    return f"({' UNION ALL BY NAME '.join(selects)})" if selects else "(SELECT NULL WHERE false)"


def _file(path: str, values: dict[str, str | None]) -> str:
    days = "".join(
        f', {"NULL" if value is None else _quoted(value)}::DATE AS "{name.replace(chr(34), chr(34) * 2)}"'
        for name, value in values.items()
    )
    # As one element of a list: an odd name is no pattern.
    return f"SELECT *{days} FROM read_parquet([{_quoted(_escaped(path))}], hive_partitioning = false)"


def _escaped(path: str) -> str:
    """DuckDB takes a path for a pattern."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

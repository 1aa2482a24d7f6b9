"""The table's side of a comparison: a Delta table as it is at one version, with the columns that records have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, TimestampType

from tiered_stream.delta.address import TableAddress, find_address, spark_errors
from tiered_stream.errors import ConfigurationError
from tiered_stream.records.hashed_columns import HASHED
from tiered_stream.source import spark_schema

_NEEDED = ("topic", "partition", "offset")
_TYPES: Mapping[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "partition": (IntegerType, LongType),
    "offset": (LongType, IntegerType),
    "timestamp": (TimestampType,),
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
}


@dataclass(frozen=True)
class VerifiedTable:
    """`rows` have the columns `topic`, `partition`, `offset` and `columns`, as the source has them."""

    name: str
    version: int
    columns: tuple[str, ...]
    """Those of `HASHED` that the table has."""
    rows: DataFrame


def open_verified(spark: SparkSession, table: str) -> VerifiedTable:
    """The table, a path if it has a slash in it, at its latest version: what is written meanwhile is not seen.

    Raises:
        ConfigurationError: there is no Delta table, or its columns are not those of records.
        TableError: Spark cannot reach it.
    """
    address = find_address(spark, table)
    with spark_errors(table, "read"):
        version, rows = _latest(spark, address)
        columns = {column.lower(): column for column in rows.columns}
    present = [name for name in (*_NEEDED, *HASHED) if name in columns]
    selected = [rows[columns[name]].cast(_cast(table, name, rows.schema[columns[name]].dataType)) for name in present]
    missing = [name for name in _NEEDED if name not in present]
    if missing or len(present) == len(_NEEDED):
        raise ConfigurationError(
            f"the table {table} cannot be compared: it has no column {' and '.join(missing) or ' or '.join(HASHED)}; "
            "they must bear the names that they have in the source"
        )
    named = [column.alias(name) for name, column in zip(present, selected, strict=True)]
    return VerifiedTable(str(address), version, tuple(present[len(_NEEDED) :]), rows.select(*named))


def _latest(spark: SparkSession, address: TableAddress) -> tuple[int, DataFrame]:
    """The table's latest version, and its rows."""
    try:
        latest = spark.sql(f"DESCRIBE HISTORY {address.sql_name} LIMIT 1").first()
        assert latest is not None
        rows = spark.sql(f"SELECT * FROM {address.sql_name} VERSION AS OF {latest['version']}")
    except AnalysisException as error:
        raise ConfigurationError(f"there is no Delta table {address}: {str(error).splitlines()[0]}") from error
    return latest["version"], rows


def _cast(table: str, name: str, kind: DataType) -> DataType:
    """What the column is cast to: the source's own type. Text is bytes: Spark keeps those that are no UTF-8, too.

    Raises:
        ConfigurationError: it may be something else than what the record had.
    """
    wanted = spark_schema(include_headers=True)[name].dataType
    same = kind.simpleString() == wanted.simpleString() if name == "headers" else isinstance(kind, _TYPES[name])
    if not same:
        raise ConfigurationError(
            f"the table {table} cannot be compared: it has {name} as {kind.simpleString()}, "
            f"and records have it as {wanted.simpleString()}"
        )
    return wanted

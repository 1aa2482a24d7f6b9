"""Types as SQL text, and back: the same whatever `spark.sql.timestampType` says `TIMESTAMP` stands for.

A schema's text says TIMESTAMP for an instant and TIMESTAMP_NTZ for a local time. Spark's parser takes the first for the
second where the session says so, and the table would then depend on the session that has made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampType

from tiered_stream.spark_session import is_connect

TIMESTAMP_TYPE = "spark.sql.timestampType"
_INSTANTS = "TIMESTAMP_LTZ"
"""The setting's default. In SQL, the type's name that no setting changes."""


def sql_type(kind: DataType) -> str:
    """The type as SQL has it."""
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
    """The columns as `CREATE TABLE` has them, without parentheses."""
    return ", ".join(f"{sql_name((each.name,))} {sql_type(each.dataType)}{_null(each)}" for each in schema)


def sql_name(path: Sequence[str]) -> str:
    """A column, or a field within columns, as SQL has it."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)


def parse_ddl(text: str) -> DataType:
    """What a DDL string says, by Spark's own parser.

    Raises:
        ParseException: it is none.
    """
    with _instants():
        return DataType.fromDDL(text)


def _field(field: StructField) -> str:
    return f"{sql_name((field.name,))}: {sql_type(field.dataType)}{_null(field)}"


def _null(field: StructField) -> str:
    return "" if field.nullable else " NOT NULL"


@contextmanager
def _instants() -> Iterator[None]:
    """Within, TIMESTAMP is an instant for Spark's parser in this thread."""
    spark = SparkSession.getActiveSession()
    given = (spark and spark.conf.get(TIMESTAMP_TYPE, None)) or _INSTANTS
    if spark is None or given.upper() == _INSTANTS:
        yield
        return
    if is_connect(spark):
        spark.conf.set(TIMESTAMP_TYPE, _INSTANTS)
        try:
            yield
        finally:
            spark.conf.set(TIMESTAMP_TYPE, given)
        return
    # The parser asks the thread's session. A copy of it leaves other threads of the user's alone.
    java: Any = spark._jsparkSession
    copy = java.cloneSession()
    copy.conf().set(TIMESTAMP_TYPE, _INSTANTS)
    sessions: Any = SparkSession._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(copy)
    try:
        yield
    finally:
        sessions.setActiveSession(java)

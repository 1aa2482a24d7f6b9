"""Conversion of types to SQL text and back, independent of `spark.sql.timestampType`.

In a schema's text, TIMESTAMP means an instant, and TIMESTAMP_NTZ a local time. By `spark.sql.timestampType`, a session
can make Spark's parser read TIMESTAMP as a local time. Then a table's types would depend on the session that creates
the table, so the functions here do not follow this setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampType

from tiered_stream.errors import ConfigurationError
from tiered_stream.spark.session import is_connect

TIMESTAMP_TYPE = "spark.sql.timestampType"
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
        ConfigurationError: a name has `${`. Spark replaces `${env:NAME}` in SQL by an environment variable, and others
            by settings, also within quotes (Spark: `VariableSubstitution`). No escape prevents that in a name.
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


def parse_ddl(text: str) -> DataType:
    """Parse a DDL string with Spark's own parser; TIMESTAMP is an instant, even if `spark.sql.timestampType` differs.

    Raises:
        ParseException: the text is not a DDL string.
    """
    with _instants():
        return DataType.fromDDL(text)


def _field(field: StructField) -> str:
    return f"{sql_name((field.name,))}: {sql_type(field.dataType)}{_null(field)}"


def _null(field: StructField) -> str:
    return "" if field.nullable else " NOT NULL"


@contextmanager
def _instants() -> Iterator[None]:
    """Make Spark's parser read TIMESTAMP as an instant during the `with` block.

    With Spark Connect, the session's setting is changed until the end of the block. Without Spark Connect, only this
    thread is affected.
    """
    spark = SparkSession.getActiveSession()
    timestamp_type = (spark and spark.conf.get(TIMESTAMP_TYPE, None)) or _INSTANTS
    if spark is None or timestamp_type.upper() == _INSTANTS:
        yield
        return
    if is_connect(spark):
        spark.conf.set(TIMESTAMP_TYPE, _INSTANTS)
        try:
            yield
        finally:
            spark.conf.set(TIMESTAMP_TYPE, timestamp_type)
        return
    # The parser reads the settings of the thread's session. A copied session does not affect the user's other threads.
    java: Any = spark._jsparkSession
    copy = java.cloneSession()
    copy.conf().set(TIMESTAMP_TYPE, _INSTANTS)
    sessions: Any = SparkSession._get_j_spark_session_class(spark._jvm)
    sessions.setActiveSession(copy)
    try:
        yield
    finally:
        sessions.setActiveSession(java)

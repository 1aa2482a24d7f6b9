"""Conversion of Spark's schemas to Arrow's, by Spark's own parser and types."""

from __future__ import annotations

from inspect import signature
from typing import Any

import orjson
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tiered_stream.delta.schema.sql_types import parse_ddl
from tiered_stream.errors import ConfigurationError


def parse_schema(text: str) -> pa.Schema:
    """Return the Arrow schema of a DDL string (which needs a Spark session), or of Spark's JSON of a struct.

    Raises:
        ConfigurationError: the text is the schema of a single value, or has a type that no column can have.
        ValueError: the text is no schema.
    """
    try:
        schema = StructType.fromJson(orjson.loads(text)) if text.lstrip().startswith("{") else parse_ddl(text)
    except PySparkException as error:
        raise ValueError(str(error)) from error
    if not isinstance(schema, StructType):
        raise ConfigurationError(f"the schema is {schema.simpleString()}: it must have fields")
    try:
        return arrow_schema(schema)
    except PySparkException as error:
        raise ConfigurationError(
            f"the schema is {schema.simpleString()}, which no column here can be: {error}. For VARCHAR(n) and CHAR(n), "
            "write STRING, and create the table with these types before: its lengths then hold"
        ) from error


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema to which Spark converts these columns; instants get the time zone UTC."""
    # Before Spark 4.2, the function has no such argument, and gives instants UTC.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)

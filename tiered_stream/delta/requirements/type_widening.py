"""Delta's type widening (protocol: "Type Widening"): a column gets a wider type without a rewrite of its files.

Readers then accept files with the narrower type and files with the wider type. Only delta-spark can commit to a table
with this feature; deltalake can only open it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import DataType, StructField, StructType

from tiered_stream.delta.schema.spark_schema import arrow_schema
from tiered_stream.formats.columns.conform import widens

FEATURES = frozenset(("typeWidening", "typeWidening-preview"))


def is_wider(wide: DataType, narrow: DataType) -> bool:
    """Return whether a column of type `narrow` can become type `wide`; neither is a struct, an array or a map."""
    schema = arrow_schema(StructType().add("wide", wide).add("narrow", narrow))
    return widens(schema.field("narrow").type, schema.field("wide").type)


def is_wider_json(wide: Any, narrow: Any) -> bool:
    """Return whether a column of type `narrow` can become type `wide`, both in Spark's JSON; False for nested types."""
    return isinstance(wide, str) and isinstance(narrow, str) and is_wider(_type_of(wide), _type_of(narrow))


def _type_of(name: str) -> DataType:
    return StructField.fromJson({"name": "column", "type": name, "nullable": True, "metadata": {}}).dataType

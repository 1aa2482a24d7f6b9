"""Delta's type widening (protocol: "Type Widening"): a column gets a wider type, and no file is written again.

Readers then take files of either type. Only delta-spark commits to such a table: deltalake opens it, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import DataType, StructType

from tiered_stream.delta.ingest_settings import TYPE_WIDENING
from tiered_stream.delta.row_schema import arrow_schema
from tiered_stream.formats.conform import widens

FEATURES = frozenset(("typeWidening", "typeWidening-preview"))


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """Whether a table with these properties lets its columns become wider."""
    return configuration.get(TYPE_WIDENING, "").lower() == "true"


def is_wider(wide: DataType, narrow: DataType) -> bool:
    """Whether a column of the one type can become one of the other, both without fields."""
    found = arrow_schema(StructType().add("wide", wide).add("narrow", narrow))
    return widens(found.field("narrow").type, found.field("wide").type)


def is_wider_json(wide: Any, narrow: Any) -> bool:
    """The same of types as Spark's JSON has them."""
    return isinstance(wide, str) and isinstance(narrow, str) and is_wider(_type_of(wide), _type_of(narrow))


def _type_of(name: str) -> DataType:
    field = {"name": "column", "type": name, "nullable": True, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [field]})["column"].dataType

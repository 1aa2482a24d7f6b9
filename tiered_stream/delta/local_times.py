"""Columns with TIMESTAMP_NTZ in a map, which the `deltalake` library does not see.

It names the table feature that such times need by itself, for columns, lists and structs. Where a map has them it does
not, and then refuses the table: so these columns come when the feature is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampNTZType

LOCAL_TIMES = "timestampNtz"
"""The feature."""


def made_first(schema: StructType, day_column: str | None) -> tuple[StructType, StructType]:
    """The columns with which a table is made, and those that it takes afterwards, in their order if it can be."""
    hidden = [each for each in schema if hides_local_times(each)]
    first = list(takewhile(lambda each: each not in hidden, schema))
    if hidden and (not first or day_column not in (None, *(each.name for each in first))):
        first = [each for each in schema if each not in hidden]
    if not first:  # a table has a column: the library says so
        return schema, StructType()
    return StructType(first), StructType([each for each in schema if each not in first])


def hides_local_times(field: StructField) -> bool:
    """Whether a map of the column has them."""
    return any(_has_local_times(kind) for kind in _parts(field.dataType) if isinstance(kind, MapType))


def _has_local_times(kind: DataType) -> bool:
    return any(isinstance(each, TimestampNTZType) for each in _parts(kind))


def _parts(kind: DataType) -> Iterator[DataType]:
    """The type and those that it is made of."""
    yield kind
    inner: list[DataType] = []
    match kind:
        case StructType():
            inner = [each.dataType for each in kind]
        case ArrayType():
            inner = [kind.elementType]
        case MapType():
            inner = [kind.keyType, kind.valueType]
    for each in inner:
        yield from _parts(each)

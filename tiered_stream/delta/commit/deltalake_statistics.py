"""Choice of the columns for which deltalake writes statistics: a bound that it cannot write exactly loses rows.

deltalake makes the statistics in Delta's log from the statistics in Parquet footers, so a column has both or none.
Bounds of these columns would be wrong or misread:

- floating-point columns: NaN is left out, but Spark sorts it above all numbers;
- decimals of more than 15 digits: bounds are rounded to 64-bit floating-point numbers, or cut at 2^63 - 1;
- dates and times outside of the years 1 to 9999: deltalake panics, leaves a bound out, or writes five digits.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from deltalake import ColumnProperties, DeltaTable, WriterProperties

from tiered_stream.delta.settings.ingest_settings import GZIP, SNAPPY, UNCOMPRESSED, ZSTD

_MAX_DIGITS = 15
"""Largest precision of a decimal whose values all survive a conversion to a double and back."""
_COMPRESSION: dict[str, Literal["SNAPPY", "ZSTD", "GZIP", "UNCOMPRESSED"]] = {
    SNAPPY: "SNAPPY", ZSTD: "ZSTD", GZIP: "GZIP", UNCOMPRESSED: "UNCOMPRESSED",
}  # fmt: skip
_WITH, _WITHOUT = ColumnProperties(statistics_enabled="PAGE"), ColumnProperties(statistics_enabled="NONE")


def writer_properties(table: DeltaTable, compression: str, *, with_times: bool) -> WriterProperties:
    """Return writer properties with statistics of the columns whose bounds deltalake writes exactly.

    `with_times` must be false if a date or a time can be outside of the years 1 to 9999. If a
    nested column has a field without exact bounds, no nested column has statistics, because deltalake takes no path
    into a column.
    """
    kinds = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
    flat = {name: kind for name, kind in kinds.items() if not pa.types.is_nested(kind)}
    nested = all(_is_exact(kind, with_times) for name, kind in kinds.items() if name not in flat)
    return WriterProperties(
        compression=_COMPRESSION[compression],
        default_column_properties=_WITH if nested else _WITHOUT,
        column_properties={name: _WITH if _is_exact(kind, with_times) else _WITHOUT for name, kind in flat.items()},
    )


def _is_exact(kind: pa.DataType, with_times: bool) -> bool:
    if pa.types.is_nested(kind):
        return all(_is_exact(kind.field(number).type, with_times) for number in range(kind.num_fields))
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _MAX_DIGITS)
    if pa.types.is_temporal(kind):
        return with_times
    return not pa.types.is_floating(kind)

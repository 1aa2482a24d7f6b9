"""Columns of dates and timestamps that are made of numbers since 1970 (`ingest.times`)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tiered_stream.errors import ConfigurationError

DAYS = "days"
FACTORS = {"seconds": 1_000_000, "millis": 1000, "micros": 1}
"""Microseconds of a unit."""
Times = Sequence[tuple[str, str]]
"""Names of columns, each with the unit of its numbers."""


def with_time_types(kind: pa.StructType, times: Times) -> pa.StructType:
    """Return the type of the rows that `with_times` makes of rows of the type `kind`.

    Raises ConfigurationError if `kind` lacks a column, or if a column has no whole numbers.
    """
    fields = list(kind)
    for name, unit in times:
        at = kind.get_field_index(name)
        if at < 0 or not pa.types.is_integer(kind.field(at).type):
            shown = f"which is {kind.field(at).type}" if at >= 0 else "which the rows lack"
            raise ConfigurationError(
                f"ingest.times has {name}, {shown}: name columns of the value whose type in the schema is INT or BIGINT"
            )
        fields[at] = pa.field(name, pa.date32() if unit == DAYS else pa.timestamp("us", tz="UTC"))
    return pa.struct(fields)


def with_times(column: pa.StructArray, times: Times) -> tuple[pa.StructArray, dict[int, str]]:
    """Return the rows with dates and timestamps in the columns `times`, and reasons of rows without a column's type.

    A row has a reason if its number is beyond the range of the type. Its date or timestamp is null then.
    """
    reasons: dict[int, str] = {}
    arrays = [pc.struct_field(column, [number]) for number in range(column.type.num_fields)]
    kind = with_time_types(column.type, times)
    for name, unit in times:
        at = kind.get_field_index(name)
        numbers = arrays[at].cast(pa.int64())
        factor = FACTORS.get(unit, 1)
        limit = (1 << 31) - 1 if unit == DAYS else ((1 << 63) - 1) // factor
        fits = pc.and_(pc.less_equal(numbers, limit), pc.greater_equal(numbers, -limit))
        for row in pc.indices_nonzero(pc.invert(fits)).to_pylist():
            reasons.setdefault(row, f"{name}: the number is no {unit} since 1970 that a {kind.field(at).type} can hold")
        kept = pc.if_else(fits, numbers, None)
        if unit == DAYS:
            arrays[at] = kept.cast(pa.int32()).cast(pa.date32())
        else:
            arrays[at] = pc.multiply(kept, factor).cast(kind.field(at).type)
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=column.is_null()), reasons

"""Rows of a Delta table, compared with rows of the database."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.dataset import ParquetReadOptions

from tests.rigs.debezium.landing import UPSERT
from tests.rigs.debezium.tables import Key, Row, Table

_SHOWN = 5
_TIMESTAMPS = ParquetReadOptions(coerce_int96_timestamp_unit="us")
"""Spark writes timestamps as INT96, which pyarrow otherwise reads as nanoseconds of the years 1677 to 2262."""


def landed_rows(table: Table, place: Path, mode: str) -> dict[Key, Row]:
    """Return the rows of the latest state by key: the rows of the table, or what its history reduces to.

    Raises:
        ValueError: the table has two rows of one key.
    """
    found = DeltaTable(place).to_pyarrow_dataset(parquet_read_options=_TIMESTAMPS).to_table()
    if mode != UPSERT:
        found = _reduced(table, found)
    columns = [found.column(name).to_pylist() for name in table.columns]
    return table.by_key(list(zip(*columns, strict=True)))


def _reduced(table: Table, history: pa.Table) -> pa.Table:
    """Return the last change of each key, without deleted rows. A key's records are in one partition."""
    keys = ", ".join(f'"{name}"' for name in table.shape.keys)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("history", history)
        last = f'"offset" = max("offset") OVER (PARTITION BY "partition", {keys})'
        query = (
            f"SELECT * FROM (SELECT *, {last} AS last FROM history WHERE __op IS NOT NULL) WHERE last AND __op <> 'd'"
        )
        return connection.sql(query).to_arrow_table()


def differences(
    name: str, wanted: Mapping[Key, Row], found: Mapping[Key, Row], *, sides: tuple[str, str] = ("database", "table")
) -> list[str]:
    """Return a line for each of the first differences, and a line with their number; nothing if there are none."""
    keys = [key for key in {**wanted, **found} if wanted.get(key) != found.get(key)]
    lines = [f"{name} {key}: {sides[0]} {wanted.get(key)}, {sides[1]} {found.get(key)}" for key in keys[:_SHOWN]]
    return [*lines, f"{name}: {len(keys)} of {len(wanted)} rows differ"] if keys else []

"""SQL that finds the last row of each key among staged rows (`latest_rows.STAGED`)."""

from __future__ import annotations

from collections.abc import Sequence

from tiered_stream.delta.schema.sql_types import sql_name
from tiered_stream.delta.write.latest_rows import DELETES, PARTITION, POSITION

_HIGHEST = "__staged_highest"
"""Column with the largest value of `ingest.orderBy` among a row's key's rows so far, without deletes."""


def rank_sql(keys: Sequence[str], order_by: str | None) -> str:
    """Return an SQL expression of a row's number among the rows of its key; the last row has the number 1.

    The last row has the largest value of the column `order_by`. If it is None, or for equal values, the partition
    decides, and then the offset.
    """
    order = [f"{PARTITION} DESC", f"{POSITION} DESC"]
    if order_by is not None:
        order = [f"{sql_name([order_by])} DESC", *order]
    return f"row_number() {_of_key(keys)} ORDER BY {', '.join(order)})"


def mixed_sql(keys: Sequence[str]) -> str:
    """Return an SQL expression of a text with two partitions that have rows of the row's key; null: one has all."""
    lowest, highest = (f"{each}({PARTITION}) {_of_key(keys)})" for each in ("min", "max"))
    return f"CASE WHEN {lowest} <> {highest} THEN concat({lowest}, ' and ', {highest}) END"


def deleted_at_sql(keys: Sequence[str], order_by: str | None) -> tuple[list[str], str]:
    """Return SQL expressions of columns that must be added first, and then an SQL expression of `DELETED_AT`."""
    if order_by is None:
        return [], f"max(CASE WHEN {DELETES} THEN true END) {_of_key(keys)})"
    by = sql_name([order_by])
    before = f"ORDER BY {PARTITION}, {POSITION} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    highest = f"max(CASE WHEN NOT {DELETES} THEN {by} END) {_of_key(keys)} {before}) AS {_HIGHEST}"
    counts = f"{DELETES} AND ({_HIGHEST} IS NULL OR {by} >= {_HIGHEST})"
    return [highest], f"max(CASE WHEN {counts} THEN {by} END) {_of_key(keys)})"


def tied_sql(keys: Sequence[str], order_by: str) -> str:
    """Return an SQL expression: whether a row is the last one of its partition with the key's largest `order_by`.

    If micro-batches have only some of these rows, any of them can be the row that a table keeps.
    """
    by = f"{sql_name([order_by])} DESC"
    of_partition = f"OVER (PARTITION BY {', '.join(map(_name, keys))}, {PARTITION}"
    return (
        f"dense_rank() {_of_key(keys)} ORDER BY {by}) = 1 AND "
        f"row_number() {of_partition} ORDER BY {by}, {POSITION} DESC) = 1"
    )


def _name(key: str) -> str:
    return sql_name([key])


def _of_key(keys: Sequence[str]) -> str:
    return f"OVER (PARTITION BY {', '.join(map(_name, keys))}"

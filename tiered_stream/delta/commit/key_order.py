"""SQL that finds the last row of each key among staged rows (`latest_rows.STAGED`)."""

from __future__ import annotations

from collections.abc import Sequence

from tiered_stream.delta.schema.sql_types import sql_name
from tiered_stream.delta.write.latest_rows import PARTITION, POSITION


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


def _of_key(keys: Sequence[str]) -> str:
    return f"OVER (PARTITION BY {', '.join(sql_name([key]) for key in keys)}"

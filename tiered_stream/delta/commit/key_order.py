"""SQL that finds the last row of each key among staged rows (`latest_rows.STAGED`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from tiered_stream.delta.schema.sql_types import sql_name, sql_text
from tiered_stream.delta.write.latest_rows import DELETES, PARTITION, PLACEHOLDERS, POSITION, known_at

_HIGHEST = "__staged_highest"
"""Name of a column: the largest `ingest.orderBy` among the rows of the same key up to a row, without deletes."""


_WITH_PLACEHOLDERS = StringType, BinaryType, ArrayType, MapType
"""Types of columns that can have placeholders (`change_records.UnavailableValues`)."""


def rank_sql(keys: Sequence[str], order_by: str | None) -> str:
    """Return an SQL expression of a row's number among the rows of its key; the last row has the number 1.

    The last row has the largest value of the column `order_by`. If `order_by` is None, or if values are equal, the row
    with the highest partition is last, and within a partition the row with the highest offset.
    """
    order = [f"{PARTITION} DESC", f"{POSITION} DESC"]
    if order_by is not None:
        order = [f"{sql_name([order_by])} DESC", *order]
    return f"row_number() {_of_key(keys)} ORDER BY {', '.join(order)})"


def two_partitions_sql(keys: Sequence[str]) -> str:
    """Return an SQL expression of a text that names two partitions with rows of the row's key.

    The text is null if all rows of the key are in one partition.
    """
    lowest, highest = (f"{each}({PARTITION}) {_of_key(keys)})" for each in ("min", "max"))
    return f"CASE WHEN {lowest} <> {highest} THEN concat({lowest}, ' and ', {highest}) END"


def deleted_at_sql(keys: Sequence[str], order_by: str | None) -> tuple[list[str], str]:
    """Return SQL expressions of helper columns, and the SQL expression of `DELETED_AT`, which reads these columns.

    The caller must add the helper columns to the rows first.
    """
    if order_by is None:
        return [], f"max(CASE WHEN {DELETES} THEN true END) {_of_key(keys)})"
    by = sql_name([order_by])
    before = f"ORDER BY {PARTITION}, {POSITION} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    highest = f"max(CASE WHEN NOT {DELETES} THEN {by} END) {_of_key(keys)} {before}) AS {_HIGHEST}"
    counts = f"{DELETES} AND ({_HIGHEST} IS NULL OR {by} >= {_HIGHEST})"
    return [highest], f"max(CASE WHEN {counts} THEN {by} END) {_of_key(keys)})"


def with_known_values(
    rows: DataFrame, keys: Sequence[str], order_by: str | None, known: Mapping[str, str], not_null: Collection[str]
) -> DataFrame:
    """Return staged rows with the last known values of their keys in place of placeholders.

    `known` has the names of helper columns, by column with placeholders (`latest_rows.known_at`). The rows get these
    helper columns. A value that is not known becomes null, but a column in `not_null` keeps the placeholder. The values
    are right only in a key's last row.
    """
    order = [*([] if order_by is None else [_name(order_by)]), PARTITION, POSITION]
    at = "true" if order_by is None else _name(order_by)
    last: list[str] = []
    values: dict[str, Column] = {}
    for name, column in known.items():
        own, found = _name(name), f"{column}_row"
        knows = f"{DELETES} OR NOT coalesce(array_contains({PLACEHOLDERS}, {sql_text(name.lower())}), false)"
        row = f"struct({at} AS at, {DELETES} AS deletes, {own} AS value)"
        last.append(f"max_by({row}, CASE WHEN {knows} THEN struct({', '.join(order)}) END) {_of_key(keys)}) AS {found}")
        unknown = own if name in not_null else "NULL"
        known_value = f"CASE WHEN NOT {found}.deletes THEN {found}.value ELSE {unknown} END"
        values[name] = sql.expr(f"CASE WHEN {knows} THEN {own} ELSE {known_value} END")
        values[column] = sql.expr(f"{found}.at")
    return rows.selectExpr("*", *last).withColumns(values) if known else rows


def columns_with_placeholders(columns: StructType, keys: Sequence[str], order_by: str | None) -> dict[str, str]:
    """Return the names of helper columns, by the column whose type can have placeholders, except `keys` and `order_by`.

    The helper column has the order of the key's newest row that has a value in place of a placeholder (true, if no
    column orders the rows). It is null if no row has one (`latest_rows.known_at`). The result is for rows that are not
    staged, because only staged files say which columns have placeholders.
    """
    others = {name.lower() for name in (*keys, order_by or "")}
    names = [each.name for each in columns if isinstance(each.dataType, _WITH_PLACEHOLDERS)]
    return known_at(names, {name.lower() for name in names} - others)


def last_of_partition_sql(keys: Sequence[str], order_by: str) -> str:
    """Return an SQL condition that is true for the last row in each partition with the key's largest `order_by`.

    If a key has several of these rows, a table may keep any of them, because they may be in different micro-batches.
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

"""Search by Spark's SQL for the last row of each key among the rows of a micro-batch, before a MERGE.

The rows are staged: tasks have written them to files with the further columns `latest_rows.STAGED`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from tiered_stream.delta.schema.sql_types import sql_name, sql_text
from tiered_stream.delta.write.latest_rows import DELETED_AT, DELETES, PARTITION, PLACEHOLDERS, POSITION, known_at

UNORDERED_KEY = "tiered_stream: a key occurs in several partitions"
"""Beginning of the error that Spark raises for a key with records in two partitions; the partitions' names follow."""
_RANK, _MIXED = "__staged_rank", "__staged_mixed"
_HIGHEST = "__staged_highest"
"""Name of a column with the largest value of `ingest.orderBy` among the key's rows up to a row, without deletes."""
_WITH_PLACEHOLDERS = StringType, BinaryType, ArrayType, MapType
"""Types of columns that can have placeholders (`change_records.UnavailableValues`)."""


def last_rows(
    rows: DataFrame,
    columns: StructType,
    keys: Sequence[str],
    order_by: str | None,
    known: Mapping[str, str],
    not_null: Collection[str],
    *,
    one: bool,
    resets: bool,
) -> DataFrame:
    """Return the last row of each key among staged rows, with the table's `columns` and the column `DELETES`.

    Args:
        rows: staged rows (`latest_rows.STAGED`), with all of the columns `columns`.
        columns: columns of the table that a MERGE sets.
        keys: columns that identify a row.
        order_by: column that orders the rows of a key; None: the offset orders them.
        known: names of helper columns of the result, by column with placeholders (`latest_rows.known_at`).
        not_null: columns that keep a placeholder if the value is not known.
        one: true if all rows of a key are of one partition. If `one` is false and `order_by` is None, Spark raises an
            error (`UNORDERED_KEY`) for a key with rows in several partitions, because Kafka gives them no order.
        resets: true if the result has the column `DELETED_AT`, too.
    """
    ranked, last = [f"{rank_sql(keys, order_by)} AS {_RANK}"], [sql_name([name]) for name in columns.names]
    if one or order_by is not None:
        last.append(DELETES)
    else:
        ranked.append(f"{two_partitions_sql(keys)} AS {_MIXED}")
        error = f"raise_error(concat({sql_text(UNORDERED_KEY + ': ')}, {_MIXED}))"
        last.append(f"CASE WHEN {_MIXED} IS NULL THEN {DELETES} ELSE CAST({error} AS BOOLEAN) END AS {DELETES}")
    if resets:
        rows = _with_deleted_at(rows, keys, order_by)
        last.append(DELETED_AT)
    rows = with_known_values(rows, keys, order_by, known, not_null).selectExpr("*", *ranked)
    return _with_not_null(rows.where(f"{_RANK} = 1").selectExpr(*last, *known.values()), columns)


def rank_sql(keys: Sequence[str], order_by: str | None) -> str:
    """Return an SQL expression for a row's number among the rows of its key; the last row has the number 1.

    `keys` are the key columns. The last row has the largest value of the column `order_by`. If `order_by` is None, or
    if values are equal, the row with the highest partition is last, and within a partition the row with the highest
    offset.
    """
    order = [f"{PARTITION} DESC", f"{POSITION} DESC"]
    if order_by is not None:
        order = [f"{sql_name([order_by])} DESC", *order]
    return f"row_number() {_of_key(keys)} ORDER BY {', '.join(order)})"


def two_partitions_sql(keys: Sequence[str]) -> str:
    """Return an SQL expression for a text that names two partitions with rows of the row's key.

    `keys` are the key columns. The text is null if all rows of the key are in one partition.
    """
    lowest, highest = (f"{each}({PARTITION}) {_of_key(keys)})" for each in ("min", "max"))
    return f"CASE WHEN {lowest} <> {highest} THEN concat({lowest}, ' and ', {highest}) END"


def _with_deleted_at(rows: DataFrame, keys: Sequence[str], order_by: str | None) -> DataFrame:
    """Return staged rows with the column `DELETED_AT` (`latest_rows.DELETED_AT`), and with a helper column for it."""
    if order_by is None:
        return rows.selectExpr("*", f"max(CASE WHEN {DELETES} THEN true END) {_of_key(keys)}) AS {DELETED_AT}")
    by = sql_name([order_by])
    before = f"ORDER BY {PARTITION}, {POSITION} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    highest = f"max(CASE WHEN NOT {DELETES} THEN {by} END) {_of_key(keys)} {before}) AS {_HIGHEST}"
    counts = f"{DELETES} AND ({_HIGHEST} IS NULL OR {by} >= {_HIGHEST})"
    deleted_at = f"max(CASE WHEN {counts} THEN {by} END) {_of_key(keys)}) AS {DELETED_AT}"
    return rows.selectExpr("*", highest).selectExpr("*", deleted_at)


def with_known_values(
    rows: DataFrame, keys: Sequence[str], order_by: str | None, known: Mapping[str, str], not_null: Collection[str]
) -> DataFrame:
    """Return staged rows with the last known value of the key in place of each placeholder (Debezium).

    `known` has the names of helper columns, by column with placeholders (`latest_rows.known_at`). The rows get these
    helper columns. If no row of the key has a value, the placeholder becomes null, but a column in `not_null` keeps it.
    The values are right only in a key's last row.
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


def _with_not_null(rows: DataFrame, columns: StructType) -> DataFrame:
    """Return the rows with NOT NULL for each nested field that is NOT NULL in `columns`, the table's columns.

    Spark reads all fields of files as nullable, and refuses to write a nullable field to a NOT NULL field. The values
    are not null, because tasks have checked the rows. In a redrive, which decodes dead letters again, a column of
    `rows` can differ from the table's column in the order or width of fields. Such a column is not changed, because
    only a MERGE casts structs by the names of their fields.
    """
    fields = [
        column if column.dataType.simpleString() == own.dataType.simpleString() else own
        for column, own in zip(columns, rows.schema, strict=False)
    ]
    if not any(_has_not_null(each.dataType) for each in fields):
        return rows
    session: Any = rows.sparkSession._jsparkSession
    kind = session.parseDataType(StructType([*fields, *list(rows.schema)[len(columns) :]]).json())
    plan: Any = rows._jdf
    return DataFrame(session.internalCreateDataFrame(plan.queryExecution().toRdd(), kind, False), rows.sparkSession)


def _has_not_null(kind: DataType) -> bool:
    return isinstance(kind, StructType) and any(not each.nullable or _has_not_null(each.dataType) for each in kind)


def columns_with_placeholders(columns: StructType, keys: Sequence[str], order_by: str | None) -> dict[str, str]:
    """Return the name of a helper column for each of `columns` whose type can have placeholders (Debezium).

    The columns `keys` and `order_by` have no helper column. `latest_rows.known_at` describes the values of a helper
    column. The result is for rows that are not staged, because only staged files say which columns have placeholders.
    """
    others = {name.lower() for name in (*keys, order_by or "")}
    names = [each.name for each in columns if isinstance(each.dataType, _WITH_PLACEHOLDERS)]
    return known_at(names, {name.lower() for name in names} - others)


def last_of_partition_sql(keys: Sequence[str], order_by: str) -> str:
    """Return an SQL condition that is true for the last row in each partition with the key's largest `order_by`.

    If a key has several rows like this, the table can have any of them, because they can be in different micro-batches.
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

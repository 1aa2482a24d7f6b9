"""`ingest.select` and `ingest.where` by Spark's SQL: in the Spark lane, and to check at the start what Spark reads."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.errors import ConfigurationError
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.sql.parser import STRING, SqlQuery, Tree


def queried(rows: DataFrame, query: SqlQuery, kept: Iterable[str] = ()) -> DataFrame:
    """Return the rows and columns that the SQL selects from decoded rows, then the columns `kept`, by Spark's SQL."""
    names = [name for name in rows.columns if name not in set(kept)]
    if query.where is not None:
        rows = rows.where(query.where_text)
    if not query.select:
        return rows
    items = ([item.text] if item.tree is not None else map(_quoted, names) for item in query.select)
    return rows.selectExpr(*(text for texts in items for text in texts), *map(_quoted, kept))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _has_quote(tree: Tree) -> bool:
    return (tree.op == STRING and "'" in tree.text) or any(map(_has_quote, tree.args))


def check_by_spark(spark: SparkSession, row_format: RowFormat) -> None:
    """Check that Spark reads the SQL of a row format, and gives its columns the types that the tasks give them.

    Raises:
        ConfigurationError: Spark refuses the SQL, or gives other columns.
    """
    if row_format.query is None or not row_format.is_resolved:
        return
    query = row_format.query
    trees = [item.tree for item in query.select if item.tree is not None] + ([query.where] if query.where else [])
    if any(map(_has_quote, trees)) and spark.sql("SELECT 'it''s'").columns != ["it's"]:
        raise ConfigurationError(
            "two single quotes within a text stand for no quote in this session: set "
            "spark.sql.legacy.consecutiveStringLiterals.enabled=false"
        )
    written = spark_columns(row_format.written, None)
    decoded = spark.createDataFrame([], spark_columns(row_format.decoded, None))
    given = "ingest.select" if query.select else "ingest.where"
    try:
        by_spark = queried(decoded, query).schema
    except PySparkException as error:
        line = str(error).strip().partition("\n")[0]
        raise ConfigurationError(f"Spark refuses {given}: {line:.500}") from error
    columns, ours = ([(each.name, each.dataType) for each in one] for one in (by_spark, written))
    if columns != ours:
        one, other = next(pair for pair in zip(columns, ours, strict=True) if pair[0] != pair[1])
        raise ConfigurationError(
            f"{given} gives {one[0]} {one[1].simpleString()} in Spark, and {other[0]} {other[1].simpleString()} in the "
            "direct lane, by a setting of the session: give the type by CAST"
        )

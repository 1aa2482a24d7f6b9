"""Comparison of a table of the latest state with its topics by sums of row hashes, for the function `verify`.

Such a table (`ingest.mode=upsert`) has one row for each key: the row of the key's last record. Topics and table are
each read once, and their row hashes are summed up in `BUCKETS` buckets of keys. If the sums of a bucket differ, the
rows of this bucket are read again from topics and table, and compared key by key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructField, StructType

from tiered_stream.delta.commit import key_order
from tiered_stream.delta.schema.routing import Routing, TaskSettings
from tiered_stream.delta.schema.sql_types import sql_name, sql_text
from tiered_stream.delta.settings.row_settings import ORDER_BY
from tiered_stream.delta.write.latest_rows import DELETES, PARTITION, POSITION, STAGED
from tiered_stream.errors import ConfigurationError
from tiered_stream.options.offset_ranges import Ranges, times_options
from tiered_stream.options.positions import TimeRange
from tiered_stream.verification.latest_rows_source import SOURCE
from tiered_stream.verification.record_comparison import FIGURES, hash_sums
from tiered_stream.verification.scope import narrowed
from tiered_stream.verification.verify_report import ColumnDifference, Kind, LatestReport, RowDifference

BUCKETS = 4096
NAMED = 5
"""Maximum number of keys that a report names for each kind of difference."""
_SHOWN = 60
"""Maximum number of characters of a value in a report."""
_OUTSIDE, _TIED, _DELETED = "outside", "tied", "deleted"
_JSON = (
    "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", 'timestampNTZFormat', "
    "\"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
)
"""Options for Spark's `to_json`, with which different values always become different texts."""


@dataclass(frozen=True)
class LatestSides:
    """The topics and the table that are compared. The methods build DataFrames of their rows.

    Each DataFrame has a struct `key` with the key columns, and a struct `row` with all compared columns. The structs
    prevent collisions with the names of the table's columns. The column `bucket` is the bucket number of the key, and
    `hash` is the hash of `row`.
    """

    spark: SparkSession
    routing: Routing
    options: Mapping[str, str] = field(repr=False)  # it may have secrets
    """Options of the source of records."""
    table: DataFrame
    fields: tuple[StructField, ...]
    """Compared columns: the table's columns that the ingest job's MERGE sets, with the table's names and types."""
    keys: tuple[str, ...]
    order_by: str | None
    kafka: Mapping[str, str]
    """Names of the table's columns that hold Kafka's columns, by Kafka's name."""
    offsets: Ranges
    """Compared offset ranges, by partition."""
    times: TimeRange | None
    """Only records with timestamps in this range are compared. If it is None, all records are compared."""
    is_whole: bool
    """True if the compared offsets begin where the table begins, so that no row is of a record before them."""
    is_part: bool
    """True if the table may have rows of records that are later than the compared records."""

    @property
    def has_positions(self) -> bool:
        """Return whether the table has columns for partition and offset, and for the topic if there are several."""
        is_one = len({partition.topic for partition in self.offsets}) <= 1
        return {"partition", "offset"} <= self.kafka.keys() and (is_one or "topic" in self.kafka)

    def topic_rows(self) -> DataFrame:
        """Return the last row of each key in the topics, also of keys whose last record deletes the row.

        The columns are `key`, `row`, `bucket`, `hash` (see the class), and these:

        - `deletes`: true if the key's last record deletes the row.
        - `record`: a text with partition and offset of the key's last record.
        - `mixed`: a text with two partitions that have records of the key; null if only one partition has.
        - `unknown`: names of the columns whose values no compared record has, because the database did not send them
          (`ingest.unavailableValue`).
        - `ties`: hashes of rows that the table may have instead of `row`, because their records and the last record
          have the same value of `ingest.orderBy`. The text `_DELETED` means that the table may also lack the row.
        """
        given = narrowed(self.options, self.offsets) | times_options(self.times)
        read = self.spark.read.format(SOURCE).options(**TaskSettings(self.routing).added_to(given)).load()
        columns = [_as_in_table(read, each) for each in self.fields]
        known = self._known_at()
        not_null = [each.name for each in self.fields if not each.nullable]
        rows = read.select(*columns, *STAGED.names)
        rows = key_order.with_known_values(rows, self.keys, self.order_by, known, not_null)
        lost = {} if self.is_whole else known
        unknown = (f"CASE WHEN {at} IS NULL THEN {sql_text(name)} END" for name, at in lost.items())
        ranked = rows.selectExpr(
            *self._structs(),
            f"{DELETES} AS deletes",
            f"array_compact(CAST(array({', '.join(unknown)}) AS ARRAY<STRING>)) AS unknown",
            f"concat(replace({PARTITION}, '/', '-'), ', offset ', {POSITION}) AS record",
            f"{key_order.two_partitions_sql(self.keys)} AS mixed",
            f"{key_order.rank_sql(self.keys, self.order_by)} AS rank",
            f"{key_order.last_of_partition_sql(self.keys, self.order_by) if self.order_by else 'false'} AS tied",
        )
        tie = f"CASE WHEN tied THEN CASE WHEN deletes THEN '{_DELETED}' ELSE CAST(hash AS STRING) END END"
        tied = self._hashed(ranked).selectExpr("*", f"collect_set({tie}) OVER (PARTITION BY key) AS ties")
        return tied.where("rank = 1")

    def table_rows(self) -> DataFrame:
        """Return the table's rows with the columns `key`, `row`, `bucket`, `hash` (see the class) and `place`.

        `place` is `before`, `within` or `after`, and says where the offset of the row's record is relative to the
        compared offsets. It is null if the table lacks the record's partition or offset, or if the partition is not
        compared.
        """
        return self._hashed(self.table.selectExpr(*self._structs(), f"{self._place()} AS place"))

    def _known_at(self) -> dict[str, str]:
        if not any(rows.placeholder for rows in self.routing.rows.values()):
            return {}
        return key_order.columns_with_placeholders(StructType(list(self.fields)), self.keys, self.order_by)

    def _structs(self) -> tuple[str, str]:
        names = [each.name for each in self.fields]
        key, row = (", ".join(map(_quoted, each)) for each in (self.keys, names))
        return f"struct({key}) AS key", f"struct({row}) AS row"

    def _place(self) -> str:
        if not self.has_positions:
            return "CAST(NULL AS STRING)"
        topic = min((partition.topic for partition in self.offsets), default="")
        name = _quoted(self.kafka["topic"]) if "topic" in self.kafka else sql_text(topic)
        partition, offset = _quoted(self.kafka["partition"]), _quoted(self.kafka["offset"])
        start, end = (
            f"from_json({sql_text(orjson.dumps(values).decode())}, 'MAP<STRING, BIGINT>')[concat({name}, '/', "
            f"{partition})]"
            for values in (
                {f"{each.topic}/{each.partition}": offsets.start for each, offsets in self.offsets.items()},
                {f"{each.topic}/{each.partition}": offsets.end for each, offsets in self.offsets.items()},
            )
        )
        return (
            f"CASE WHEN {offset} < {start} THEN 'before' WHEN {offset} < {end} THEN 'within' "
            f"WHEN {offset} >= {end} THEN 'after' END"
        )

    def _hashed(self, rows: DataFrame) -> DataFrame:
        names = {f"row.{_quoted(each.name)}": each.dataType for each in self.fields}
        values = (f"{name} IS NULL, {_flat(name, kind)}" for name, kind in names.items())
        return rows.selectExpr(
            "*", f"pmod(xxhash64(key), {BUCKETS}) AS bucket", f"xxhash64({', '.join(values)}) AS hash"
        )


def compare(sides: LatestSides, report: LatestReport) -> LatestReport:
    """Compare the sums of topics and table by bucket, and then the rows of the buckets whose sums differ.

    Return a copy of `report` with the numbers of rows and the differences that were found.

    Raises:
        ConfigurationError: a key has records in several partitions, and `ingest.orderBy` is not set.
    """
    early = "place = 'before' OR place IS NULL" if sides.has_positions and not sides.is_whole else "false"
    topic = sides.topic_rows().groupBy("bucket").agg(
        *hash_sums("CASE WHEN NOT deletes THEN hash END", "topic_"), sql.max("mixed").alias("mixed")
    )  # fmt: skip
    table = sides.table_rows().groupBy("bucket").agg(
        *hash_sums(f"CASE WHEN NOT ({early}) THEN hash END"), sql.expr(f"count_if({early}) AS outside")
    )  # fmt: skip
    equal = " AND ".join(f"coalesce(topic_{name}, 0) = coalesce({name}, 0)" for name in FIGURES)
    figures = "bucket", f"{equal} AS equal", "coalesce(topic_records, 0) AS rows", "coalesce(outside, 0)", "mixed"
    rows = topic.join(table, "bucket", "full_outer").selectExpr(*figures).collect()
    mixed = next((row["mixed"] for row in rows if row["mixed"] is not None), None)
    if mixed is not None and sides.order_by is None:
        raise ConfigurationError(
            f"a key of the table has records in the partitions {mixed}, and Kafka gives them no order: set "
            f"{ORDER_BY.name} to a column that does, such as timestamp"
        )
    differing = [row["bucket"] for row in rows if not row["equal"]]
    outside = sum(row[3] for row in rows if row["equal"])
    report = replace(report, topic_rows=sum(row["rows"] for row in rows), table_outside=outside)
    return _with_differences(sides, differing, report) if differing else report


def _with_differences(sides: LatestSides, buckets: Sequence[int], report: LatestReport) -> LatestReport:
    """Compare the rows of `buckets` key by key; return a copy of `report` with the differences."""
    chosen = f"bucket IN ({', '.join(map(str, buckets))})"
    over = "OVER (PARTITION BY key"
    theirs = sides.table_rows().where(chosen)
    theirs = theirs.selectExpr("*", f"count(*) {over}) AS copies", f"row_number() {over} ORDER BY hash) AS number")
    both = sides.topic_rows().where(chosen).alias("ours")
    both = both.join(theirs.where("number = 1").alias("theirs"), sql.expr("ours.key <=> theirs.key"), "full_outer")
    kinds = both.selectExpr("*", _column_texts(sides.fields)).selectExpr(
        f"{_kind(sides)} AS kind", _key_texts(sides), "texts", "coalesce(copies, 0) AS copies",
        "coalesce(record, '') AS record", "coalesce(deletes, false) AS deletes",
    ).where("kind IS NOT NULL")  # fmt: skip
    kinds.persist(StorageLevel.DISK_ONLY)
    try:
        counted = kinds.groupBy("kind").agg(sql.count("*"), sql.sum("copies")).collect()
        counts = {row["kind"]: (row[1], row[2]) for row in counted}
        named: list[RowDifference] = []
        for kind in (kind for kind in Kind if kind.value in counts):
            some = kinds.where(f"kind = '{kind.value}'").orderBy("keys").limit(NAMED).collect()
            named += [_difference(sides, kind, row) for row in some]
    finally:
        kinds.unpersist()
    found = tuple((kind, counts[kind.value][0]) for kind in Kind if kind.value in counts)
    outside, tied = counts.get(_OUTSIDE, (0, 0))[1], counts.get(_TIED, (0, 0))[0]
    return replace(
        report, table_outside=report.table_outside + outside, counts=found, differences=tuple(named),
        changed=not (found or outside or tied),
    )  # fmt: skip


def _kind(sides: LatestSides) -> str:
    """Return an SQL expression for how a key's row in the table differs from the key's last record in the topics.

    Its value is a value of `Kind`, or null if there is no difference. `_OUTSIDE` means that the compared records do not
    show whether there is a difference. `_TIED` means that the table has the row of another record with the same value
    of `ingest.orderBy`, or lacks the row because this record deletes it.
    """
    newer = "coalesce(place = 'after', false)"
    if not sides.has_positions and sides.order_by is not None and sides.is_part:
        newer = "coalesce(theirs.row.{0} > ours.row.{0}, false)".format(_quoted(sides.order_by))
    # A key that no compared record has is extra only if its record must be among the compared records.
    known = "place = 'within'" if sides.has_positions else "false"
    if sides.is_whole and not sides.is_part:
        known = "true"
    return f"""CASE
        WHEN copies IS NULL THEN CASE
            WHEN array_contains(ties, '{_DELETED}') AND NOT deletes THEN '{_TIED}'
            WHEN NOT deletes THEN 'missing'
        END
        WHEN copies > 1 THEN 'doubled'
        WHEN {newer} THEN '{_OUTSIDE}'
        WHEN record IS NULL THEN CASE WHEN {known} THEN 'extra' ELSE '{_OUTSIDE}' END
        WHEN array_contains(ties, CAST(theirs.hash AS STRING)) THEN CASE
            WHEN deletes OR ours.hash <> theirs.hash THEN '{_TIED}'
        END
        WHEN deletes THEN 'extra'
        WHEN ours.hash <> theirs.hash THEN CASE
            WHEN size(unknown) > 0 AND size(array_compact(texts)) = 0 THEN '{_OUTSIDE}'
            ELSE 'different'
        END
    END"""


def _key_texts(sides: LatestSides) -> str:
    """Return SQL for the column `keys`: an array with the text of each key column."""
    kinds = {each.name: each.dataType for each in sides.fields}
    texts = (_text(f"coalesce(ours.key, theirs.key).{_quoted(key)}", kinds[key]) for key in sides.keys)
    return f"array({', '.join(f'substring({text}, 1, {_SHOWN})' for text in texts)}) AS keys"


def _column_texts(fields: Sequence[StructField]) -> str:
    """Return SQL for the column `texts`: an array with the topic's and the table's text of each compared column.

    An item is null if the two texts are equal, or if no compared record has the value.
    """
    pairs = []
    for each in fields:
        ours, theirs = (_text(f"{side}.row.{_quoted(each.name)}", each.dataType) for side in ("ours", "theirs"))
        shown = (f"coalesce(substring({text}, 1, {_SHOWN}), 'null')" for text in (ours, theirs))
        is_known = f"NOT array_contains(unknown, {sql_text(each.name)})"
        pairs.append(f"CASE WHEN NOT {ours} <=> {theirs} AND {is_known} THEN array({', '.join(shown)}) END")
    return f"array({', '.join(pairs)}) AS texts"


def _text(value: str, kind: DataType) -> str:
    if isinstance(kind, BinaryType):
        return f"concat('X', hex({value}))"
    return f"CAST({_flat(value, kind)} AS STRING)"


def _flat(value: str, kind: DataType) -> str:
    """Return an SQL expression for the value `value` of type `kind` in a form that `xxhash64` hashes completely.

    A nested value becomes JSON, because `xxhash64` skips nulls in a struct. Any other value is unchanged.
    """
    is_nested = isinstance(kind, StructType | ArrayType | MapType)
    return f"to_json(struct({value}), {_JSON})" if is_nested else value


def _quoted(name: str) -> str:
    return sql_name([name])


def _as_in_table(rows: DataFrame, column: StructField) -> Column:
    """Return a column of the topics' `rows` with the name and the type of the table's column `column`.

    If `rows` lacks the column, its value is null, as in a row that the ingest job's MERGE writes.
    """
    own = next((each for each in rows.schema if each.name.lower() == column.name.lower()), None)
    if own is None:
        return sql.lit(None).cast(column.dataType).alias(column.name)
    value = rows[_quoted(own.name)]
    # Nothing is cast without need, because Spark casts no struct to one whose fields are NOT NULL.
    is_same = own.dataType.simpleString() == column.dataType.simpleString()
    return (value if is_same else value.cast(column.dataType)).alias(column.name)


def _difference(sides: LatestSides, kind: Kind, row: Row) -> RowDifference:
    names = (each.name for each in sides.fields)
    columns = tuple(
        ColumnDifference(name, *texts) for name, texts in zip(names, row["texts"], strict=True) if texts is not None
    )
    key = tuple(zip(sides.keys, row["keys"], strict=True))
    columns = columns if kind is Kind.DIFFERENT else ()
    return RowDifference(key, kind, row["copies"], row["record"], row["deletes"], columns)

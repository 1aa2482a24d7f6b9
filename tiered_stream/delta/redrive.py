"""Dead letters that decode by now, brought into their tables, each once, whatever crashes in between.

Three commits, each of which may be the last before a crash. The mended letters are marked with the number of the
redrive; their rows are appended to the topic's table, under an application transaction of that number; the letters are
deleted. Who finds marked letters goes on with that number: Delta leaves out an append whose transaction the table has.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import orjson
import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from tiered_stream.delta.address import TableAddress, find_address, make_by_spark, table_location
from tiered_stream.delta.delta_spark_commit import DeltaSparkTable
from tiered_stream.delta.ingest_settings import table_files, table_properties
from tiered_stream.delta.java_errors import spark_errors
from tiered_stream.delta.landing_by_topic import plan_formats, plan_routing
from tiered_stream.delta.lane import check_fit, table_rules
from tiered_stream.delta.routing import Route, Routing, TableTarget
from tiered_stream.delta.row_schema import fit_to_table, written_columns
from tiered_stream.delta.row_settings import DEAD_LETTER_TABLE
from tiered_stream.delta.spark_rows import RECORD_KEYS, Batches, decoded_batches, with_day
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.formats.row_choices import Evolution, OnDecodeError
from tiered_stream.formats.row_format import RowFormat
from tiered_stream.formats.table_rules import certain_rules
from tiered_stream.options.given import GivenOptions
from tiered_stream.options.spark_options import ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN

log = logging.getLogger(__name__)

_STILL = "topic STRING, partition INT, offset BIGINT, reason STRING"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which dead letters; times in ms since the epoch, the end not included."""

    topics: Sequence[str] | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def of(self, letters: DataFrame) -> DataFrame:
        if self.topics is not None:
            letters = letters.where(sql.col("topic").isin(list(self.topics)))
        if self.from_ms is not None:
            letters = letters.where(sql.col("timestamp") >= sql.timestamp_millis(sql.lit(self.from_ms)))
        if self.to_ms is not None:
            letters = letters.where(sql.col("timestamp") < sql.timestamp_millis(sql.lit(self.to_ms)))
        return letters


@dataclass(frozen=True)
class RedriveReport:
    """What a redrive did, or in a dry run would do."""

    dry_run: bool
    mended: Mapping[str, int] = field(default_factory=dict)
    """Rows by table."""
    left: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Of the chosen letters, by topic and reason as it is today."""

    def to_json(self) -> str:
        left = [{"topic": topic, "reason": reason, "letters": count} for (topic, reason), count in self.left.items()]
        return orjson.dumps({"dryRun": self.dry_run, "mended": dict(self.mended), "left": left}).decode()


def redrive(
    spark: SparkSession, settings: Mapping[str, str], table: str, chosen: Chosen, *, dry_run: bool = False
) -> RedriveReport:
    """Decode dead letters anew, by today's settings, and bring what decodes into the tables.

    `settings` are those of the ingest job, and `table` is its `ingest.table`.

    Raises:
        ConfigurationError: a setting is wrong, or a table does not fit.
        TableError: a table cannot be reached, or refuses the rows.
    """
    name = GivenOptions(settings).read(DEAD_LETTER_TABLE)
    if name is None:
        raise ConfigurationError(f"{DEAD_LETTER_TABLE.name} is not set: it names the table to redrive")
    address = find_address(spark, name)
    found = None if address.uri is None else DeltaSparkTable(spark, address).find()
    if found is None:
        raise TableError(f"the table {name} for dead letters is not there")
    run = _Redrive(spark, address, found.state.description.table_id, _routing(spark, settings, table), dry_run=dry_run)
    mended: Counter[str] = Counter()
    if not dry_run:
        for number in run.unfinished():
            log.info("%s: redrive %d was not finished; going on with it", name, number)
            mended += run.finish(number)
    left, ready = run.attempt(chosen)
    if dry_run:
        return RedriveReport(dry_run, ready, left)
    number = _version(spark, address)
    run.mark(number, chosen)
    return RedriveReport(dry_run, mended + run.finish(number), left)


def _routing(spark: SparkSession, settings: Mapping[str, str], table: str) -> Routing:
    from tiered_stream.delta.landing_by_topic import is_by_topic

    if is_by_topic(settings, table):
        return plan_routing(spark, settings, table, "auto")
    rows, places = plan_formats(spark, settings, {})
    uri = find_address(spark, table).uri or ""
    return Routing(settings, replace(table_files(settings), uri=uri), (Route(".*", table, uri),), {}, rows, places)


def _version(spark: SparkSession, address: TableAddress) -> int:
    return DeltaSparkTable(spark, address).begin().state.version


class _Redrive:
    def __init__(
        self, spark: SparkSession, address: TableAddress, table_id: str, routing: Routing, *, dry_run: bool
    ) -> None:
        self._spark = spark
        self._address = address
        self._name = address.sql_name
        self._table_id = table_id
        self._routing = routing
        self._dry_run = dry_run
        self._rows: dict[str, RowFormat] = {}

    def unfinished(self) -> list[int]:
        """The numbers of redrives that left marked letters, the first one first."""
        numbers = self._letters().where(sql.col("redrive").isNotNull()).select("redrive").distinct().collect()
        return sorted(int(row[0]) for row in numbers)

    def attempt(self, chosen: Chosen) -> tuple[dict[tuple[str, str], int], dict[str, int]]:
        """What would be left, by topic and reason, and how many rows would go to each table."""
        tried = self._tried(self._fresh(chosen)).groupBy("topic", "reason").count().collect()
        left = {(row["topic"], row["reason"]): int(row["count"]) for row in tried if row["reason"] is not None}
        ready: Counter[str] = Counter()
        for row in tried:
            if row["reason"] is None:
                ready[self._routing.target(row["topic"]).name] += int(row["count"])
        return dict(sorted(left.items())), dict(ready)

    def mark(self, number: int, chosen: Chosen) -> None:
        """Mark those that decode."""
        mended = self._tried(self._fresh(chosen)).where("reason IS NULL")
        self._set_mark(mended, "IS NULL", str(number))

    def finish(self, number: int) -> Counter[str]:
        """Bring the marked letters in, and delete them; the rows by table."""
        marked = self._letters().where(sql.col("redrive") == number)
        mended: Counter[str] = Counter()
        for row in marked.groupBy("topic").count().orderBy("topic").collect():
            topic, target = row["topic"], self._routing.target(row["topic"])
            mended[target.name] += self._finish_topic(number, topic, target, marked.where(sql.col("topic") == topic))
        return mended

    def _finish_topic(self, number: int, topic: str, target: TableTarget, letters: DataFrame) -> int:
        address = find_address(self._spark, target.name)
        how = self._how(topic)
        day = target.files.day_column
        transaction = f"tiered-stream redrive {self._table_id} {topic}"
        count = 0
        appended = DeltaSparkTable(self._spark, address).begin().last_batch(transaction)
        if appended is None or appended < number:
            # Settings may be others than when they were marked.
            self._set_mark(self._tried(letters).where("reason IS NOT NULL"), f"= {number}", "NULL")
            rows = _distinct(letters).mapInArrow(_to_rows(how, day), written_columns(how, day))
            count = rows.count()
            writer = rows.write.format("delta").mode("append").option("txnAppId", transaction)
            with spark_errors(target.name, "appended to"):
                writer.option("txnVersion", number).save(table_location(self._spark, address))
        self._delete(number, topic)
        return count

    def _delete(self, number: int, topic: str) -> None:
        with spark_errors(str(self._address), "changed"):
            # Not by a statement: a topic is whatever somebody has written into the table.
            letters = DeltaTable.forName(self._spark, self._name)
            letters.delete((sql.col("redrive") == number) & (sql.col("topic") == topic))

    def _set_mark(self, keys: DataFrame, now: str, then: str) -> None:
        same = " AND ".join(f"letter.`{name}` = given.`{name}`" for name in RECORD_KEYS)
        keys.select(*RECORD_KEYS).distinct().createOrReplaceTempView("tiered_stream_redrive")
        with spark_errors(str(self._address), "changed"):
            self._spark.sql(
                f"MERGE INTO {self._name} letter USING tiered_stream_redrive given ON {same} AND letter.redrive {now} "
                f"WHEN MATCHED THEN UPDATE SET redrive = {then}"
            )

    def _letters(self) -> DataFrame:
        """Those of the job's topics: other jobs may set theirs aside in the same table."""
        return self._spark.table(self._name).where(_subscribed(self._routing.settings))

    def _fresh(self, chosen: Chosen) -> DataFrame:
        return chosen.of(self._letters().where(sql.col("redrive").isNull()))

    def _tried(self, letters: DataFrame) -> DataFrame:
        """The letters' keys, each with today's reason, null where it decodes."""
        topics = [row[0] for row in letters.select("topic").distinct().collect()]
        return letters.mapInArrow(_to_reasons({topic: self._how(topic) for topic in topics}), _STILL)

    def _how(self, topic: str) -> RowFormat:
        """What the topic's rows are, as their table has them; the table is made when it is missing."""
        if topic not in self._rows:
            target = self._routing.target(topic)
            assert target.rows
            how = replace(target.rows, on_error=OnDecodeError.DEAD_LETTER, evolution=Evolution.NONE)
            self._rows[topic] = self._fitted(how, target)
        return self._rows[topic]

    def _fitted(self, how: RowFormat, target: TableTarget) -> RowFormat:
        address, day = find_address(self._spark, target.name), target.files.day_column
        if not self._dry_run:
            given = table_properties(target.settings)
            make_by_spark(self._spark, address, target.schema, day, given, target.files.cluster_by)
            address = find_address(self._spark, target.name)
        found = None if address.uri is None else DeltaSparkTable(self._spark, address).find()
        if found is None:
            return how
        table = found.state.description
        how = fit_to_table(how, table.fields)
        check_fit(target.name, table, written_columns(how, day), day)
        # What cannot be asked here Delta itself refuses.
        return replace(how, rules=certain_rules(table_rules(table), how.written))


def _subscribed(settings: Mapping[str, str]) -> Column:
    given = GivenOptions(settings)
    pattern = given.read(SUBSCRIBE_PATTERN)
    if pattern is not None:
        return sql.col("topic").rlike(pattern)
    topics = given.read(SUBSCRIBE) or sorted({each.topic for each in given.read(ASSIGN)})
    if not topics:
        raise ConfigurationError(
            "one of subscribe, subscribePattern and assign must be set, as for the job: it says whose letters these are"
        )
    return sql.col("topic").isin(list(topics))


def _distinct(letters: DataFrame) -> DataFrame:
    """Two queries may have set the same record aside."""
    return letters.dropDuplicates([*RECORD_KEYS, "timestamp", "key", "value"])


def _to_rows(how: RowFormat, day_column: str | None) -> Callable[[Batches], Batches]:
    def rows(batches: Batches) -> Batches:
        for _, found in decoded_batches({"": how}, batches):
            yield _bare(with_day(found.rows, day_column))

    return rows


def _to_reasons(hows: Mapping[str, RowFormat]) -> Callable[[Batches], Batches]:
    def reasons(batches: Batches) -> Batches:
        for letters, found in decoded_batches(hows, batches):
            keys = {name: letters.column(name) for name in RECORD_KEYS}
            told: list[str | None] = [None] * letters.num_rows
            if found.dead is not None:
                slots = np.searchsorted(letters.column("offset").to_numpy(), found.dead.column("offset").to_numpy())
                for slot, reason in zip(slots, found.dead.column("reason").to_pylist(), strict=True):
                    told[slot] = reason
            yield pa.RecordBatch.from_pydict({**keys, "reason": pa.array(told, pa.string())})

    return reasons


def _bare(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without what fields say of themselves, as Spark takes it."""
    schema = pa.schema([(each.name, each.type) for each in batch.schema])
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)

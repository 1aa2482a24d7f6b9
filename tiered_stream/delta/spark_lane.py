"""The Spark lane: rows go through Spark's Delta sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from tiered_stream.delta.address import TableAddress, find_address, make_by_spark, table_location
from tiered_stream.delta.days import spark_day
from tiered_stream.delta.dead_letters import check_limit, dead_letter_columns
from tiered_stream.delta.ingest_settings import TableFiles, source_options, table_properties, with_overrides
from tiered_stream.delta.query_run import BoundedRun, QueryRun, query_id_of
from tiered_stream.delta.row_schema import shared_columns
from tiered_stream.delta.row_settings import evolution_of, row_settings
from tiered_stream.delta.spark_rows import classified, dead_letters, good_rows
from tiered_stream.formats.row_choices import Evolution
from tiered_stream.formats.row_format import RowFormat
from tiered_stream.formats.table_rules import certain_rules
from tiered_stream.options.spark_options import INCLUDE_HEADERS
from tiered_stream.source import register


@dataclass(frozen=True)
class SparkLane:
    """A query that is ready to start; `rows` by topic, one of '' being for all others."""

    spark: SparkSession
    settings: Mapping[str, str]
    address: TableAddress
    files: TableFiles
    rows: Mapping[str, RowFormat]
    run: QueryRun
    bounded: BoundedRun | None

    def start(self) -> StreamingQuery:
        """Start it.

        Raises:
            TableError: the table for dead letters cannot be made.
        """
        register(self.spark)
        dead_letter_table = row_settings(self.settings).dead_letter_table
        options: Mapping[str, str] = source_options(self.settings)
        if dead_letter_table or any(how.keeps_headers for how in self.rows.values()):
            options = with_overrides(options, {INCLUDE_HEADERS.name: "true"})
        records = self.spark.readStream.format("tiered_stream").options(**options).load()
        if dead_letter_table:
            return self._start_with_dead_letters(dead_letter_table, records)
        rows = self._table_rows(records)
        if self.bounded:
            return self._start_bounded(self.bounded, rows)
        writer = self.run.configured(rows.writeStream.format("delta").outputMode("append"))
        writer = writer.options(**self._growth)
        if self.files.day_column:
            writer = writer.partitionBy(self.files.day_column)
        return writer.start(self.address.path) if self.address.path else writer.toTable(str(self.address))

    @property
    def _growth(self) -> dict[str, str]:
        """Delta's option by which new columns become the table's; without it the session decides."""
        return {} if evolution_of(self.settings) is Evolution.NONE else {"mergeSchema": "true"}

    def _decoded(self, records: DataFrame) -> DataFrame:
        """Rows and dead letters, with what can be asked of rows here; Delta itself refuses what breaks the rest."""
        hows = {
            topic: replace(how, evolution=Evolution.NONE, rules=certain_rules(how.rules, how.written))
            for topic, how in self.rows.items()
        }
        day = self.files.day_column
        return classified(records, hows, shared_columns(self.rows.values(), day), day)

    def _table_rows(self, records: DataFrame) -> DataFrame:
        """The rows, where nothing is set aside."""
        if not all(how.is_plain for how in self.rows.values()):
            return good_rows(self._decoded(records))
        day = self.files.day_column
        return records.withColumn(day, sql.expr(spark_day())) if day else records

    def _start_bounded(self, bounded: BoundedRun, rows: DataFrame) -> StreamingQuery:
        location = table_location(self.spark, self.address)

        def write(batch: DataFrame, batch_id: int) -> None:
            _append(batch, location, bounded.transaction_id, batch_id, self._growth, bounded.replace_where)

        return self.run.configured(bounded.limited(rows).writeStream.foreachBatch(write)).start()

    def _start_with_dead_letters(self, table: str, records: DataFrame) -> StreamingQuery:
        bounded = self.bounded
        place, aside = table_location(self.spark, self.address), self._place_aside(table)
        limit = row_settings(self.settings).max_dead_letters

        def write(batch: DataFrame, batch_id: int) -> None:
            transaction = bounded.transaction_id if bounded else query_id_of(batch)
            found = self._decoded(batch).persist()
            try:
                letters = dead_letters(found)
                dead = letters.count()
                check_limit(limit, dead, found.count(), table)
                if dead:
                    _append(letters, aside, transaction, batch_id, {})
                replaced = bounded.replace_where if bounded else None
                _append(good_rows(found), place, transaction, batch_id, self._growth, replaced)
            finally:
                found.unpersist()

        return self.run.configured(
            (bounded.limited(records) if bounded else records).writeStream.foreachBatch(write)
        ).start()

    def _place_aside(self, table: str) -> str:
        address = find_address(self.spark, table)
        make_by_spark(self.spark, address, dead_letter_columns(), None, table_properties(self.settings))
        return table_location(self.spark, find_address(self.spark, table))


def _append(
    rows: DataFrame,
    place: str,
    transaction: str,
    batch_id: int,
    options: Mapping[str, str],
    replaced: str | None = None,
) -> None:
    """Delta leaves out a batch whose transaction the table has."""
    writer = rows.write.format("delta").options(**options).mode("append")
    writer = writer.option("txnAppId", transaction).option("txnVersion", batch_id)
    if replaced is not None:
        writer = writer.mode("overwrite").option("replaceWhere", replaced)
    writer.save(place)

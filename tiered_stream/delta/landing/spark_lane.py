"""Queries of the Spark lane, in which the rows go through Spark, and Spark's Delta writer adds them to the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from tiered_stream.delta.catalog.address import TableAddress, create_by_spark, find_address
from tiered_stream.delta.checkpoint.checkpoint_folder import CheckpointFolder
from tiered_stream.delta.checkpoint.query_run import QueryRun, by_micro_batch, query_id_of
from tiered_stream.delta.checkpoint.query_tables import QueryTablesLog
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint, micro_batch_offsets
from tiered_stream.delta.commit import dead_letters as letters
from tiered_stream.delta.commit.delta_spark_commit import ALL_ROWS, DeltaSparkTable, has_delta_spark
from tiered_stream.delta.commit.table_log import TableLog, landed_before, refuse_landed_before
from tiered_stream.delta.commit.transaction import commit_metadata
from tiered_stream.delta.landing.spark_rows import classify_records, dead_letters, good_rows
from tiered_stream.delta.requirements.lane import TableDescription, check_fit
from tiered_stream.delta.requirements.session_requirements import OUTPUT_TIMESTAMPS, STORE_ASSIGNMENT, codec_option
from tiered_stream.delta.schema.routing import dead_letters_of
from tiered_stream.delta.schema.row_schema import check_times, queried, shared_columns
from tiered_stream.delta.schema.sql_types import parts_of
from tiered_stream.delta.settings import ingest_settings as ingest
from tiered_stream.delta.settings.row_settings import DEAD_LETTER_TABLE, ON_DECODE_ERROR
from tiered_stream.delta.write.waiting_rows import spark_day
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.formats.rows.row_choices import Evolution
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.rows.table_rules import NO_RULES, certain_rules
from tiered_stream.formats.sql.parser import SqlQuery
from tiered_stream.observe.landed_rows import LandedRows, note_landed
from tiered_stream.options.offset_json import notes_of
from tiered_stream.options.spark_options import INCLUDE_HEADERS
from tiered_stream.spark.session import is_connect, refuse_connect
from tiered_stream.spark.source import register


@dataclass(frozen=True)
class SparkLane:
    """Query that is ready to start, and in which Spark's Delta writer adds the rows to the table (Spark lane).

    `rows` are the row formats by topic; '' stands for all other topics. `options` are the source's options. `reachable`
    is true if this process can read the table's log without Spark.
    """

    spark: SparkSession
    address: TableAddress
    spec: ingest.TableSpec
    rows: Mapping[str, RowFormat]
    options: Mapping[str, str] = field(repr=False)  # it may have secrets
    run: QueryRun
    reachable: bool

    def start(self) -> StreamingQuery:
        """Start the query, and create the table for dead letters if it is set and missing.

        Raises:
            ConfigurationError: a table for dead letters is set, but the session does not have delta-spark. Or an
                earlier run of the query has parked a table.
            TableError: the table for dead letters cannot be created, or another run begins with the same checkpoint.
        """
        if not is_connect(self.spark):
            QueryTablesLog(CheckpointFolder(self.spark, self.run.checkpoint)).refuse_parked()
        register(self.spark)
        dead_letter_table = self.spec.rows.dead_letter_table
        options: Mapping[str, str] = self.options
        if dead_letter_table or any(row_format.needs_headers for row_format in self.rows.values()):
            options = ingest.with_overrides(options, {INCLUDE_HEADERS.name: "true"})
        records = self.run.read(self.spark, "tiered_stream", options)
        if dead_letter_table:
            return self._start_with_dead_letters(dead_letter_table, records)
        rows = self._table_rows(records)
        if is_connect(self.spark) or not (self.run.transaction_id or has_delta_spark(self.spark)):
            return self._start_sink(rows)
        return self._start_batches(rows)

    def _start_sink(self, rows: DataFrame) -> StreamingQuery:
        """Start the query with Delta's own sink, for sessions in which this package cannot call delta-spark itself."""
        writer = rows.writeStream.format("delta").outputMode("append").options(**self._options)
        if self.spec.day_column:
            writer = writer.partitionBy(self.spec.day_column)
        if self.address.path is not None:
            writer = writer.option("path", self.address.path)
        return self.run.start(self.spark, writer, self.address.name)

    @property
    def _options(self) -> dict[str, str]:
        """Options of Delta's writer: compression, whether it adds columns, and the condition for rows to replace."""
        growth = {} if self.spec.rows.schema_evolution is Evolution.NONE else {"mergeSchema": "true"}
        replaced = {} if self.run.replace_where is None else {"replaceWhere": self.run.replace_where}
        return growth | codec_option(self.spark, self.spec) | replaced

    def _classified(self, records: DataFrame) -> DataFrame:
        """Decode the records to rows and dead letters; return both in the form of `classify_records`.

        A row that breaks a table rule becomes a dead letter. Rules that the decoder cannot check are left to Delta's
        sink.
        """
        row_formats: dict[str, RowFormat] = {}
        for topic, row_format in self.rows.items():
            rules = certain_rules(row_format.rules, row_format.written)
            if row_format.query is not None:
                # The table's rules are for rows that Spark's SQL makes later, so they are left to Delta's sink.
                row_format, rules = replace(row_format, query=None, selected=None), NO_RULES
            row_formats[topic] = replace(row_format, evolution=Evolution.NONE, rules=rules)
        day = self.spec.day_column
        return classify_records(records, row_formats, shared_columns(row_formats.values(), day), day)

    def _good_rows(self, classified: DataFrame) -> DataFrame:
        """Return the table's rows from `classified`, after `ingest.select` and `ingest.where` if they are set."""
        rows, day, query = good_rows(classified), self.spec.day_column, self._query
        return rows if query is None else queried(rows, query, [day] if day else [])

    @property
    def _query(self) -> SqlQuery | None:
        """The table's `ingest.select` and `ingest.where`; None: they are not set."""
        return next(iter(self.rows.values())).query

    def _table_rows(self, records: DataFrame) -> DataFrame:
        """Return the rows that the table gets from `records`, for a query that has no table for dead letters.

        If `RowFormat.is_plain` is true for every topic, the rows are the unchanged Kafka records, and the day column if
        the table has one. If `RowFormat.is_plain` is false for any topic, all records are decoded, and the rows are
        returned without the dead letters.
        """
        if not all(row_format.is_plain for row_format in self.rows.values()):
            return self._good_rows(self._classified(records))
        day = self.spec.day_column
        return records.withColumn(day, sql.expr(spark_day())) if day else records

    def _start_batches(self, rows: DataFrame) -> StreamingQuery:
        offsets = self._offsets()

        def write(batch: DataFrame, batch_id: int) -> None:
            transaction = self.run.transaction(batch)
            if has_delta_spark(self.spark) and _has(self.spark, self.address, transaction, batch_id):
                return
            _append(batch, self.address, transaction, batch_id, self._options | offsets(transaction, batch_id))

        return self.run.start(self.spark, by_micro_batch(rows, write))

    def _offsets(self) -> Callable[[str, int], dict[str, str]]:
        """Return a function that returns the user metadata of a micro-batch's commit, which names the batch's offsets.

        Its arguments are the query id of the application transaction, and the batch id. Its result is an option of
        Delta's writer, or empty if the offsets are not known. If the log can be read and the table has no batch of this
        query, the first call also checks that no other query has landed the offsets.

        The function raises TableError if another query has landed the offsets (`landed_before`), and CorruptDataError
        or UnsupportedDataError if a file in the checkpoint cannot be read.
        """
        log = TableLog(self.spec) if self.reachable and has_delta_spark(self.spark) else None
        checkpoint = SparkCheckpoint(CheckpointFolder(self.spark, self.run.checkpoint))

        def checked(transaction: str, batch_id: int) -> dict[str, str]:
            nonlocal log
            offsets = micro_batch_offsets(checkpoint, batch_id)
            if offsets is None:
                return {}
            ids = notes_of(offsets.ends).topic_ids
            if log is not None:
                opened = DeltaSparkTable(self.spark, self.address).begin()
                if opened.last_batch(transaction) is None:
                    name, newest = f"the table {self.address}", opened.state.version
                    found = landed_before(log.newest_commits(newest), name, transaction, offsets.ranges, ids)
                    refuse_landed_before(found, fail=self.spec.on_landed_offsets == ingest.FAIL)
                log = None
            return {"userMetadata": commit_metadata(offsets.ranges, ids)}

        return checked

    def _start_with_dead_letters(self, name: str, records: DataFrame) -> StreamingQuery:
        refuse_connect(self.spark, "a table for dead letters")
        if not has_delta_spark(self.spark):
            raise ConfigurationError(
                "a table for dead letters needs delta-spark, but the session has another build of Delta: remove "
                f"{DEAD_LETTER_TABLE.name} and {ON_DECODE_ERROR.name}"
            )
        replaced_records = self.run.replaced_records
        dead_letter_table = self._dead_letter_table(name)
        limit = self.spec.rows.max_dead_letters
        filters = self._query is not None and self._query.where is not None
        offsets = self._offsets()

        def write(batch: DataFrame, batch_id: int) -> None:
            transaction = self.run.transaction(batch)
            landed = LandedRows(str(self.address), 0)
            if not _has(self.spark, self.address, transaction, batch_id):
                options = self._options | offsets(transaction, batch_id)
                classified = self._classified(batch).persist()
                try:
                    dead_letter_rows = dead_letters(classified, self.spec.key, transaction, batch_id)
                    dead_count, count = dead_letter_rows.count(), classified.count()
                    letters.check_limit(limit, dead_count, count, name)
                    dead_letter_table.commit(dead_letter_rows, dead_count, transaction, batch_id)
                    if replaced_records is not None:
                        dead_letter_table.claim_replaced(transaction, replaced_records)
                    rows = self._good_rows(classified)
                    _append(rows, self.address, transaction, batch_id, options)
                    count = rows.count() if filters else count - dead_count
                    landed = LandedRows(str(self.address), count, dead_count, name if dead_count else "")
                finally:
                    classified.unpersist()
            if replaced_records is not None:
                dead_letter_table.remove_claimed(transaction)
            note_landed((query_id_of(batch), batch_id), [landed])

        return self.run.start(self.spark, by_micro_batch(records, write))

    def _dead_letter_table(self, name: str) -> _DeadLetters:
        create_by_spark(self.spark, find_address(self.spark, name), dead_letters_of(self.spec, ""))
        address = find_address(self.spark, name)
        return _DeadLetters(self.spark, address, dead_letters_of(self.spec, address.uri or ""), self.spec.key)


@dataclass(frozen=True)
class _DeadLetters:
    """Table `spec` for the dead letters of a query whose rows go to the table with the key `key` (`TableSpec.key`).

    Dead letters are committed before the rows; `dead_letters.py` describes the order of commits.
    """

    spark: SparkSession
    address: TableAddress
    spec: ingest.TableSpec
    key: str

    def commit(self, dead_letter_rows: DataFrame, count: int, transaction: str, batch_id: int) -> None:
        """Commit the dead letters of a batch that is not yet in the table `key`.

        If an earlier attempt at the batch has committed dead letters, they are removed first. `count` is the number of
        dead letters; if it is 0, nothing is appended. `transaction` is the query id in the dead letters and in the
        application transaction.
        """
        if _has(self.spark, self.address, transaction, batch_id):
            letters.remove_unfinished(self.spark, self.spec, transaction, {self.key: batch_id - 1})
            transaction = letters.new_transaction(transaction)
        if count:
            _append(dead_letter_rows, self.address, transaction, batch_id, codec_option(self.spark, self.spec))

    def claim_replaced(self, transaction: str, replaced: str) -> None:
        """Claim the older dead letters of records whose rows are about to be replaced, so that no redrive takes them.

        A redrive decodes dead letters again. It skips a claimed dead letter, which names a query (`_claimed`) that
        never commits to the table. `replaced` is a SQL condition on Kafka's columns that selects the records. Dead
        letters of the query `transaction` itself are not claimed.

        Raises:
            TableError: a redrive has begun with dead letters of these records, or the dead letters cannot be changed.
        """
        ours = sql.col("target") == sql.lit(self.key)
        older = sql.col("query").isNull() | (sql.col("query") != sql.lit(transaction))
        claimed = {"target": sql.lit(self.key), "query": sql.lit(_claimed(transaction)), "batch": sql.lit(0)}
        which, marked = ours & older & sql.expr(replaced), sql.col("redrive").isNotNull()
        letters.update_dead_letters(self.spark, self.spec, which & ~marked, claimed)
        # Claimed dead letters cannot be marked, so it is enough to check after the claim.
        if letters.has_dead_letters(self.spark, self.spec, which & marked):
            raise TableError(
                f"a redrive has begun with dead letters of these records in {self.spec.name}, and is not at its end: "
                "bring it there with `tiered-stream redrive`, and start the replay again"
            )

    def remove_claimed(self, transaction: str) -> None:
        """Remove the dead letters that `claim_replaced` has claimed for the query `transaction`.

        Call this method after the commit that replaces the rows. It raises TableError if Spark cannot remove them.
        """
        claimed = (sql.col("target") == sql.lit(self.key)) & (sql.col("query") == sql.lit(_claimed(transaction)))
        letters.remove_dead_letters(self.spark, self.spec, claimed)


def _claimed(transaction: str) -> str:
    return f"replaced by {transaction}"


def _has(spark: SparkSession, address: TableAddress, transaction: str, batch_id: int) -> bool:
    newest = DeltaSparkTable(spark, address).begin().last_batch(transaction)
    return newest is not None and newest >= batch_id


def _append(
    rows: DataFrame, address: TableAddress, transaction: str, batch_id: int, options: Mapping[str, str]
) -> None:
    """Append rows to the table at `address`, under the application transaction (`transaction`, `batch_id`).

    `options` are options of Delta's writer. If they have `replaceWhere`, the table's rows that meet this SQL condition
    are replaced by `rows`. Delta skips the write if the table already has this transaction or a later one.
    """
    for name, value in ALL_ROWS.items():  # Delta reads the rows that stay, in the session of this query alone
        rows.sparkSession.conf.set(name, value)
    writer = rows.write.format("delta").options(**options).mode("overwrite" if "replaceWhere" in options else "append")
    writer = writer.option("txnAppId", transaction).option("txnVersion", batch_id)
    # By the name or path that the user gave, because a catalog may refuse access by paths.
    if address.name is not None:
        writer.saveAsTable(address.name)
    else:
        writer.save(address.location)


# Checks that Spark's Delta sink would not change values silently.
#
# Values could be changed because of a session setting, or because a column's type in the table differs.

GetSetting = Callable[[str], str | None]
_LEGACY, _MILLIS = "LEGACY", "TIMESTAMP_MILLIS"


def check_spark_sink(
    setting: GetSetting, spec: ingest.TableSpec, description: TableDescription, *, typed: bool
) -> None:
    """Check that Spark's Delta sink would store the written values unchanged.

    Args:
        setting: function that returns the value of a session setting, or None if it is not set.
        spec: specification of the table, with the columns of the rows.
        description: the table's metadata and protocol.
        typed: true if the rows have columns other than Kafka's columns.

    Raises:
        ConfigurationError: the sink would cut or cast values; the error says what to set.
    """
    check_times(spec.name, description.fields, spec.schema)
    has_instants = "timestamp" in parts_of(spec.schema.jsonValue())
    if typed and has_instants and (setting(OUTPUT_TIMESTAMPS) or "").upper() == _MILLIS:
        raise ConfigurationError(
            f"{OUTPUT_TIMESTAMPS} is {_MILLIS}, by which Spark's Delta sink would cut microseconds off the times in "
            f"{spec.name}: set it to TIMESTAMP_MICROS, or remove it"
        )
    if (setting(STORE_ASSIGNMENT) or "").upper() == _LEGACY:
        try:
            check_fit(spec.name, description, spec.schema, spec.day_column)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error}. {STORE_ASSIGNMENT} is {_LEGACY}, by which Spark would cut values until they fit: set it "
                "to ANSI to let Spark cast what can be cast"
            ) from error

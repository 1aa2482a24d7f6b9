"""Redrive, which decodes dead letters again and moves dead letters that decode now into the tables of their topics.

A redrive makes three commits: it marks the dead letters that decode, appends their rows to the topic's table, and
deletes the dead letters. A table with `ingest.mode=upsert` gets the rows by a MERGE, which leaves newer rows unchanged
(`KeyedRows`). Each row is appended exactly once, even if a redrive crashes after one of these commits, or if several
redrives run at once. `dead_letter_marks.py` describes how.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from tiered_stream.delta.catalog.address import create_by_spark, find_address
from tiered_stream.delta.catalog.java_errors import own_error, spark_errors
from tiered_stream.delta.commit.delta_spark_commit import find_by_spark, reading_all_rows
from tiered_stream.delta.landing.landing_by_topic import is_by_topic, plan_formats, plan_routing, table_folder
from tiered_stream.delta.landing.spark_rows import RECORD_KEYS, Batches, decoded_batches, with_day
from tiered_stream.delta.redrive import dead_letter_marks
from tiered_stream.delta.redrive.job_dead_letters import DeadLetterFilter, JobDeadLetters, UnmarkedDeadLetters
from tiered_stream.delta.redrive.redriven_table import KEY, KeyedRows, RedrivenTable, is_shared
from tiered_stream.delta.requirements.lane import check_fit
from tiered_stream.delta.requirements.merge_requirements import fitted_rows
from tiered_stream.delta.requirements.session_requirements import SESSION_TRANSACTION
from tiered_stream.delta.schema.routing import Route, Routing
from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.delta.schema.sql_types import sql_type
from tiered_stream.delta.settings.ingest_settings import TableSpec, table_spec
from tiered_stream.delta.settings.query_settings import query_settings
from tiered_stream.delta.settings.row_settings import DEAD_LETTER_TABLE
from tiered_stream.delta.write.latest_rows import STAGED, staged
from tiered_stream.errors import ConfigurationError, TableError, TieredStreamError
from tiered_stream.extras import check_installed
from tiered_stream.formats.row_decoder import DecodedRows
from tiered_stream.formats.rows.kafka_columns import OFFSET, kafka_column, table_columns
from tiered_stream.formats.rows.row_choices import Evolution, OnDecodeError
from tiered_stream.formats.rows.row_format import RowFormat
from tiered_stream.formats.rows.table_rules import certain_rules
from tiered_stream.model import TopicPartition
from tiered_stream.options.parsing import Subscription, parse_subscription

log = logging.getLogger(__name__)

__all__ = ["DeadLetterFilter", "RedriveReport", "redrive"]

_ROUNDS = 3
"""Maximum number of times that one redrive marks dead letters, by writing a number into their column `redrive`.

A redrive marks dead letters again if new ones have come, or if another redrive has given up a number of this redrive.
"""
_TRIED = f"{dead_letter_marks.IDENTITY_COLUMNS}, reason STRING"


@dataclass(frozen=True)
class RedriveReport:
    """Result of a redrive: numbers of dead letters that became rows or stayed dead letters.

    After a dry run, they are the numbers that a redrive would report.
    """

    dry_run: bool
    appended: Mapping[str, int] = field(default_factory=dict)
    """Number of rows appended, by table name."""
    left: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Number of chosen dead letters that are not redriven, by topic and reason.

    The reason says why the dead letters do not decode with the settings of this redrive, or why their table cannot take
    the rows.
    """
    pending: Mapping[str, int] = field(default_factory=dict)
    """Number of chosen dead letters, by topic, whose batch is not yet in the table that the records were meant for."""

    def to_json(self) -> str:
        left = [{"topic": topic, "reason": reason, "letters": count} for (topic, reason), count in self.left.items()]
        values = {"dry_run": self.dry_run, "redriven": dict(self.appended), "left": left, "pending": dict(self.pending)}
        return orjson.dumps(values).decode()


def redrive(
    spark: SparkSession, settings: Mapping[str, str], table: str, chosen: DeadLetterFilter, *, dry_run: bool = False
) -> RedriveReport:
    """Decode dead letters again with `settings`, and move the dead letters that decode into their tables as rows.

    Args:
        settings: current settings of the ingest job. `ingest.deadLetterTable` names the table for dead letters.
        table: the job's `ingest.table`.
        chosen: filter that selects the dead letters.
        dry_run: if true, no table is changed, and the report says what a redrive would do.

    Raises:
        ConfigurationError: a setting is wrong, a table does not fit, or the package pandas is missing.
        TableError: a table cannot be reached, or refuses the rows.
        SchemaRegistryError: the schema registry does not return the schema of a topic.

    If an error is of one topic, the dead letters of other topics are redriven first.
    """
    check_installed("pandas", "a redrive")  # Spark needs it to plan a query with mapInArrow
    _check_session(spark)
    spark, name = reading_all_rows(spark), dead_letter_table(settings)
    transaction = find_by_spark(spark, name)
    if transaction is None:
        raise TableError(f"the table {name} for dead letters is not there")
    marks = dead_letter_marks.DeadLetterMarks(spark, find_address(spark, name))
    table_id, routing = transaction.state.description.table_id, _routing(spark, settings, table)
    run = _Redrive(spark, marks, table_id, routing, parse_subscription(settings), dry_run)
    report = run.run(chosen)
    run.raise_first()
    return report


def dead_letter_table(settings: Mapping[str, str]) -> str:
    """Return the path or name of the table for dead letters; raise ConfigurationError if the settings name none."""
    name = table_spec(settings).rows.dead_letter_table
    if name is None:
        raise ConfigurationError(f"{DEAD_LETTER_TABLE.name} is not set: it names the table to redrive")
    return name


def _check_session(spark: SparkSession) -> None:
    """Raise ConfigurationError if the session's settings give all commits of the session one application transaction.

    Delta would then skip each commit of a redrive after the first one as a repetition of it.
    """
    for name in SESSION_TRANSACTION:
        if spark.conf.get(name, None):
            raise ConfigurationError(
                f"{name} is set, by which Delta leaves out all but the first of a redrive's commits: remove it"
            )


def _routing(spark: SparkSession, settings: Mapping[str, str], table: str) -> Routing:
    query = query_settings(settings)
    if is_by_topic(query, table):
        return plan_routing(spark, query, table, "auto")
    rows, folders = plan_formats(spark, query)
    uri = table_folder(spark, table)
    return Routing(replace(query.spec, uri=uri), (Route(".*", table, uri),), {}, rows, folders)


@dataclass(eq=False)
class _Redrive:
    """One run of a redrive for the dead letters of one job.

    `marks` is the table for dead letters, and `table_id` is Delta's id of this table.
    """

    spark: SparkSession
    marks: dead_letter_marks.DeadLetterMarks
    table_id: str
    routing: Routing
    subscription: Subscription
    dry_run: bool

    def __post_init__(self) -> None:
        self._rows: dict[str, RowFormat] = {}
        self._failed: dict[str, TieredStreamError] = {}
        """First error of each topic whose dead letters cannot be redriven, by topic."""
        self._job = JobDeadLetters(self.subscription, self.routing, self.table, self._keeping_error, self._failed)

    def run(self, chosen: DeadLetterFilter) -> RedriveReport:
        """Redrive the dead letters that pass the filter `chosen` and decode; in a dry run, only count them.

        Errors of single topics are kept for `raise_first`.

        Raises:
            TableError: dead letters decode, but in the last of `_ROUNDS` rounds their table got no row.
        """
        if self.dry_run:
            return self.attempt(chosen)
        appended = self.finish()
        for _ in range(_ROUNDS):
            tried = self.attempt(chosen)
            if not tried.appended:
                break
            self.mark(chosen)
            finished = self.finish()
            appended += finished
        else:
            tried = self.attempt(chosen)
            if tried.appended.keys() - finished.keys() and not self._failed:
                raise TableError(
                    f"letters that decode were marked {_ROUNDS} times, and did not decode when their rows were to be "
                    "appended: another redrive is running with other settings. Run this one again when the other one "
                    "has ended"
                )
        return replace(tried, appended=appended)

    @contextmanager
    def _keeping_error(self, topic: str) -> Iterator[None]:
        """Keep the error of the topic that the `with` block raises for `raise_first`; a topic's first error stays."""
        try:
            yield
        except TieredStreamError as error:
            self._failed.setdefault(topic, error)

    def raise_first(self) -> None:
        """Log the kept errors of all topics, and raise the first one; without errors, do nothing."""
        for topic, error in self._failed.items():
            log.error("dead letters of topic %s: %s", topic, error)
        if self._failed:
            raise next(iter(self._failed.values()))

    def finish(self) -> Counter[str]:
        """Append the rows of all marked dead letters of the job to their tables, and delete these dead letters.

        Dead letters are marked if a redrive, this one or another one, has set their column `redrive`. If marked dead
        letters do not all decode, the column becomes null instead. Errors of single topics are kept for `raise_first`.

        Returns:
            Number of rows appended, by table name.
        """
        appended: Counter[str] = Counter()
        with self.marks.reading():
            marked = self._job.marked(self.marks.dead_letters())
        for number, topic in marked:
            name = self.routing.target(topic).name
            with self._keeping_error(topic), spark_errors(name, "appended to"):
                appended += Counter({name: dead_letter_marks.finish(self._marked(number, topic), name)})
        return appended

    def _marked(self, number: int, topic: str) -> dead_letter_marks.MarkedDeadLetters:
        """Return functions for the topic's dead letters whose column `redrive` is `number`."""
        marks, target = self.marks, self.routing.target(topic)
        table, day = self.table(target), target.day_column
        which = (sql.col("redrive") == number) & (sql.col("topic") == topic)

        def decode() -> bool:
            tried = self._tried(marks.dead_letters().where(which), {topic: self.row_format(topic)})
            return tried.where("reason IS NOT NULL").isEmpty()

        def append() -> int:
            row_format = self.row_format(topic)
            keyed = KeyedRows.of(target, row_format)
            if keyed is not None:
                session = table.merging_session(number, topic)
                records = marks.within(session).dead_letters().where(which)
                columns = StructType([*spark_columns(row_format.written, None), *spark_columns(STAGED, None)])
                rows = records.mapInArrow(_converted(row_format, _staged), columns)
                count = rows.count()
                return count if table.merge(session, rows, keyed) else 0
            # Each record once, because two queries may have written the same record.
            records = marks.dead_letters().where(which).dropDuplicates([*RECORD_KEYS, "timestamp", "key", "value"])
            to_rows = _converted(row_format, lambda _, rows: with_day(rows, day))
            rows = records.mapInArrow(to_rows, spark_columns(row_format.written, day))
            count = rows.count()
            return count if table.append(rows, number, topic) else 0

        return dead_letter_marks.MarkedDeadLetters(
            partial(table.outcome, number, topic), decode, append, partial(table.give_up, number, topic),
            partial(marks.delete, number, topic), partial(marks.clear, number, topic),
        )  # fmt: skip

    def attempt(self, chosen: DeadLetterFilter) -> RedriveReport:
        """Decode the unmarked dead letters that pass the filter `chosen`; the table for dead letters does not change.

        In the result, `appended` has the number of dead letters that decode. Errors of single topics are kept for
        `raise_first`.
        """
        left, ready = Counter[tuple[str, str]](), Counter[str]()
        with self.marks.reading():
            unmarked = self._job.unmarked(self.marks.dead_letters(), chosen)
            rows = self._counted(unmarked, self._row_formats(unmarked))
        for row in rows:
            if row["reason"] is None:
                ready[self.routing.target(row["topic"]).name] += row["count"]
            else:
                left[row["topic"], row["reason"]] += row["count"]
        return RedriveReport(self.dry_run, ready, dict(sorted(left.items())), unmarked.pending)

    def _counted(self, unmarked: UnmarkedDeadLetters, row_formats: Mapping[str, RowFormat]) -> list[Row]:
        """Return the numbers of dead letters by topic and reason (`_tried`), for the topics in `row_formats`.

        One Spark query counts all topics. If this package raises an error in a task of the query, each topic is counted
        by a query of its own. Errors of single topics are kept for `raise_first`.
        """

        def count(of_topics: Mapping[str, RowFormat]) -> list[Row]:
            tried = self._tried(unmarked.of(of_topics), of_topics)
            return tried.groupBy("topic", "reason").count().collect() if of_topics else []

        try:
            return count(row_formats)
        except (Py4JJavaError, PySparkException) as error:
            name, _ = own_error(str(error))
            if not name:
                raise
        rows: list[Row] = []
        for topic, row_format in row_formats.items():
            with self._keeping_error(topic), spark_errors(self.routing.target(topic).name, "checked"):
                rows += count({topic: row_format})
        return rows

    def _row_formats(self, unmarked: UnmarkedDeadLetters) -> dict[str, RowFormat]:
        """Return the row format of each topic of `unmarked`, by topic, without topics that had an error.

        New errors are kept for `raise_first`.
        """
        row_formats: dict[str, RowFormat] = {}
        for topic in unmarked.topics:
            if topic not in self._failed:
                with self._keeping_error(topic):
                    row_formats[topic] = self.row_format(topic)
        return row_formats

    def mark(self, chosen: DeadLetterFilter) -> None:
        """Set the column `redrive` of the dead letters that pass the filter `chosen` and decode.

        All dead letters whose rows go to one table get the same new number in this column.
        """

        def ready() -> DataFrame:
            unmarked = self._job.unmarked(self.marks.dead_letters(), chosen)
            row_formats = self._row_formats(unmarked)
            numbers = defaultdict[str, int](dead_letter_marks.new_number)
            rows = [(topic, numbers[self.routing.target(topic).key]) for topic in row_formats]
            by_topic = sql.broadcast(self.spark.createDataFrame(rows, "topic STRING, number BIGINT"))
            tried_again = self._tried(unmarked.of(row_formats), row_formats)
            return tried_again.where("reason IS NULL").drop("reason").join(by_topic, "topic")

        self.marks.mark(ready)

    def _tried(self, dead_letters: DataFrame, row_formats: Mapping[str, RowFormat]) -> DataFrame:
        """Try to decode each dead letter; return its `identity_columns`, and a column `reason`.

        `reason` says why the dead letter stays a dead letter; null: the table can take its row. `row_formats` are by
        topic.
        """
        keyed, topics = dict[str, KeyedRows](), {"": dict[str, RowFormat]()}
        for topic, row_format in row_formats.items():
            target = self.routing.target(topic)
            rows = KeyedRows.of(target, row_format)
            if rows is not None and rows.order_by is None and find_address(self.spark, target.name).uri:
                keyed[target.name] = rows
            topics.setdefault(target.name if target.name in keyed else "", {})[topic] = row_format
        tried = _try_to_decode(dead_letters, topics.pop(""))
        for name, of_table in topics.items():
            letters = _try_to_decode(dead_letters, of_table, keyed[name].keys)
            with spark_errors(name, "read"):
                table = self.spark.table(find_address(self.spark, name).sql_name)
            tried = tried.unionByName(keyed[name].without_unordered(letters, table, min(of_table)))
        return tried

    def row_format(self, topic: str) -> RowFormat:
        """Return the row format of the topic, with the types and rules of the topic's table.

        If the table is missing, it is created, unless this is a dry run.

        Raises:
            ConfigurationError: the table does not accept the rows, or does not show which record of a key is newer.
            TableError: the table cannot be created or read.
        """
        if topic not in self._rows:
            target = self.routing.target(topic)
            assert target.row_format
            row_format = replace(target.row_format, on_error=OnDecodeError.DEAD_LETTER, evolution=Evolution.NONE)
            keyed = KeyedRows.of(target, row_format)
            if keyed is not None:
                keyed.check_order(target.name, shared=is_shared(self.routing, self.subscription, topic))
            self._rows[topic] = self._fitted(row_format, target)
        return self._rows[topic]

    def table(self, spec: TableSpec) -> RedrivenTable:
        return RedrivenTable(self.spark, spec.name, self.table_id)

    def _fitted(self, row_format: RowFormat, spec: TableSpec) -> RowFormat:
        day = spec.day_column
        if not self.dry_run:
            create_by_spark(self.spark, find_address(self.spark, spec.name), spec)
        transaction = find_by_spark(self.spark, spec.name)
        if transaction is None:
            return row_format
        table = transaction.state.description
        row_format = fitted_rows({"": row_format}, table, spec)[""]
        check_fit(spec.name, table, spark_columns(row_format.written, day), day)
        # Delta itself enforces the rules that cannot be checked here.
        return replace(row_format, rules=certain_rules(row_format.rules, row_format.written))


def _try_to_decode(
    dead_letters: DataFrame, row_formats: Mapping[str, RowFormat], keys: Sequence[str] = ()
) -> DataFrame:
    """Try to decode the dead letters of the topics in `row_formats`; return their `identity_columns`, and `reason`.

    The column `reason` says why the dead letter does not decode now; null: the dead letter decodes. If `keys` is not
    empty, the result also has the column `KEY`: a struct of the row's values in the columns `keys`.
    """
    columns = _TRIED
    if keys:
        written = spark_columns(next(iter(row_formats.values())).written, None)
        kinds = (f"k{number}: {sql_type(written[key].dataType)}" for number, key in enumerate(keys))
        columns += f", {KEY} STRUCT<{', '.join(kinds)}>"
    chosen = dead_letters.where(sql.col("topic").isin(list(row_formats)))
    return chosen.withColumns(dead_letter_marks.identity_columns()).mapInArrow(_to_reasons(row_formats, keys), columns)


def _converted(
    row_format: RowFormat, convert: Callable[[pa.RecordBatch, pa.RecordBatch], pa.RecordBatch]
) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` that turns batches of dead letters into batches of rows.

    `convert` makes each result from a batch of dead letters and the rows decoded from it. The returned function raises
    TableError if a dead letter does not decode.
    """

    def rows(batches: Batches) -> Batches:
        for records, decoded in decoded_batches({"": row_format}, batches):
            _check_decoded(decoded)
            yield _without_metadata(convert(records, decoded.rows))

    return rows


def _staged(records: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    partition = TopicPartition(records.column("topic")[0].as_py(), records.column("partition")[0].as_py())
    with_marks = staged(partition, rows)
    return with_marks.select(table_columns(with_marks.schema).names)


def _check_decoded(decoded: DecodedRows) -> None:
    """Raise TableError if a dead letter does not decode, although it decoded before."""
    if decoded.dead is not None:
        names = (*RECORD_KEYS, "reason")
        topic, partition, offset, reason = (decoded.dead.column(name)[0] for name in names)
        raise TableError(
            f"topic {topic}, partition {partition}, offset {offset} decoded before, and does not now: "
            f"{reason}. Nothing is lost: run the redrive again"
        )


def _to_reasons(row_formats: Mapping[str, RowFormat], keys: Sequence[str]) -> Callable[[Batches], Batches]:
    def reasons(batches: Batches) -> Batches:
        for dead_letters, decoded in decoded_batches(row_formats, batches):
            by_offset: dict[int, str] = {}
            if decoded.dead is not None:
                offsets, texts = (decoded.dead.column(name).to_pylist() for name in ("offset", "reason"))
                by_offset = dict(zip(offsets, texts, strict=True))
            reasons_by_row = [by_offset.get(offset) for offset in dead_letters.column("offset").to_pylist()]
            known = {name: dead_letters.column(name) for name in dead_letter_marks.IDENTITY_NAMES}
            known["reason"] = pa.array(reasons_by_row, pa.string())
            if keys:
                known[KEY] = _keys_of(decoded.rows, keys, dead_letters.column("offset"))
            yield pa.RecordBatch.from_pydict(known)

    return reasons


def _keys_of(rows: pa.RecordBatch, keys: Sequence[str], offsets: pa.Array) -> pa.StructArray:
    """Return, for each of `offsets`, a struct of the columns `keys` of the row with this offset; null: no such row."""
    at = pc.index_in(offsets, kafka_column(rows, OFFSET))
    columns = [rows.column(key).take(at) for key in keys]
    return pa.StructArray.from_arrays(columns, [f"k{number}" for number in range(len(keys))], mask=at.is_null())


def _without_metadata(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with all columns nullable and without metadata of columns, as Spark expects it."""
    schema = pa.schema([(column.name, column.type) for column in batch.schema])
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)

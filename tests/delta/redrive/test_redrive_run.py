"""Dead letters into their tables, once, whatever crashes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from tests.delta.set_aside import SetAside, damage, of
from tests.delta.test_typed_tables import Typed
from tests.rigs.stack.rows import Record
from tests.rigs.stack.spark import configured
from tests.tier.topics import topic_options, write_topic
from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS
from tiered_stream.delta.redrive import dead_letter_marks
from tiered_stream.delta.redrive.dead_letter_marks import DeadLetterMarks
from tiered_stream.delta.redrive.redrive_run import DeadLetterFilter, RedriveReport, _Redrive, redrive
from tiered_stream.delta.schema.routing import Route, Routing
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import SchemaRegistryError, TableError, TieredStreamError
from tiered_stream.options.parsing import Subscription

EVERYTHING = DeadLetterFilter()
JSON = {"ingest.value.format": "json", "ingest.value.schema": "id BIGINT", "ingest.dayColumn": "day"}


class Redriven(Typed):
    """Ten letters of a topic are set aside by a constraint that is then dropped, and one that stays garbage."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        records = [Record(None, b'{"id": %d}' % number) for number in range(20)]
        write_topic(self.bucket, "orders", [[*records, Record(None, b"garbage")]])
        columns = "key BINARY, id BIGINT, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
        columns += ", timestampType INT, day DATE"
        spark.sql(f"CREATE TABLE delta.`{self.table}` ({columns}) USING delta PARTITIONED BY (day)")
        spark.sql(f"ALTER TABLE delta.`{self.table}` ADD CONSTRAINT small CHECK (id < 10)")
        self.run(**JSON, **self.aside)
        spark.sql(f"ALTER TABLE delta.`{self.table}` DROP CONSTRAINT small")

    def redrive(
        self, chosen: DeadLetterFilter = EVERYTHING, *, dry_run: bool = False, pattern: str | None = None
    ) -> RedriveReport:
        settings = topic_options(self.bucket, "orders", {**JSON, **self.aside})
        if pattern is not None:
            del settings["subscribe"]
            settings["subscribePattern"] = pattern
        return redrive(self.spark, settings, str(self.table), chosen, dry_run=dry_run)

    @property
    def ids(self) -> list[int]:
        return sorted(row.id for row in self.read().collect())

    @property
    def letters(self) -> list[int]:
        return sorted(row.offset for row in self.read(self.dead).collect())


def test_what_decodes_by_now_is_brought_in_once_and_the_rest_is_told(spark: SparkSession, tmp_path: Path) -> None:
    table = Redriven(spark, tmp_path)
    assert (table.ids, table.letters) == (list(range(10)), list(range(10, 21)))
    left = {("orders", "no JSON: Expecting value at character 0"): 1}

    dry = table.redrive(dry_run=True)
    assert (dry.appended, dry.left, table.letters) == ({str(table.table): 10}, left, list(range(10, 21)))
    assert table.redrive(DeadLetterFilter(topics=["others"])).left == {}
    assert table.redrive(DeadLetterFilter(to_ms=1_700_000_000_000)).appended == {}
    sessions: Any = spark._jvm and spark._jvm.SparkSession
    in_python = SparkSession._activeSession
    sessions.clearActiveSession()  # as in a thread that has not used Spark
    report = table.redrive(DeadLetterFilter(["orders"], 1_700_000_000_000, 1_700_000_000_001))
    assert (report.appended, report.left) == ({str(table.table): 10}, left)
    assert sessions.getActiveSession().get().equals(spark._jsparkSession), "a copy of the session is active"
    assert SparkSession._activeSession is in_python
    assert (table.ids, table.letters) == (list(range(20)), [20])
    assert table.read().where("day IS NULL").isEmpty()

    assert table.redrive().appended == {}
    assert (table.ids, table.letters) == (list(range(20)), [20])


@pytest.mark.slow
@pytest.mark.parametrize("ignored", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_no_setting_of_the_session_lets_a_redrive_leave_out_letters(
    spark: SparkSession, tmp_path: Path, ignored: str
) -> None:
    table = Redriven(spark, tmp_path)
    damage(table.dead, ignored)
    with configured(spark, {f"spark.sql.files.{ignored}": "true"}), pytest.raises((TableError, *JAVA_ERRORS)):
        table.redrive()


@pytest.mark.slow
def test_a_topic_that_somebody_else_wrote_is_no_part_of_a_statement(spark: SparkSession, tmp_path: Path) -> None:
    table = Redriven(spark, tmp_path)
    foreign = table.read(table.dead).where("offset = 10").withColumn("topic", sql.lit("x' OR '1' = '1"))
    foreign.write.format("delta").mode("append").save(str(table.dead))

    assert table.redrive(pattern=".*").appended == {str(table.table): 11}
    assert (table.ids, table.letters) == (sorted([*range(20), 10]), [20])


@pytest.mark.slow
def test_a_job_takes_no_letters_of_a_topic_whose_name_contains_its_own(spark: SparkSession, tmp_path: Path) -> None:
    aside = SetAside(spark, tmp_path)
    for topic in ("orders", "old-orders-eu"):
        aside.write({0: b'{"id": 0}'}, topic)
        aside.write({1: b'{"id": 1}'}, topic, "other")
    aside.write({2: b'{"id": 2}'}, "others", redrive=1)

    report = aside.redrive({"subscribePattern": "orders"})
    # As Spark's source does, the job reads each topic in whose name the pattern is found.
    assert aside.rows() == of("old-orders-eu", 0) + of("orders", 0)
    assert (aside.letters, report.left) == (of("old-orders-eu", 1) + of("orders", 1) + of("others", 2), {})
    aside.redrive({"subscribePattern": ".*"}, table="other")
    assert (aside.rows("other"), aside.letters) == (of("old-orders-eu", 1) + of("orders", 1), of("others", 2))


@pytest.mark.slow
def test_letters_of_a_batch_that_is_not_finished_are_pending(spark: SparkSession, tmp_path: Path) -> None:
    aside = SetAside(spark, tmp_path)
    aside.create_table()
    committed = aside.read(aside.table()).write.format("delta").mode("append")
    committed.option("txnAppId", "a").option("txnVersion", 3).save(aside.table())
    for offset, (query, batch) in enumerate([("a", 2), ("a", 3), ("a", 4), ("b", 0), (None, None)]):
        aside.write({offset: b'{"id": 1}'}, query=query, batch=batch)
    aside.write({2: b'{"id": 1}'})

    assert aside.redrive(dry_run=True).appended == {aside.table(): 4}
    report = aside.redrive()
    assert (report.appended, report.pending, report.left) == ({aside.table(): 4}, {"orders": 2}, {})
    assert json.loads(report.to_json())["pending"] == {"orders": 2}
    assert (aside.rows(), aside.letters) == (of("orders", 0, 1, 2, 4), of("orders", 2, 3))

    drops_transactions = "delta.setTransactionRetentionDuration = 'interval 1 day'"
    spark.sql(f"ALTER TABLE delta.`{aside.table()}` SET TBLPROPERTIES ({drops_transactions})")
    report = aside.redrive()
    assert (report.appended, report.pending) == ({aside.table(): 1}, {"orders": 1})


@pytest.mark.slow
def test_a_table_that_cannot_be_written_keeps_no_letters_of_other_topics_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    aside = SetAside(spark, tmp_path)
    spark.sql(
        f"CREATE TABLE delta.`{aside.table('a')}` (id BIGINT, name STRING, topic STRING, offset BIGINT) USING delta"
    )
    spark.sql(f"ALTER TABLE delta.`{aside.table('a')}` ADD CONSTRAINT odd CHECK (bit_count(id) = 1)")
    for topic in ("a", "b", "not a topic"):
        aside.write({0: b'{"id": 0}', 1: b"garbage"}, topic, topic)

    with pytest.raises(TableError, match=r"\ba .*Spark"):
        aside.redrive({"subscribePattern": ".*"}, table="{topic}")
    assert (aside.rows("a"), aside.rows("b")) == ([], of("b", 0))
    assert aside.letters == of("a", 0, 1) + of("b", 1) + of("not a topic", 0, 1)

    spark.sql(f"ALTER TABLE delta.`{aside.table('a')}` DROP CONSTRAINT odd")
    report = aside.redrive({"subscribePattern": ".*"}, table="{topic}")
    assert (aside.rows("a"), aside.marks) == (of("a", 0), set())
    assert {topic: count for (topic, _), count in report.left.items()} == {"a": 1, "b": 1}


def fails_on_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """No rows, if there are none."""
    if batch.num_rows:
        raise ValueError("no service")
    return batch


@pytest.mark.slow
def test_an_error_in_tasks_of_one_topic_keeps_no_letters_of_other_topics_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    aside = SetAside(spark, tmp_path)
    for topic in ("a", "b"):
        aside.create_table(topic)
        aside.write({0: b'{"id": 0}', 1: b"garbage"}, topic, topic)

    failing = {"subscribe": "a,b", "ingest.topic.a.transform": f"{__name__}:{fails_on_rows.__name__}"}
    with pytest.raises(TableError, match=rf"{aside.table('a')} .*no service"):
        aside.redrive(failing, table="{topic}")
    assert (aside.rows("a"), aside.rows("b"), aside.marks) == ([], of("b", 0), set())
    assert aside.letters == of("a", 0, 1) + of("b", 1)


@pytest.mark.slow
def test_a_table_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path) -> None:
    settings = {
        **JSON,
        "subscribe": "orders",
        "ingest.onDecodeError": "deadLetter",
        "ingest.deadLetterTable": str(tmp_path / "no"),
    }
    with pytest.raises(TableError, match=f"{tmp_path}/no "):
        redrive(spark, settings, str(tmp_path / "table"), EVERYTHING)


class Rounds(_Redrive):
    """A redrive of one table, `t`, in which letters always decode. `rows` are appended by one `finish` each."""

    def __init__(self, *rows: int, fails: TieredStreamError | None = None) -> None:
        self.dry_run = False
        self._finished, self._fails = iter(rows), fails
        self._failed = {}

    def attempt(self, chosen: DeadLetterFilter) -> RedriveReport:
        return RedriveReport(self.dry_run, Counter({} if self._failed else {"t": 1}), {("orders", "garbage"): 1})

    def mark(self, chosen: DeadLetterFilter) -> None:
        pass

    def finish(self) -> Counter[str]:
        rows = next(self._finished, None)
        if rows is None and self._fails:
            self._failed["orders"] = self._fails
        return +Counter({"t": rows or 0})


def test_a_redrive_reports_its_rows_although_a_job_adds_letters_in_each_round() -> None:
    assert Rounds(0, 2, 1, 1).run(EVERYTHING).appended == {"t": 4}


def test_letters_that_another_redrive_gives_up_in_each_round_are_an_error() -> None:
    with pytest.raises(TableError):
        Rounds(1, 0, 0, 0).run(EVERYTHING)


def test_an_error_of_a_topic_in_the_last_round_is_the_error_of_the_redrive() -> None:
    rounds = Rounds(0, 0, 0, fails=SchemaRegistryError("refused"))
    assert rounds.run(EVERYTHING).left == {("orders", "garbage"): 1}
    with pytest.raises(SchemaRegistryError):
        rounds.raise_first()


class Letters(DeadLetterMarks):
    """A table for dead letters that has these."""

    def __init__(self, letters: DataFrame) -> None:
        super().__init__(letters.sparkSession, TableAddress("/letters", None, "file:///letters"))
        self._letters = letters

    def dead_letters(self) -> DataFrame:
        return self._letters


class Routes(Routing):
    """Routes of topics to the table `file:///t`, or to errors."""

    errors: Mapping[str, TieredStreamError]

    def __init__(self, errors: Mapping[str, TieredStreamError]) -> None:
        super().__init__(TableSpec(""), (Route(".*", "/t", "file:///t"),))
        object.__setattr__(self, "errors", errors)

    def target(self, topic: str) -> TableSpec:
        if topic in self.errors:
            raise self.errors[topic]
        return super().target(topic)


def run_of(letters: DataFrame, **errors: TieredStreamError) -> _Redrive:
    subscription = Subscription(pattern=".*")
    return _Redrive(letters.sparkSession, Letters(letters), "id", Routes(errors), subscription, dry_run=False)


def letters_of(spark: SparkSession, *marks: int | None) -> DataFrame:
    """Letters of the topics `bad` and `good`, with these marks."""
    letters = [(topic, "file:///t", None, None, mark) for topic, mark in zip(("bad", "good"), marks, strict=True)]
    return spark.createDataFrame(letters, "topic STRING, target STRING, query STRING, batch BIGINT, redrive BIGINT")


def test_a_topic_without_a_schema_keeps_no_letters_of_other_topics_back(spark: SparkSession) -> None:
    marked, unmarked = letters_of(spark, 1, 2), letters_of(spark, None, None)
    run = run_of(marked, bad=SchemaRegistryError("refused"))
    assert run._job.marked(marked) == [(2, "good")]
    assert run._job.unmarked(unmarked, EVERYTHING).topics == ["good"]
    with pytest.raises(SchemaRegistryError):
        run.raise_first()


def test_letters_that_spark_cannot_read_are_an_error_of_their_table(spark: SparkSession) -> None:
    gone = sql.expr("CAST(raise_error('gone') AS STRING)")
    with pytest.raises(TableError, match="/letters.*gone"):
        run_of(letters_of(spark, 1, 2).withColumn("topic", gone)).finish()
    with pytest.raises(TableError, match="/letters.*gone"):
        run_of(letters_of(spark, None, None).withColumn("topic", gone)).attempt(EVERYTHING)


def test_an_error_of_spark_in_one_topic_keeps_no_other_topic_back(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {"bad": PySparkException("a task failed"), "good": 3}

    def finish(letters: dead_letter_marks.MarkedDeadLetters, table: str) -> int:
        end = ends[letters.outcome.args[1]]  # type: ignore[attr-defined]
        if isinstance(end, PySparkException):
            raise end
        return end

    monkeypatch.setattr(dead_letter_marks, "finish", finish)
    run = run_of(letters_of(spark, 1, 2))
    assert run.finish() == {"/t": 3}
    with pytest.raises(TableError, match="a task failed"):
        run.raise_first()

"""Dead letters belong to their batch as rows do: repeated, parked, replaced, each record is in one table alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from tests.delta.set_aside import damage
from tests.delta.test_typed_tables import Typed
from tests.rigs.stack.rows import Record
from tests.rigs.stack.spark import configured
from tests.tier.topics import topic_options, write_topic
from tiered_stream import replay
from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.catalog.java_errors import JAVA_ERRORS
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.dead_letters import (
    has_dead_letters,
    remove_dead_letters,
    update_dead_letters,
)
from tiered_stream.delta.landing import spark_lane
from tiered_stream.delta.redrive.job_dead_letters import DeadLetterFilter
from tiered_stream.delta.redrive.redrive_run import redrive
from tiered_stream.delta.redrive.redriven_table import RedrivenTable
from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.errors import TableError
from tiered_stream.formats.rows.row_format import DEAD_LETTER_SCHEMA

pytestmark = pytest.mark.stack

SCHEMA = {
    "ingest.value.format": "json",
    "ingest.value.schema": "id BIGINT",
    "ingest.kafkaColumns": "topic, partition, offset",
}
IDS, GARBAGE = range(9), 9
"""Each record's id is its offset, but the last one is no JSON."""
PARK = {"ingest.onTableError": "park"}
WAYS = ("direct", "many", "spark")


class Landed(Typed):
    """A topic that is landed in one of the ways, in a table that may get constraints."""

    def __init__(self, spark: SparkSession, folder: Path, way: str) -> None:
        super().__init__(spark, folder, "{topic}" if way == "many" else "orders")
        self.way = way
        self.checkpoint = folder / "checkpoint"
        self.dead = folder / "dead"
        self.landed = folder / "orders"
        self.write(GARBAGE)
        columns = "id BIGINT, topic STRING, partition INT, offset BIGINT"
        spark.sql(f"CREATE TABLE {self.sql_name} ({columns}) USING delta")

    def write(self, *garbage: int) -> None:
        """Write the topic, as if a schema had changed: other records are rows than before. Its bytes are as many."""
        values = [b"not JSON!" if offset in garbage else b'{"id": %d}' % offset for offset in range(10)]
        write_topic(self.bucket, "orders", [[Record(None, value) for value in values]])

    @property
    def sql_name(self) -> str:
        return f"delta.`{self.landed}`"

    def constrain(self, condition: str | None) -> None:
        """The table has this one constraint, or none."""
        self.spark.sql(f"ALTER TABLE {self.sql_name} DROP CONSTRAINT IF EXISTS some")
        if condition:
            self.spark.sql(f"ALTER TABLE {self.sql_name} ADD CONSTRAINT some CHECK ({condition})")

    def land(self, **given: str) -> None:
        self.run("spark" if self.way == "spark" else "auto", **{**SCHEMA, **self.aside, **given})

    @property
    def offsets(self) -> tuple[list[int], list[int]]:
        """Of the table's rows, and of the dead letters."""
        rows, dead = (self.read(each).select("offset").collect() for each in (self.landed, self.dead))
        return sorted(row.offset for row in rows), sorted(row.offset for row in dead)

    def forget_that_batch_0_is_done(self) -> None:
        for name in ("0", ".0.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def is_for_the_table(self, commits: TableCommits) -> bool:
        return commits.planned.spec.uri == self.landed.as_uri()


class _KilledError(Exception):
    pass


def _kill(*_: object) -> None:
    raise _KilledError


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Landed], None]:
    """The driver dies once, when the dead letters are committed and the table's rows are not."""

    def kill(landed: Landed) -> None:
        commit, append, alive = TableCommits.commit, spark_lane._append, iter([False])

        def committed(self: TableCommits, *given: object) -> int | None:
            if landed.is_for_the_table(self) and not next(alive, True):
                raise _KilledError
            return commit(self, *given)  # type: ignore[arg-type]

        def appended(rows: object, place: object, *given: object) -> None:
            if str(place) == str(landed.landed) and not next(alive, True):
                raise _KilledError
            append(rows, place, *given)  # type: ignore[arg-type]

        monkeypatch.setattr(TableCommits, "commit", committed)
        monkeypatch.setattr(spark_lane, "_append", appended)

    return kill


@pytest.mark.parametrize("way", WAYS)
def test_a_repeated_batch_sorts_its_records_again_and_each_is_in_one_table(
    spark: SparkSession, tmp_path: Path, killed: Callable[[Landed], None], way: str
) -> None:
    landed = Landed(spark, tmp_path, way)
    landed.constrain("id < 8")
    killed(landed)
    with pytest.raises(StreamingQueryException):
        landed.land()
    assert landed.offsets == ([], [8, GARBAGE])
    landed.constrain("id IN (0, 1, 2) OR id > 3")
    landed.land()
    assert landed.offsets == ([0, 1, 2, 4, 5, 6, 7, 8], [3, GARBAGE])
    (last,) = {(row.target, row.batch) for row in landed.read(landed.dead).collect()}
    assert last == (landed.landed.as_uri(), 0)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_repeated_batch_without_dead_letters_takes_those_of_its_first_attempt_back(
    spark: SparkSession, tmp_path: Path, killed: Callable[[Landed], None], way: str
) -> None:
    landed = Landed(spark, tmp_path, way)
    killed(landed)
    with pytest.raises(StreamingQueryException):
        landed.land()
    assert landed.offsets == ([], [GARBAGE])
    landed.write()
    landed.land()
    assert landed.offsets == ([*IDS, GARBAGE], [])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["direct", "many"])
def test_a_constraint_that_comes_while_the_query_runs_stops_it_before_any_dead_letter_is_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    landed = Landed(spark, tmp_path, way)
    check = TableCommits.check

    def constrained(self: TableCommits, *given: object) -> None:
        landed.constrain("id < 3")
        check(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(TableCommits, "check", constrained)
    with pytest.raises(StreamingQueryException, match="has changed"):
        landed.land()
    assert landed.offsets == ([], [])
    monkeypatch.undo()
    landed.land()
    assert landed.offsets == ([0, 1, 2], [3, 4, 5, 6, 7, 8, GARBAGE])


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_batch_that_its_table_has_keeps_its_dead_letters_when_it_is_repeated(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    landed = Landed(spark, tmp_path, way)
    landed.land()
    landed.write(3)
    landed.forget_that_batch_0_is_done()
    landed.land()
    assert landed.offsets == ([*IDS], [GARBAGE])


@pytest.mark.slow
def test_a_table_whose_records_are_all_dead_letters_has_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    landed = Landed(spark, tmp_path, "many")
    landed.constrain("id > 100")
    landed.land()
    assert landed.offsets == ([], [*IDS, GARBAGE])
    landed.forget_that_batch_0_is_done()
    landed.constrain(None)
    landed.land()
    assert landed.offsets == ([], [*IDS, GARBAGE])


@pytest.mark.slow
@pytest.mark.parametrize("dead_fails", [False, True], ids=["table", "dead letters"])
def test_dead_letters_of_a_parked_table_wait_with_its_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dead_fails: bool
) -> None:
    """Either table refuses; by the time that it is caught up, its records are sorted otherwise."""
    landed = Landed(spark, tmp_path, "many")
    refusing = landed.dead.as_uri() if dead_fails else landed.landed.as_uri()
    commit = TableCommits.commit

    def refused(self: TableCommits, *given: object) -> int | None:
        if self.planned.spec.uri == refusing:
            raise TableError("no room")
        return commit(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(TableCommits, "commit", refused)
    landed.land(**PARK)
    assert landed.offsets == ([], [] if dead_fails else [GARBAGE])
    monkeypatch.undo()
    landed.write(3)
    landed.land(**PARK)
    assert landed.offsets == ([0, 1, 2, 4, 5, 6, 7, 8, 9], [3])


def replaced(landed: Landed, name: str) -> None:
    options = topic_options(landed.bucket, "orders", {**SCHEMA, **landed.aside})
    replay(
        landed.spark, options=options, from_time="2000-01-01T00:00:00Z", into=str(landed.landed), name=name,
        checkpoint=str(landed.folder / name), replace=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_clustered_tables_dead_letters_are_not_clustered(spark: SparkSession, tmp_path: Path, way: str) -> None:
    landed = Landed(spark, tmp_path, way)
    shutil.rmtree(landed.landed)
    landed.land(**{"ingest.clusterBy": "id"})
    assert landed.offsets == (list(IDS), [GARBAGE])
    clustered = {
        folder.name: list(spark.sql(f"DESCRIBE DETAIL delta.`{folder}`").collect()[0].clusteringColumns)
        for folder in (landed.landed, landed.dead)
    }
    assert clustered == {"orders": ["id"], "dead": []}


@pytest.mark.slow
def test_a_replay_that_replaces_rows_replaces_their_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    landed = Landed(spark, tmp_path, "spark")
    landed.land()
    for garbage in ((), (3,), (3, 4), (4,)):
        landed.write(*garbage)
        replaced(landed, "replay" + "".join(map(str, garbage)))
        assert landed.offsets == ([offset for offset in range(10) if offset not in garbage], [*garbage])


@pytest.mark.slow
def test_a_redrive_leaves_dead_letters_alone_whose_records_a_replay_has_brought_in(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay dies when the table has its rows, and before it removes the older dead letters."""
    landed = Landed(spark, tmp_path, "spark")
    landed.land()
    landed.write()

    with monkeypatch.context() as patch:
        patch.setattr(spark_lane._DeadLetters, "remove_claimed", _kill)
        with pytest.raises(StreamingQueryException):
            replaced(landed, "replay")
    report = redrive(
        spark,
        topic_options(landed.bucket, "orders", {**SCHEMA, **landed.aside}),
        str(landed.landed),
        DeadLetterFilter(),
    )
    assert (report.appended, report.pending) == ({}, {"orders": 1})
    replaced(landed, "replay")
    assert landed.offsets == ([*IDS, GARBAGE], [])


@pytest.mark.slow
def test_a_replay_waits_for_a_redrive_that_died_with_marked_letters(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = Landed(spark, tmp_path, "spark")
    landed.write()
    landed.constrain("id < 8")
    landed.land()
    landed.constrain(None)
    settings = topic_options(landed.bucket, "orders", {**SCHEMA, **landed.aside})

    with monkeypatch.context() as patch:
        patch.setattr(RedrivenTable, "append", _kill)
        with pytest.raises(_KilledError):
            redrive(spark, settings, str(landed.landed), DeadLetterFilter())
    with pytest.raises(StreamingQueryException, match="tiered-stream redrive"):
        replaced(landed, "replay")
    redrive(spark, settings, str(landed.landed), DeadLetterFilter())
    replaced(landed, "replay")
    assert landed.offsets == ([*IDS, GARBAGE], [])


def test_topics_that_go_to_one_table_by_two_names_are_refused_before_a_row_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    typed = Typed(spark, tmp_path, "lake/{topic}")
    typed.checkpoint = tmp_path / "checkpoint"
    (tmp_path / "lake" / "orders").mkdir(parents=True)
    (tmp_path / "lake" / "payments").symlink_to("orders")
    for topic in ("orders", "payments"):
        write_topic(typed.bucket, topic, [[Record(None, b"a")]])
    with pytest.raises(StreamingQueryException, match="are one table"):
        typed.run(lane="auto", topics="orders,payments")
    assert typed.read(tmp_path / "lake" / "orders").isEmpty()


TRANSACTION = {"spark.databricks.delta.write.txnAppId": "users", "spark.databricks.delta.write.txnVersion": "1"}
"""Settings of a session by which Delta skips all but the first change of each table."""


def test_a_session_with_a_transaction_of_its_own_skips_no_change_of_dead_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "dead"
    target = TableSpec(folder.as_uri(), name=str(folder), columns=spark_columns(DEAD_LETTER_SCHEMA, None))
    spark.range(4).write.format("delta").save(str(folder))
    with configured(spark, TRANSACTION):
        remove_dead_letters(spark, target, sql.col("id") == 0)
        update_dead_letters(spark, target, sql.col("id") == 1, {"id": sql.lit(9)})
        remove_dead_letters(spark, target, sql.col("id") == 2)
    assert sorted(row.id for row in spark.read.format("delta").load(str(folder)).collect()) == [3, 9]


def test_a_session_with_a_transaction_of_its_own_loses_no_dead_letters_of_a_repeated_batch(
    spark: SparkSession, tmp_path: Path, killed: Callable[[Landed], None]
) -> None:
    landed = Landed(spark, tmp_path, "spark")
    killed(landed)
    with configured(spark, TRANSACTION):
        with pytest.raises(StreamingQueryException):
            landed.land()
        landed.land()
    assert landed.offsets == ([*IDS], [GARBAGE])


@pytest.mark.parametrize("ignored", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_no_setting_of_the_session_lets_letters_or_rows_be_left_out_where_they_are_changed(
    spark: SparkSession, tmp_path: Path, ignored: str
) -> None:
    folder = tmp_path / "dead"
    target = TableSpec(folder.as_uri(), name=str(folder), columns=spark_columns(DEAD_LETTER_SCHEMA, None))
    spark.range(10).write.format("delta").save(str(folder))
    damage(folder, ignored)
    which, rows = sql.col("id") == 3, spark.range(3, 4)
    address, replaced = TableAddress(str(folder), None, folder.as_uri()), {"replaceWhere": "id = 3"}
    with configured(spark, {f"spark.sql.files.{ignored}": "true"}):
        for change in (
            lambda: remove_dead_letters(spark, target, which),
            lambda: update_dead_letters(spark, target, which, {"id": sql.lit(4)}),
            lambda: has_dead_letters(spark, target, which),
            lambda: spark_lane._append(rows, address, "q", 0, replaced),
        ):
            with pytest.raises((TableError, *JAVA_ERRORS)):
                change()

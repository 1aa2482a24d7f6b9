"""`land` with Spark and Delta: one query into a table for each topic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.delta.archive import LONG, ODD, everything, landed, options
from tests.delta.landing.test_land import COLUMNS, DiedError, batches_in, forget_last_commit
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land
from tiered_stream.delta.checkpoint.query_run import QueryRun
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.landing.land import plan_query
from tiered_stream.delta.landing.landing_by_topic import lands_in
from tiered_stream.delta.settings.query_settings import query_settings
from tiered_stream.errors import ConfigurationError, DataLossError, TableError
from tiered_stream.ingest.ingest_plan import plan_ingests

TOPICS = (*ODD.split(","), LONG)

pytestmark = pytest.mark.slow


class Lander:
    """Lands topics in tables of one folder, with one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, table: str | None = None) -> None:
        self.spark = spark
        self.folder = folder / "lake with blanks"
        self.table = table or f"{self.folder}/{{topic}}/raw"
        self.checkpoint = folder / "checkpoint"

    def run(self, topics: str = ",".join(TOPICS), **given: str) -> list[Any]:
        """To the end; the progress of each batch."""
        query = land(
            self.spark, options=options(topics, given), table=self.table, checkpoint=str(self.checkpoint),
        )  # fmt: skip
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress.numInputRows]

    def folder_of(self, topic: str) -> Path:
        return self.folder / topic / "raw"


@pytest.mark.parametrize("commit", ["spark", "deltalake", "auto"])
def test_each_topic_lands_in_its_own_table_by_one_query(spark: SparkSession, tmp_path: Path, commit: str) -> None:
    lander = Lander(spark, tmp_path)
    given = {"ingest.commit": commit, "maxOffsetsPerTrigger": "4000", "ingest.tableProperty.delta.appendOnly": "true"}
    progress = lander.run(**given, **{f"ingest.topic.{LONG}.dayColumn": "day"})
    assert len(progress) > 2
    for topic in TOPICS:
        assert landed(lander.folder_of(topic)).equals(everything(topic))
        rows = spark.read.format("delta").load(str(lander.folder_of(topic)))
        assert rows.count() == everything(topic).num_rows and ("day" in rows.columns) == (topic == LONG)
        assert DeltaTable(lander.folder_of(topic)).metadata().configuration == {"delta.appendOnly": "true"}
    assert progress[0].observedMetrics["tiered_stream"]["records"] > 0


def test_a_driver_that_dies_between_two_tables_commits_lands_every_record_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lander = Lander(spark, tmp_path)
    commit = TableCommits.commit
    numbers = count(1)  # of which each thread takes another

    def commit_and_die(*arguments: Any) -> Any:
        if next(numbers) > 1:
            raise DiedError
        return commit(*arguments)

    with monkeypatch.context() as patched, pytest.raises(StreamingQueryException, match="DiedError"):
        patched.setattr(TableCommits, "commit", commit_and_die)
        lander.run()
    assert [batches_in(lander.folder_of(topic)) for topic in TOPICS].count([0]) == 1
    lander.run()
    for topic in TOPICS:
        assert batches_in(lander.folder_of(topic)) == [0]
        assert landed(lander.folder_of(topic)).equals(everything(topic))


def test_a_topic_that_comes_later_gets_its_table_then(spark: SparkSession, tmp_path: Path) -> None:
    lander = Lander(spark, tmp_path)
    lander.run(TOPICS[0])
    assert not lander.folder_of(LONG).exists()
    lander.run()
    for topic in TOPICS:
        assert landed(lander.folder_of(topic)).equals(everything(topic))


def test_topics_by_pattern_go_where_routes_send_them(spark: SparkSession, tmp_path: Path) -> None:
    lander = Lander(spark, tmp_path)
    both = lander.folder / "small ones"
    read = options(LONG)
    del read["subscribe"]
    query = land(
        spark,
        options={**read, "subscribePattern": "s32-(codecs|txn|big)$", "ingest.route": f"s32-[ct].*={both}"},
        table=lander.table,
        checkpoint=str(lander.checkpoint),
    )
    query.awaitTermination()
    assert landed(both).equals(everything(ODD)) and landed(lander.folder_of(LONG)).equals(everything(LONG))
    assert sorted(each.name for each in lander.folder.iterdir()) == [LONG, "small ones"]


@pytest.fixture
def database(spark: SparkSession, topic: str) -> Iterator[str]:
    name = topic.replace("-", "_")
    spark.sql(f"CREATE DATABASE {name}")
    yield name
    spark.sql(f"DROP DATABASE {name} CASCADE")


@pytest.mark.parametrize("commit", ["spark", "deltalake"])
def test_tables_by_name_are_in_the_catalog_in_their_databases_folder(
    spark: SparkSession, tmp_path: Path, database: str, commit: str
) -> None:
    lander = Lander(spark, tmp_path, f"{database}.Of_Topics")
    given = {"ingest.commit": commit, f"ingest.topic.{LONG}.table": f"{database}.long"}
    for _ in range(2):
        lander.run(maxOffsetsPerTrigger="8000", **given)
        forget_last_commit(lander.checkpoint)
    for name, topics in (("of_topics", ODD), ("long", LONG)):
        detail = spark.sql(f"DESCRIBE DETAIL {database}.{name}").first()
        assert detail is not None
        assert landed(detail["location"]).equals(everything(topics))
        assert spark.table(f"{database}.{name}").count() == everything(topics).num_rows


def test_a_table_by_name_that_is_elsewhere_is_told(spark: SparkSession, tmp_path: Path, database: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    spark.sql(f"CREATE TABLE {database}.long USING delta LOCATION '{elsewhere}' AS SELECT 1 AS x")
    lander = Lander(spark, tmp_path, f"{database}.long")
    with pytest.raises(StreamingQueryException, match="file:.*elsewhere, .*file:.*/long"):
        lander.run(LONG, **{"ingest.route": f"nothing={tmp_path}/nothing"})


COMMENT = "orders--raw"
"""Topic in whose name SQL would see the name `orders` and a comment."""


def two_topics(bucket: Path) -> dict[str, str]:
    for topic in ("orders", COMMENT):
        write_topic(bucket, topic, [[Record(topic.encode(), b"value")] * 3])
    return topic_options(bucket, f"orders,{COMMENT}")


def rows_by_topic(spark: SparkSession, table: str) -> dict[str, int]:
    return {row["topic"]: row["count"] for row in spark.table(table).groupBy("topic").count().collect()}


def test_rows_of_a_topic_with_a_comment_in_its_name_stay_out_of_another_topics_table(
    spark: SparkSession, tmp_path: Path, database: str
) -> None:
    given = {**two_topics(tmp_path / "bucket"), "ingest.table": f"{database}.{{topic}}"}
    for planned in plan_ingests({**given, "ingest.checkpointLocation": f"{tmp_path}/{{topic}}"}):
        read = {"options": planned.options, "table": planned.table, "checkpoint": planned.checkpoint}
        if planned.options["subscribe"] == COMMENT:
            with pytest.raises(TableError, match="no tables with names such as orders--raw, only with letters"):
                land(spark, **read)  # type: ignore[arg-type]
        else:
            land(spark, **read).awaitTermination()  # type: ignore[arg-type]
    assert rows_by_topic(spark, f"{database}.orders") == {"orders": 3}
    assert [row["tableName"] for row in spark.sql(f"SHOW TABLES IN {database}").collect()] == ["orders"]


def test_one_query_refuses_the_table_of_a_topic_with_a_comment_in_its_name(
    spark: SparkSession, tmp_path: Path, database: str
) -> None:
    read, checkpoint = two_topics(tmp_path / "bucket"), str(tmp_path / "checkpoint")
    query = land(spark, options=read, table=f"{database}.{{topic}}", checkpoint=checkpoint)
    with pytest.raises(StreamingQueryException, match="no tables with names such as orders--raw, only with letters"):
        query.awaitTermination()
    assert rows_by_topic(spark, f"{database}.orders") == {"orders": 3}


def test_one_query_refuses_topics_whose_tables_differ_by_case_alone(
    spark: SparkSession, tmp_path: Path, database: str
) -> None:
    for topic in ("orders", "Orders"):
        write_topic(tmp_path / "bucket", topic, [[Record(topic.encode(), b"value")] * 3])
    read = topic_options(tmp_path / "bucket", "orders,Orders")
    query = land(spark, options=read, table=f"{database}.{{topic}}", checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="would share the table"):
        query.awaitTermination()
    assert spark.sql(f"SHOW TABLES IN {database}").isEmpty()


def test_a_table_that_the_direct_lane_cannot_write_is_named_and_the_others_have_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    lander = Lander(spark, tmp_path)
    lander.folder_of(LONG).mkdir(parents=True)
    name = f"delta.`{lander.folder_of(LONG)}`"
    spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING delta")
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT odd CHECK (crc32(value) >= 0)")
    refusal = (
        f"the table {lander.folder_of(LONG)} did not take batch 0: the direct lane cannot write to it: the table has"
    )
    with pytest.raises(StreamingQueryException, match=refusal):
        lander.run()
    assert [batches_in(lander.folder_of(topic)) for topic in ODD.split(",")] == [[0], [0]]
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT odd")
    lander.run()
    for topic in TOPICS:
        assert batches_in(lander.folder_of(topic)) == [0]
        assert landed(lander.folder_of(topic)).equals(everything(topic))


@pytest.mark.parametrize(
    ("table", "given", "message"),
    [
        ("{topic}.raw", {}, "stands in the database's name"),
        ("s3a://{topic}/raw", {}, "stands for a bucket"),
        ("viewfs://a/{topic}", {}, "is neither a local folder nor in S3.*put {topic} into ingest.checkpointLocation"),
        ("/lake/{topic}", {"ingest.route": "x"}, "has 'x', which is not pattern=table"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(
    spark: SparkSession, tmp_path: Path, table: str, given: dict[str, str], message: str
) -> None:
    with pytest.raises((ConfigurationError, TableError), match=message):
        plan_query(spark, options=options(given=given), table=table, run=QueryRun(str(tmp_path / "checkpoint")))


@pytest.mark.parametrize(
    ("folder", "lands"),
    [
        ("bronze/orders", True), ("bronze/any.topic/", True), ("special", True), ("own", True),
        ("bronze/a/b", False), ("bronze", False), ("other", False),
    ],
)  # fmt: skip
def test_a_folder_is_known_as_one_of_a_querys_tables(
    spark: SparkSession, tmp_path: Path, folder: str, lands: bool
) -> None:
    settings = {"ingest.route": f"eu[.].*={tmp_path}/special", "ingest.topic.orders.table": f"{tmp_path}/own"}
    assert lands_in(spark, query_settings(settings), f"{tmp_path}/bronze/{{topic}}", f"{tmp_path}/{folder}") is lands


def test_the_spark_lane_has_a_query_for_each_topic(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"direct lane: .*\{topic\}"):
        plan_query(spark, options=options(), table="/lake/{topic}", run=QueryRun(str(tmp_path)), lane="spark")


# Tables that are parked

PARK = {"ingest.onTableError": "park", "maxOffsetsPerTrigger": "6000"}


def refuse(spark: SparkSession, folder: Path) -> str:
    """A table that the direct lane cannot write to; its name in SQL."""
    folder.mkdir(parents=True)
    name = f"delta.`{folder}`"
    spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING delta")
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT odd CHECK (crc32(value) >= 0)")
    return name


@pytest.mark.parametrize("commit", ["spark", "deltalake"])
def test_a_table_that_is_parked_is_caught_up_by_a_later_run(
    spark: SparkSession, tmp_path: Path, commit: str, caplog: pytest.LogCaptureFixture
) -> None:
    lander = Lander(spark, tmp_path)
    given = {**PARK, "ingest.commit": commit}
    name = refuse(spark, lander.folder_of(LONG))
    progress = lander.run(**given)
    assert landed(lander.folder_of(LONG)).num_rows == 0
    for topic in ODD.split(","):
        assert landed(lander.folder_of(topic)).equals(everything(topic))
    assert [each.observedMetrics["tiered_stream"]["held"] > 0 for each in progress[1:]] == [True] * (len(progress) - 1)
    assert f"{lander.folder_of(LONG)} is parked" in caplog.text
    lander.run(**given)
    assert landed(lander.folder_of(LONG)).num_rows == 0
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT odd")
    lander.run(**given)
    lander.run(**given)
    assert landed(lander.folder_of(LONG)).equals(everything(LONG))
    assert len(batches_in(lander.folder_of(LONG))) == 1


def test_the_spark_lane_does_not_leave_out_the_rows_of_a_parked_table(spark: SparkSession, tmp_path: Path) -> None:
    lander = Lander(spark, tmp_path, str(tmp_path / "table"))
    refuse(spark, tmp_path / "table")
    lander.run(LONG, **PARK)
    with pytest.raises(ConfigurationError):
        land(spark, options=options(LONG), table=lander.table, checkpoint=str(lander.checkpoint), lane="spark")
    assert landed(tmp_path / "table").num_rows == 0


def test_a_folder_that_tasks_cannot_write_to_is_parked(spark: SparkSession, tmp_path: Path) -> None:
    lander = Lander(spark, tmp_path)
    lander.folder_of(LONG).parent.mkdir(parents=True)
    lander.folder_of(LONG).write_text("no folder")
    lander.run(**PARK)
    for topic in ODD.split(","):
        assert landed(lander.folder_of(topic)).equals(everything(topic))
    lander.folder_of(LONG).unlink()
    lander.run(**PARK)
    assert landed(lander.folder_of(LONG)).equals(everything(LONG))


def test_what_a_parked_table_lacks_and_is_gone_fails_the_start(spark: SparkSession, tmp_path: Path) -> None:
    lander = Lander(spark, tmp_path)
    name = refuse(spark, lander.folder_of(LONG))
    lander.run(**PARK)
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT odd")
    newest = max((lander.checkpoint / "tables").glob("[0-9]*"), key=lambda file: int(file.name))
    told = orjson.loads(newest.read_bytes())
    for held in told["parked"][lander.folder_of(LONG).as_uri()]["held"]:
        held["offsets"][LONG][0][2] += 1_000_000
    newest.write_bytes(orjson.dumps(told))
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    with pytest.raises(DataLossError, match=rf"parked .*\({LONG}-0 from "):
        lander.run(**PARK)


def test_a_query_that_parks_tables_checks_rows_by_the_rules_of_each_table(spark: SparkSession, tmp_path: Path) -> None:
    lake, bucket = tmp_path / "lake", tmp_path / "bucket"
    columns = "key VARCHAR(3), value CHAR(3) NOT NULL"
    for topic in ("sick", "well"):
        spark.sql(f"CREATE TABLE delta.`{lake / topic}` ({columns}) USING delta")
        spark.sql(f"ALTER TABLE delta.`{lake / topic}` ADD CONSTRAINT low CHECK (value < 'x')")
        texts = [(b"a", b"1"), (b"long", b"2"), (b"b", None), (b"c", b"x"), (b"d", b"3")]
        write_topic(bucket, topic, [[Record(*each) for each in texts]], 0)
    spark.sql(f"ALTER TABLE delta.`{lake / 'sick'}` ADD CONSTRAINT odd CHECK (crc32(value) >= 0)")
    given = {
        "ingest.key.format": "string", "ingest.value.format": "string", "ingest.kafkaColumns": "key",
        "ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": str(tmp_path / "dead"),
        "ingest.onTableError": "park",
    }  # fmt: skip
    read = topic_options(bucket, "sick,well", given)

    def run() -> dict[str, list[tuple[str, str]]]:
        land(spark, options=read, table=f"{lake}/{{topic}}", checkpoint=str(tmp_path / "c")).awaitTermination()
        found = {topic: spark.table(f"delta.`{lake / topic}`").collect() for topic in ("sick", "well")}
        return {topic: sorted(map(tuple, rows)) for topic, rows in found.items()}

    rows = [("a", "1  "), ("d", "3  ")]
    assert run() == {"sick": [], "well": rows}
    spark.sql(f"ALTER TABLE delta.`{lake / 'sick'}` DROP CONSTRAINT odd")
    assert run() == {"sick": rows, "well": rows}
    dead = spark.table(f"delta.`{tmp_path / 'dead'}`").select("topic", "offset").collect()
    assert sorted(map(tuple, dead)) == [(topic, offset) for topic in ("sick", "well") for offset in (1, 2, 3)]

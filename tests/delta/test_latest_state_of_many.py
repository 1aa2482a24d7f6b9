"""Many tables of the latest state by one query, with Spark and Delta."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land, verify
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.many_tables import ManyTables
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.delta.write.latest_rows import STAGED_FOLDER

pytestmark = pytest.mark.slow

TOPICS = ("orders", "visits")
KEYED = {
    "ingest.mode": "upsert", "ingest.key.format": "string", "ingest.value.format": "string",
    "ingest.topic.orders.keys": "key", "ingest.topic.visits.keys": "key",
}  # fmt: skip


class Lander:
    """Lands the topics `orders` and `visits` in tables of one folder, by one query."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.bucket, self.folder = spark, folder / "bucket", folder / "lake"
        self.checkpoint = folder / "checkpoint"
        self._ends: dict[str, int] = {}

    def write(self, topic: str, **values: str | None) -> None:
        records = [Record(key.encode(), None if value is None else value.encode()) for key, value in values.items()]
        first = self._ends.get(topic, 0)
        write_topic(self.bucket, topic, [records], first)
        self._ends[topic] = first + len(records)

    def options(self, **more: str) -> dict[str, str]:
        return topic_options(self.bucket, ",".join(TOPICS), {**KEYED, **more})

    def run(self, **more: str) -> None:
        table, checkpoint = f"{self.folder}/{{topic}}", str(self.checkpoint)
        land(self.spark, options=self.options(**more), table=table, checkpoint=checkpoint).awaitTermination()

    def rows(self, topic: str) -> dict[str, str]:
        if not (self.folder / topic).exists():
            return {}
        found = self.spark.read.format("delta").load(str(self.folder / topic)).select("key", "value").collect()
        return dict(sorted(map(tuple, found)))

    def merges(self, topic: str) -> int:
        history = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.folder / topic}`").collect()
        return [row["operation"] for row in history].count("MERGE")


@pytest.fixture
def lander(spark: SparkSession, tmp_path: Path) -> Lander:
    lander = Lander(spark, tmp_path)
    lander.write("orders", a="1", b="1")
    lander.write("visits", a="x", c="y")
    return lander


def test_each_table_has_the_latest_rows_of_its_topic(lander: Lander) -> None:
    lander.run()
    lander.write("orders", b=None, d="2")
    lander.run(**{"ingest.topic.visits.mode": "upsert"})
    assert (lander.rows("orders"), lander.rows("visits")) == ({"a": "1", "d": "2"}, {"a": "x", "c": "y"})
    assert not list(lander.folder.rglob(f"{STAGED_FOLDER}/*.parquet"))
    for topic in TOPICS:
        options = {**lander.options(), "subscribe": topic}
        assert verify(lander.spark, options=options, table=str(lander.folder / topic)).equal


def test_tables_of_one_query_may_append_and_merge(lander: Lander) -> None:
    given = {name: value for name, value in KEYED.items() if name not in ("ingest.mode", "ingest.topic.visits.keys")}
    options = topic_options(lander.bucket, ",".join(TOPICS), {**given, "ingest.topic.orders.mode": "upsert"})
    lander.write("orders", a="2")
    lander.write("visits", a="z")
    table = f"{lander.folder}/{{topic}}"
    land(lander.spark, options=options, table=table, checkpoint=str(lander.checkpoint)).awaitTermination()
    assert lander.rows("orders") == {"a": "2", "b": "1"}
    assert lander.spark.read.format("delta").load(str(lander.folder / "visits")).count() == 3


def test_a_topic_without_keys_is_refused_by_name(lander: Lander) -> None:
    lander.write("more", a="1")
    with pytest.raises(StreamingQueryException, match=r"ingest.keys, .*ingest.topic.more.keys"):
        lander.run(subscribe="orders,more")
    assert not (lander.folder / "more").exists()


def test_merges_of_several_tables_run_beside_each_other(lander: Lander) -> None:
    both, commit = threading.Barrier(2), TableCommits.commit

    def together(self: TableCommits, *given: Any) -> int | None:
        both.wait(120)
        return commit(self, *given)

    with patch.object(TableCommits, "commit", together):
        lander.run()
    assert (lander.merges("orders"), lander.merges("visits")) == (1, 1)


def test_a_sick_table_costs_itself_only_and_a_repeat_gives_it_its_rows(lander: Lander) -> None:
    lander.run()
    visits = f"delta.`{lander.folder / 'visits'}`"
    # Tasks cannot check this constraint, so Delta refuses the MERGE.
    lander.spark.sql(f"ALTER TABLE {visits} ADD CONSTRAINT good CHECK (initcap(value) <> 'Bad')")
    lander.write("orders", a="2")
    lander.write("visits", a="bad")
    with pytest.raises(StreamingQueryException, match="visits .*batch 1"):
        lander.run()
    assert (lander.rows("orders"), lander.rows("visits")) == ({"a": "2", "b": "1"}, {"a": "x", "c": "y"})
    lander.spark.sql(f"ALTER TABLE {visits} DROP CONSTRAINT good")
    lander.run()
    assert lander.merges("orders") == 2
    assert (lander.rows("orders"), lander.rows("visits")) == ({"a": "2", "b": "1"}, {"a": "bad", "c": "y"})


def test_a_parked_table_is_caught_up_with_the_latest_rows(lander: Lander) -> None:
    park = {"ingest.onTableError": "park"}
    lander.run(**park)
    visits = f"delta.`{lander.folder / 'visits'}`"
    # The error names the constraint. A text in it must not look like the error of a job that was cancelled.
    lander.spark.sql(f"ALTER TABLE {visits} ADD CONSTRAINT good CHECK (initcap(value) NOT IN ('Bad', 'cancelled'))")
    lander.write("orders", a="2")
    lander.write("visits", a="bad", c="z")
    lander.run(**park)
    assert (lander.rows("orders"), lander.rows("visits")) == ({"a": "2", "b": "1"}, {"a": "x", "c": "y"})
    # What comes meanwhile waits, so that no older row can replace it.
    lander.write("visits", a="good", c=None)
    lander.write("orders", b=None)
    lander.run(**park)
    assert (lander.rows("orders"), lander.rows("visits")) == ({"a": "2"}, {"a": "x", "c": "y"})
    lander.run(**park)
    assert lander.rows("visits") == {"a": "good"}


def test_a_key_of_char_is_found_whether_tables_are_parked_or_not(lander: Lander) -> None:
    orders = f"delta.`{lander.folder / 'orders'}`"
    lander.spark.sql(f"CREATE TABLE {orders} (key CHAR(5), value CHAR(3)) USING delta")
    given = {"subscribe": "orders", "ingest.kafkaColumns": "none"}
    lander.run(**given)
    lander.write("orders", a="2", b=None, c="3")
    lander.run(**given, **{"ingest.onTableError": "park"})
    lander.write("orders", a="4")
    lander.run(**given)
    assert lander.rows("orders") == {"a    ": "4  ", "c    ": "3  "}
    assert lander.spark.table(orders).count() == 2


def test_rows_are_not_merged_if_the_planner_could_not_look_up_the_rules_of_their_table(lander: Lander) -> None:
    orders = f"delta.`{lander.folder / 'orders'}`"
    lander.spark.sql(f"CREATE TABLE {orders} (key CHAR(5), value STRING) USING delta")
    given, commit = {"ingest.kafkaColumns": "none"}, ManyTables.commit

    def unchecked(self: ManyTables, query: str, batch: int, files: list[DataFile], held: Any) -> Any:
        return commit(self, query, batch, [replace(file, rules=None) for file in files], held)

    with (
        patch.object(ManyTables, "commit", unchecked),
        pytest.raises(StreamingQueryException, match="orders .*batch 0"),
    ):
        lander.run(**given)
    assert (lander.rows("orders"), lander.rows("visits")) == ({}, {"a": "x", "c": "y"})
    lander.run(**given)
    assert lander.rows("orders") == {"a    ": "1", "b    ": "1"}

"""One record in a hundred is garbage of a known kind: each is a dead letter once, with its reason, and none is a row.

What is mended then comes in by `tiered-stream redrive`, once, though it is killed between its commits.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.delta import planted_garbage as planted
from tests.delta.planted_garbage import Garbage, PlantedTopic
from tests.formats.scripted_registry import ScriptedRegistry
from tests.rigs.stack.jars import jar_paths
from tests.rigs.stack.spark import DELTA, LOCAL, spark_environment
from tests.tier.topics import topic_options
from tiered_stream import land

pytestmark = [pytest.mark.starts_spark, pytest.mark.slow]

RECORDS, FEW = 200_000, 5_000
"""Of each topic."""
Job = tuple[str, dict[str, str]]
"""Its table, and its settings."""
LEFT = 3
"""The exit code of a redrive that leaves letters."""


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with ScriptedRegistry() as server:
        schema, proto = {"schema": planted.AVRO_SCHEMA}, {"schema": planted.PROTO, "schemaType": "PROTOBUF"}
        server.schemas = {planted.AVRO_ID: schema, planted.NUMBER_ID: {"schema": '"int"'}, planted.PROTOBUF_ID: proto}
        server.versions["ravro-value", "latest"] = {"id": planted.AVRO_ID, **schema}
        server.versions["rprotobuf-value", "latest"] = {"id": planted.PROTOBUF_ID, **proto}
        yield server


class Garden:
    """Topics, of `count` records each. That of JSON goes into a table with constraints, the others by one query into a
    table each; all have one table for dead letters."""

    def __init__(self, spark: SparkSession, folder: Path, registry: str, count: int) -> None:
        self._spark, self.folder, self._registry, self._count = spark, folder, registry, count
        others = (planted.AVRO, planted.protobuf_topic(folder), planted.REGISTERED_AVRO, planted.REGISTERED_PROTOBUF)
        self.others = {topic.name: topic for topic in others}
        self.topics: dict[str, PlantedTopic] = {"json": planted.JSON, **self.others}
        self.dead = folder / "dead"
        for topic in self.topics.values():
            topic.write(folder / "bucket", count)
        columns = "key STRING, id BIGINT NOT NULL, name STRING, price DOUBLE, amount DECIMAL(12,2), at TIMESTAMP, "
        columns += "raw BINARY, tags ARRAY<STRING>, offset BIGINT"
        spark.sql(f"CREATE TABLE delta.`{folder}/json` ({columns}) USING delta")
        spark.sql(f"ALTER TABLE delta.`{folder}/json` ADD CONSTRAINT cheap CHECK (price < 1000000)")
        for table, settings in (self.json_job, self.other_job):
            checkpoint = f"{table} checkpoint".replace("{topic}", "others")
            land(spark, options=settings, table=table, checkpoint=checkpoint, lane="direct").awaitTermination()

    @property
    def json_job(self) -> Job:
        return str(self.folder / "json"), self._settings({"json": planted.JSON})

    @property
    def other_job(self) -> Job:
        return str(self.folder / "{topic}"), self._settings(self.others)

    def _settings(self, topics: Mapping[str, PlantedTopic]) -> dict[str, str]:
        formats = {
            f"ingest.{'' if name == 'json' else f'topic.{name}.'}value.{key}": value
            for name, topic in topics.items()
            for key, value in topic.settings.items()
        }
        given = {
            **formats, "ingest.kafkaColumns": "offset", "ingest.onDecodeError": "deadLetter",
            "ingest.key.format": "string", "ingest.schema.registry.url": self._registry,
            "ingest.deadLetterTable": str(self.dead), "ingest.maxDeadLetters": "1%",
        }  # fmt: skip
        return topic_options(self.folder / "bucket", ",".join(topics), given)

    def letters(self, name: str, mended: Mapping[str, str]) -> dict[int, Garbage]:
        """What is to be set aside of a topic, by number; `mended` is the kind of each topic's that is right by now."""
        return {at: each for at, each in self.topics[name].planted(self._count) if each.kind != mended.get(name)}

    def check(self, mended: Mapping[str, str]) -> None:
        """Every record is once a row or a letter, as its kind says."""
        for name in self.topics:
            rows = self._spark.read.format("delta").load(str(self.folder / name))
            total, ids, keys, least, most, planted_rows = rows.selectExpr(
                "count(*)", "count(DISTINCT id)", "count(DISTINCT key)", "min(id)", "max(id)",
                f"count_if(id % {planted.EVERY} = 7)",
            ).collect()[0]  # fmt: skip
            dead = len(self.letters(name, mended))
            good = self._count - dead
            assert (total, ids, keys, least, most) == (good, good, good, 0, self._count - 1), name
            assert planted_rows == self._count // planted.EVERY - dead
            assert rows.where("key != concat('k', id)").isEmpty()
        self._check_letters(mended)

    def _check_letters(self, mended: Mapping[str, str]) -> None:
        letters = DeltaTable(self.dead).to_pyarrow_table().to_pylist()
        found = {(row["topic"], row["partition"], row["offset"]): row for row in letters}
        assert len(found) == len(letters)
        half = self._count // planted.PARTITIONS
        for name, topic in self.topics.items():
            for number, garbage in self.letters(name, mended).items():
                row, record = found.pop((name, number // half, number % half)), topic.record(number)
                assert garbage.reason in row["reason"] and row["failed"] == garbage.part, (name, garbage.kind, row)
                headers = [(each["key"], each["value"]) for each in row["headers"]]
                stamped = round(row["timestamp"].timestamp() * 1000)
                assert (row["key"], row["value"], headers) == (record.key, record.value, list(record.headers))
                assert (stamped, row["timestampType"], row["redrive"]) == (record.timestamp_ms, 0, None)
        assert found == {}


class Redrive:
    """The command of a job, as a user runs it."""

    def __init__(self, folder: Path, job: Job) -> None:
        table, settings = job
        file, spark = folder / "job.properties", folder / "spark.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in {**settings, "ingest.table": table}.items()))
        conf = {**LOCAL, **DELTA, "spark.jars": ",".join(map(str, jar_paths("delta")))}
        spark.write_text("".join(f"{key} {value}\n" for key, value in conf.items()))
        program = Path(sys.executable).with_name("tiered-stream")
        self._command = [program, "redrive", "--json", "--settings", file, "--properties-file", spark]
        self._log = folder / "redrive.log"

    def _start(self, output: int | None = None) -> subprocess.Popen[bytes]:
        # A whole program, Spark's start included: each has the time that else a test has.
        faulthandler.dump_traceback_later(600, exit=True, file=sys.__stderr__)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command, env=spark_environment(), stdin=subprocess.DEVNULL, stdout=output or log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def killed_after_commit(self, table: Path) -> None:
        """Killed with its JVM as soon as the table has a commit more."""
        before = len(commits(table))
        process = self._start()
        while process.poll() is None and len(commits(table)) == before:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert len(commits(table)) > before, self._log.read_text()[-3000:]

    def run(self) -> dict[str, Any]:
        process = self._start(subprocess.PIPE)
        said, _ = process.communicate()
        assert process.returncode == LEFT, self._log.read_text()[-3000:]
        report: dict[str, Any] = json.loads(said)
        return report


def commits(table: Path) -> list[Path]:
    return list((table / "_delta_log").glob("*.json"))


def test_each_record_is_a_row_or_a_dead_letter_once(
    spark: SparkSession, tmp_path: Path, registry: ScriptedRegistry
) -> None:
    Garden(spark, tmp_path, registry.url, RECORDS).check({})


def test_rows_come_in_once_when_a_constraint_is_gone_though_a_redrive_is_killed_after_it_has_marked_them(
    spark: SparkSession, tmp_path: Path, registry: ScriptedRegistry
) -> None:
    garden = Garden(spark, tmp_path, registry.url, FEW)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/json` DROP CONSTRAINT cheap")
    redrive = Redrive(tmp_path, garden.json_job)
    redrive.killed_after_commit(garden.dead)
    redrive.run()
    garden.check({"json": "CHECK"})


def test_values_come_in_once_when_their_schemas_are_there_though_a_redrive_is_killed_between_two_tables(
    spark: SparkSession, tmp_path: Path, registry: ScriptedRegistry
) -> None:
    garden = Garden(spark, tmp_path, registry.url, FEW)
    registry.schemas[planted.LATE_AVRO_ID] = {"schema": planted.AVRO_SCHEMA}
    registry.schemas[planted.LATE_PROTOBUF_ID] = registry.schemas[planted.PROTOBUF_ID]
    mended = {"avro": planted.NEW_SYMBOL.kind, "ravro": planted.LATE_AVRO.kind, "rprotobuf": planted.LATE_PROTOBUF.kind}
    table, settings = garden.other_job
    new_schema = {"ingest.topic.avro.value.schema": planted.MENDED_AVRO_SCHEMA}
    redrive = Redrive(tmp_path, (table, {**settings, **new_schema}))
    redrive.killed_after_commit(tmp_path / "ravro")
    redrive.run()
    garden.check(mended)

    again = redrive.run()
    assert again["redriven"] == {}
    left = sum(len(garden.letters(name, mended)) for name in garden.others)
    assert sum(each["letters"] for each in again["left"]) == left
    garden.check(mended)

"""One record in a hundred is garbage of a known kind: each is a dead letter once, with its reason, and none is a row.

What is mended then comes in by `tiered-stream redrive`, once, though it is killed between its commits.
"""

from __future__ import annotations

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
from tests.delta.planted_garbage import PlantedTopic
from tests.delta.typed_archive import typed_options
from tests.formats.scripted_registry import ScriptedRegistry
from tests.stack.jars import jar_paths
from tests.stack.spark import DELTA, LOCAL, spark_environment
from tiered_stream import land

pytestmark = pytest.mark.slow

RECORDS = 5_000
"""Of each of five topics."""
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
    """Five topics: that of JSON goes into a table with constraints, the others by one query into a table each."""

    def __init__(self, spark: SparkSession, folder: Path, registry: str) -> None:
        self._spark, self.folder, self._registry = spark, folder, registry
        others = (
            planted.AVRO, planted.protobuf_topic(folder), planted.REGISTERED_AVRO, planted.REGISTERED_PROTOBUF
        )  # fmt: skip
        self.others = {topic.name: topic for topic in others}
        self.topics: dict[str, PlantedTopic] = {"json": planted.JSON, **self.others}
        self.dead = folder / "dead"
        for topic in self.topics.values():
            topic.write(folder / "bucket", RECORDS)
        columns = "key STRING, id BIGINT NOT NULL, name STRING, price DOUBLE, amount DECIMAL(12,2), at TIMESTAMP, "
        columns += "raw BINARY, tags ARRAY<STRING>, offset BIGINT"
        spark.sql(f"CREATE TABLE delta.`{folder}/json` ({columns}) USING delta")
        spark.sql(f"ALTER TABLE delta.`{folder}/json` ADD CONSTRAINT cheap CHECK (price < 1000000)")

    def settings(self, topics: Mapping[str, PlantedTopic], **more: str) -> dict[str, str]:
        formats = {
            f"ingest.{'' if name == 'json' else f'topic.{name}.'}value.{key}": value
            for name, topic in topics.items()
            for key, value in topic.settings.items()
        }
        given = {
            **formats, "ingest.kafkaColumns": "offset", "ingest.onDecodeError": "deadLetter",
            "ingest.key.format": "string", "ingest.schema.registry.url": self._registry,
            "ingest.deadLetterTable": str(self.dead), "ingest.maxDeadLetters": "1%", **more,
        }  # fmt: skip
        return typed_options(self.folder / "bucket", ",".join(topics), given)

    def jobs(self) -> dict[str, dict[str, str]]:
        """Settings by the job's table."""
        return {
            str(self.folder / "json"): self.settings({"json": planted.JSON}),
            str(self.folder / "{topic}"): self.settings(self.others),
        }

    def land(self) -> None:
        for number, (table, settings) in enumerate(self.jobs().items()):
            checkpoint = str(self.folder / f"checkpoint {number}")
            land(self._spark, options=settings, table=table, checkpoint=checkpoint, lane="direct").awaitTermination()

    def check(self, mended: Mapping[str, set[str]]) -> None:
        """All tables: every record is a row, or a letter, as its kind says; of the kinds `mended` they are rows."""
        for name, topic in self.topics.items():
            wanted = {at for at, each in topic.planted(RECORDS) if each.kind not in mended.get(name, ())}
            rows = self._spark.read.format("delta").load(str(self.folder / name))
            total, ids, names, least, most, planted_rows = rows.selectExpr(
                "count(*)", "count(DISTINCT id)", "count(DISTINCT key)", "min(id)", "max(id)",
                f"count_if(id % {planted.EVERY} = 7 AND key = concat('k', id))",
            ).collect()[0]  # fmt: skip
            good = RECORDS - len(wanted)
            assert (total, ids, names, least, most) == (good, good, good, 0, RECORDS - 1), name
            assert planted_rows == RECORDS // planted.EVERY - len(wanted)
            assert rows.where("key != concat('k', id)").isEmpty()
        self._check_letters(mended)

    def _check_letters(self, mended: Mapping[str, set[str]]) -> None:
        letters = DeltaTable(self.dead).to_pyarrow_table().to_pylist()
        found = {(row["topic"], row["partition"], row["offset"]): row for row in letters}
        assert len(found) == len(letters)
        half = RECORDS // planted.PARTITIONS
        for name, topic in self.topics.items():
            for number, garbage in topic.planted(RECORDS):
                if garbage.kind in mended.get(name, ()):
                    continue
                row, record = found.pop((name, number // half, number % half)), topic.record(number)
                assert garbage.reason in row["reason"] and row["failed"] == garbage.part, (name, garbage.kind, row)
                headers = [(each["key"], each["value"]) for each in row["headers"]]
                stamped = round(row["timestamp"].timestamp() * 1000)
                assert (row["key"], row["value"], headers) == (record.key, record.value, list(record.headers))
                assert (stamped, row["timestampType"], row["redrive"]) == (record.timestamp_ms, 0, None)
        assert found == {}


class Redrive:
    """The command of a job, as a user runs it."""

    def __init__(self, folder: Path, table: str, settings: Mapping[str, str]) -> None:
        file, spark = folder / "job.properties", folder / "spark.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in {**settings, "ingest.table": table}.items()))
        conf = {**LOCAL, **DELTA, "spark.jars": ",".join(map(str, jar_paths("delta")))}
        spark.write_text("".join(f"{key} {value}\n" for key, value in conf.items()))
        program = Path(sys.executable).with_name("tiered-stream")
        self._command = [program, "redrive", "--json", "--settings", file, "--properties-file", spark]
        self._log = folder / "redrive.log"

    def _start(self, output: int | None = None) -> subprocess.Popen[bytes]:
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


def test_garbage_is_set_aside_and_what_is_mended_comes_in_once(
    spark: SparkSession, tmp_path: Path, registry: ScriptedRegistry
) -> None:
    garden = Garden(spark, tmp_path, registry.url)
    garden.land()
    garden.check({})

    spark.sql(f"ALTER TABLE delta.`{tmp_path}/json` DROP CONSTRAINT cheap")
    table, settings = next(iter(garden.jobs().items()))
    mended = {"json": {"CHECK"}}
    redrive = Redrive(tmp_path, table, settings)
    redrive.killed_after_commit(garden.dead)
    redrive.killed_after_commit(tmp_path / "json")
    redrive.run()
    garden.check(mended)

    registry.schemas[planted.LATE_AVRO_ID] = {"schema": planted.AVRO_SCHEMA}
    registry.schemas[planted.LATE_PROTOBUF_ID] = registry.schemas[planted.PROTOBUF_ID]
    mended |= {"avro": {planted.NEW_SYMBOL.kind}, "ravro": {planted.LATE_AVRO.kind}}
    mended |= {"rprotobuf": {planted.LATE_PROTOBUF.kind}}
    table = list(garden.jobs())[1]
    new_schema = {"ingest.topic.avro.value.schema": planted.MENDED_AVRO_SCHEMA}
    redrive = Redrive(tmp_path, table, garden.settings(garden.others, **new_schema))
    redrive.killed_after_commit(garden.dead)
    redrive.killed_after_commit(tmp_path / "ravro")
    redrive.run()
    garden.check(mended)
    again = redrive.run()
    assert again["mended"] == {}
    assert sum(each["letters"] for each in again["left"]) == 4 * RECORDS // 100 - sum(
        each.kind in kinds for name, kinds in mended.items() if name != "json"
        for _, each in garden.topics[name].planted(RECORDS)
    )  # fmt: skip
    garden.check(mended)

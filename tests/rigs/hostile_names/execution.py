"""Runs a job with hostile names on a real Spark: landing, redrive, verify, replays, and an export.

Every step does what the names say, or ends with an error of this package. Afterwards, each row must be in the table of
its own topic, no file may be outside of the job's folders, no SQL of a name may have run, and no line may be forged.
"""

from __future__ import annotations

import logging
import re
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.cli.running import run
from tests.formats.scripted_registry import ScriptedRegistry
from tests.rigs.histories import logged
from tests.rigs.hostile_names.drawing import EVIL, FORGED, Job
from tests.rigs.stack.rows import Record
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land, verify
from tiered_stream.delta.catalog.java_errors import own_error
from tiered_stream.delta.redrive.job_dead_letters import DeadLetterFilter
from tiered_stream.delta.redrive.redrive_run import redrive
from tiered_stream.errors import TieredStreamError
from tiered_stream.ingest.ingest_plan import Ingest, plan_ingests
from tiered_stream.replays.run_replay import plan_replay
from tiered_stream.replays.table_and_folder_targets import target_of

DATABASE, GUARD = "hostile", "guard"
RECORDS = 4
"""Records of each topic that decode. One more does not."""
FROM = "2020-01-01T00:00:00Z"
_FORGES = re.compile(rf"^{FORGED}|[\x00-\x08\x0b-\x1f\x7f\u200b\u202e]", re.MULTILINE)


def quoted(name: str) -> str:
    """Return the name as SQL, by Spark's documentation ("Identifiers")."""
    return "`" + name.replace("`", "``") + "`"


class HostileNames:
    """Runs jobs, one after another, in one session and below one folder. `problems` are what must not be."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.counts: Counter[str] = Counter()
        """How often each step was done or refused."""
        self.reasons: list[str] = []
        self.problems: list[str] = []
        self.warehouse = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))  # type: ignore[union-attr]
        for database in (DATABASE, GUARD):
            spark.sql(f"DROP DATABASE IF EXISTS {database} CASCADE")
            spark.sql(f"CREATE DATABASE {database}")
        spark.sql(f"CREATE TABLE {GUARD}.untouched USING delta AS SELECT 1 AS x")
        self._databases = self._names("SHOW DATABASES", "namespace")
        self._defaults = self._names("SHOW TABLES IN default", "tableName")

    def run(self, job: Job, name: str) -> None:
        """Run one job, and add whatever is wrong to `problems`."""
        before = len(self.problems)
        lines: list[str] = []
        with logged("tiered_stream", logging.INFO, lines), ScriptedRegistry() as registry:
            run = _Run(self, job, self.root / "jobs" / name, registry)
            run.steps()
        self.check_text("log", "\n".join(line for line in lines if _FORGES.search(line)))
        for database, tables in ((GUARD, ["untouched"]), ("default", self._defaults)):
            if (found := self._names(f"SHOW TABLES IN {database}", "tableName")) != tables:
                self.problems.append(f"the database {database} has the tables {found}")
        if (
            self._names("SHOW DATABASES", "namespace") != self._databases
            or self.spark.table(f"{GUARD}.untouched").count() != 1
        ):
            self.problems.append("the guard was touched")
        for table in self._names(f"SHOW TABLES IN {DATABASE}", "tableName"):
            self.spark.sql(f"DROP TABLE {DATABASE}.{quoted(table)}")
        shutil.rmtree(self.warehouse / f"{DATABASE}.db", ignore_errors=True)
        shutil.rmtree(run.folder)
        if left := sorted(str(each) for each in (self.root / "jobs").rglob("*")):
            self.problems.append(f"files outside of the job's folder: {left[:5]}")
        self.problems[before:] = [f"{name}: {each}" for each in self.problems[before:]]

    def check_text(self, what: str, text: str) -> None:
        if found := _FORGES.search(text):
            self.problems.append(f"{what}: {found[0]!r} in {text[max(0, found.start() - 200) : found.end() + 80]!r}")

    def _names(self, statement: str, column: str) -> list[str]:
        return sorted(row[column] for row in self.spark.sql(statement).collect())


class _Run:
    def __init__(self, rig: HostileNames, job: Job, folder: Path, registry: ScriptedRegistry) -> None:
        self.rig, self.spark, self.job, self.folder = rig, rig.spark, job, folder
        self.bucket, self.lake = folder / "bucket", folder / "lake"
        self.export, self.checkpoints = folder / "export", folder / "checkpoints"
        self.lake.mkdir(parents=True)
        self._schema = {
            "type": "object", "properties": {job.id_column: {"type": "integer"}, job.of_column: {"type": "string"}},
        }  # fmt: skip
        for topic in dict.fromkeys(job.topics):
            values = [orjson.dumps({job.id_column: number, job.of_column: topic}) for number in range(RECORDS)]
            prefix = b"\0\0\0\0\1" if job.registry else b""
            self._write(topic, [*(prefix + value for value in values), b"garbage"])
            if job.registry:
                registry.versions[f"{topic}-value", "latest"] = {
                    "id": 1, "schema": orjson.dumps(self._schema).decode(), "schemaType": "JSON",
                }  # fmt: skip
        registry.schemas[1] = {"schema": orjson.dumps(self._schema).decode(), "schemaType": "JSON"}
        self._registry = registry

    def _write(self, topic: str, values: list[bytes]) -> None:
        """Write the topic where its name leads within the bucket; a name that leads elsewhere is only subscribed to."""
        if "/" not in topic and "\0" not in topic and len(topic) < 250 and topic not in (".", ".."):
            write_topic(self.bucket, topic, [[Record(topic.encode(), value) for value in values]])

    @property
    def dead(self) -> str:
        return self._place(self.job.dead, raw=False)

    def _place(self, name: str, *, raw: bool) -> str:
        if self.job.by_path:
            return f"{self.lake}/{name}"
        return f"{DATABASE}.{name if raw else quoted(name)}"

    def _settings(self, topics: str) -> dict[str, str]:
        job = self.job
        schema = {"ingest.schema.registry.url": self._registry.url, "ingest.value.schema": "registry"}
        if not job.registry:
            schema = {"ingest.value.schema": orjson.dumps(self._schema).decode()}
        properties = {f"ingest.tableProperty.{name}": value for name, value in job.properties.items()}
        mapped = {"ingest.tableProperty.delta.columnMapping.mode": "name"} if job.mapped else {}
        given = {
            **schema, **properties, **mapped, "ingest.value.format": "json", "ingest.onDecodeError": "deadLetter",
            "ingest.deadLetterTable": self.dead, "ingest.maxDeadLetters": "100%",
            "ingest.kafkaColumns": f"topic as {job.topic_column}, partition, offset, timestamp",
        }  # fmt: skip
        return topic_options(self.bucket, topics, given)

    def steps(self) -> None:
        job, whole = self.job, self._settings(",".join(self.job.topics))
        place = self._place(job.table, raw=job.raw)
        landed: list[Ingest] = []

        def plan() -> list[Ingest]:
            checkpoint = f"{self.checkpoints}/{{topic}}" if job.a_query_each else f"{self.checkpoints}/all"
            by_job = {**whole, "ingest.table": place, "ingest.checkpointLocation": checkpoint}
            return plan_ingests(by_job)

        ingests = self._attempt("plan", plan) or []
        for each in ingests:
            if self._attempt("land", partial(self._land, each)):
                landed.append(each)
        self._check_rows(complete=bool(ingests) and len(landed) == len(ingests))
        self._check_metadata()
        for each in landed:
            self._attempt("verify", partial(self._verify, each))
            if self._attempt("correct the dead letters", self._correct_dead_letters):
                self._attempt("redrive", partial(redrive, self.spark, each.options, each.table, DeadLetterFilter()))
            if "{topic}" not in each.table:
                self._attempt("replay --replace", partial(self._replay, each.options, each.table, replace=True))
        one = self._settings(job.topics[0])
        self._attempt("replay --dry-run", lambda: self._replay(one, self._place(job.replayed, raw=job.raw), dry=True))
        self._attempt("replay", lambda: self._replay(one, self._place(job.replayed, raw=job.raw)))
        self._export(one)
        self._check_rows(complete=False)
        self._check_files()

    def _land(self, each: Ingest) -> bool:
        lane = "auto" if "{topic}" in each.table else self.job.lane
        query = land(self.spark, options=each.options, table=each.table, checkpoint=each.checkpoint, lane=lane)
        try:
            query.awaitTermination(120)
            assert not query.isActive, "the query does not end"
        finally:
            query.stop()
        return True

    def _verify(self, each: Ingest) -> None:
        for topic in each.options["subscribe"].split(","):
            table = each.table
            if "{topic}" in table:
                table = self._place(self.job.table_of(topic), raw=False)
            report = verify(self.spark, options={**each.options, "subscribe": topic}, table=table)
            self.rig.check_text("verify", str(report))

    def _correct_dead_letters(self) -> bool:
        """Put a value that decodes into the dead letters, as if the schema had been wrong when they landed."""
        name = f"delta.{quoted(self.dead)}" if self.job.by_path else self.dead
        value = orjson.dumps({self.job.id_column: RECORDS}).decode().replace("\\", "\\\\").replace("'", "\\'")
        framed = f"X'0000000001' || CAST('{value}' AS BINARY)" if self.job.registry else f"CAST('{value}' AS BINARY)"
        self.spark.sql(f"UPDATE {name} SET value = {framed}")
        return True

    def _replay(self, settings: Mapping[str, str], into: str, *, replace: bool = False, dry: bool = False) -> bool:
        settings = {name: value for name, value in settings.items() if name != "startingOffsets"}
        target = target_of(self.spark, into, settings, lane="auto" if replace else self.job.lane)
        planned = plan_replay(target, from_time=FROM, name=self.job.replay_name, replace=replace)
        if dry:
            self.rig.check_text("estimate", str(planned.estimate().to_json()))
        else:
            planned.run(report=lambda line: self.rig.check_text("replay's line", line))
        return True

    def _export(self, settings: Mapping[str, str]) -> None:
        source = {name: value for name, value in settings.items() if not name.startswith("ingest.")}
        ended = run("export", source, "--into", f"{self.export}/")
        self.rig.check_text("export", ended.output)
        if isinstance(ended.exception, SystemExit | None):
            self.rig.counts["export: refused" if ended.exit_code else "export: done"] += 1
        else:
            self.rig.problems.append(f"export: {ended.exception!r}")

    def _attempt(self, step: str, do: Callable[[], Any]) -> Any:
        """Run a step; return its result, or None if an error of this package refused it."""
        try:
            result = do()
        except TieredStreamError as error:
            self.rig.check_text(step, str(error))
            text = str(error)
        except StreamingQueryException as error:
            text = str(error)
            name, message = own_error(text)
            self.rig.check_text(f"{step}, the query's error", message)
            if not name:
                self.rig.problems.append(f"{step}: {text[:600]!r}")
        except Exception as error:  # noqa: BLE001 - any other error is what is looked for
            self.rig.problems.append(f"{step}: {error!r:.500} {traceback.format_exc()[-700:]}")
            return None
        else:
            self.rig.counts[f"{step}: done"] += 1
            return result
        self.rig.counts[f"{step}: refused"] += 1
        self.rig.reasons.append(f"{step} is refused: {' '.join(own_error(text))}")
        if "PARSE_" in text or "[INVALID_IDENTIFIER" in text:
            self.rig.problems.append(f"{step}: a name was parsed as SQL: {text[:300]!r}")
        return None

    def _tables(self) -> dict[str, DataFrame]:
        """Return the tables that have rows for topics, by the last part of their names."""
        if self.job.by_path:
            logs = (path.parent for path in self.lake.rglob("_delta_log") if any(path.glob("*.json")))
            found = {str(each.relative_to(self.lake)): self.spark.read.format("delta").load(str(each)) for each in logs}
        else:
            listed = self.spark.sql(f"SHOW TABLES IN {DATABASE}").where("NOT isTemporary").collect()
            names = [row.tableName for row in listed]
            found = {name: self.spark.table(f"{DATABASE}.{quoted(name)}") for name in names}
        return found

    def _check_rows(self, *, complete: bool) -> None:
        """Check that each row is in its topic's table and is there once. If `complete`, check that all are there."""
        job = self.job
        others = {name if job.by_path else name.lower() for name in (job.dead, job.replayed)}
        expected = {topic: job.table_of(topic) for topic in job.topics}
        tables = {
            name: rows for name, rows in self._tables().items() if name not in others or name in expected.values()
        }
        for name, rows in tables.items():
            if job.topic_column not in rows.columns or job.of_column not in rows.columns:
                if name not in others:
                    self.rig.problems.append(f"the table {name!r} has the columns {rows.columns}")
                continue
            seen = Counter((row[job.topic_column], row["offset"], row[job.of_column]) for row in rows.collect())
            for (topic, offset, of), times in seen.items():
                if of not in (topic, None) or times > 1 or (name not in others and expected.get(topic) != name):
                    self.rig.problems.append(
                        f"row {offset} of topic {topic!r} ({of!r}) is {times} times in table {name!r}"
                    )
        if complete:
            for topic, name in expected.items():
                found = tables[name].collect() if name in tables else []
                if sum(row[job.topic_column] == topic for row in found) != RECORDS:
                    self.rig.problems.append(f"the table {name!r} lacks rows of topic {topic!r}")

    def _check_metadata(self) -> None:
        """Check columns and properties of the topics' tables."""
        job = self.job
        columns = {job.id_column, job.of_column, job.topic_column, "partition", "offset", "timestamp"}
        for name, rows in self._tables().items():
            if name not in {job.table_of(topic) for topic in job.topics} - {job.dead, job.dead.lower()}:
                continue
            if set(rows.columns) - {"key"} != columns:
                self.rig.problems.append(f"the table {name!r} has the columns {rows.columns}")
            full = f"delta.{quoted(f'{self.lake}/{name}')}" if job.by_path else f"{DATABASE}.{quoted(name)}"
            found = {row.key: row.value for row in self.spark.sql(f"SHOW TBLPROPERTIES {full}").collect()}
            if EVIL in found or any(found.get(key) != value for key, value in job.properties.items()):
                self.rig.problems.append(f"the table {name!r} has the properties {found}")

    def _check_files(self) -> None:
        """Check that the job has written to its own folders only."""
        job = self.job
        names = {*(job.table_of(topic) for topic in job.topics), job.dead, job.replayed}
        if not job.by_path:
            names = {name.lower() for name in names}
        place = self.lake if job.by_path else self.rig.warehouse / f"{DATABASE}.db"
        tops = {name.split("/")[0] for name in names}
        found = {each.name for each in place.iterdir()} if place.exists() else set()
        allowed = {"bucket", "lake", "export", "checkpoints"}
        if found - tops or {each.name for each in self.folder.iterdir()} - allowed:
            self.rig.problems.append(
                f"folders {sorted(found - tops)}, {sorted(each.name for each in self.folder.iterdir())}"
            )
        checkpoints = {each.name for each in self.checkpoints.iterdir()} if self.checkpoints.exists() else set()
        exported = (
            [each for each in self.export.rglob("*") if each.parent != self.export] if self.export.exists() else []
        )
        if checkpoints - {"all", *job.topics} or exported:
            self.rig.problems.append(f"checkpoints {sorted(checkpoints)}, exported {exported}")
        if evil := [each for place in (self.folder, self.rig.warehouse) for each in place.rglob(EVIL)]:
            self.rig.problems.append(f"SQL has made {evil}")

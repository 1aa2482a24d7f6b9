"""Execution of a history: micro-batches by a small engine, and each MERGE by a real session of Spark and Delta."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from tests.dead_letter_model import without_spark
from tests.delta.typed_archive import typed_options, write_topic
from tests.upsert_model.history import Change, Fault, History, Rows, Step, apply_batch
from tiered_stream import land, verify
from tiered_stream.delta.commit.deltalake_merge import DeltalakeMerge
from tiered_stream.delta.commit.merge import MergedTable, MergeTransaction
from tiered_stream.delta.commit.transaction import BatchCommit, UncertainCommitError
from tiered_stream.delta.landing import data_files_readers
from tiered_stream.delta.landing import land as landing
from tiered_stream.delta.write import latest_rows
from tiered_stream.observe import metrics
from tiered_stream.verification.latest_report import LatestReport
from tiered_stream.verification.verify_report import Kind

IMAGE = "STRUCT<id: BIGINT, name: STRING>"
DEBEZIUM = {
    "ingest.value.format": "json",
    "ingest.value.schema": f"before {IMAGE}, after {IMAGE}, op STRING, ts_ms BIGINT",
    "ingest.key.format": "json",
    "ingest.key.schema": "id BIGINT",
    "ingest.envelope": "debezium",
    "ingest.keys": "id",
}
PLAIN = {"ingest.key.format": "string", "ingest.value.format": "string", "ingest.keys": "key"}


class Died(Exception):  # noqa: N818 - it is the driver's end, and no error of the product
    """The driver dies here."""


class Session:
    """A real session, but for its streaming queries: a small engine runs their micro-batches in this process."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.batch: tuple[str, int] | None = None
        context = _Delegate(spark.sparkContext)
        context.getLocalProperty = lambda _: self.batch and self.batch[0]
        self.sparkContext = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spark, name)

    @property
    def readStream(self) -> Any:  # noqa: N802 - Spark's name
        return without_spark._Reader(self, is_stream=True)  # type: ignore[arg-type]

    def installed(self) -> ExitStack:
        """Let the product use this session until the stack is closed."""
        stack = ExitStack()
        for owner, name, stand_in in (
            (landing, "register_source", lambda *_: None),
            (landing, "observed", lambda rows: rows),
            (data_files_readers, "settle_worker", lambda: None),
            (metrics, "current_micro_batch", lambda: self.batch),
        ):
            stack.enter_context(patch.object(owner, name, stand_in))
        return stack


class _Delegate(SimpleNamespace):
    def __init__(self, wrapped: Any) -> None:
        super().__init__(_wrapped=wrapped)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


class Execution:
    """One history in a folder of its own."""

    def __init__(self, session: Session, history: History, folder: Path) -> None:
        self._session, self._history, self._folder = session, history, folder
        self._table, self._dead = folder / "table", folder / "dead"
        self._checkpoint = folder / "checkpoint"
        self._log: dict[int, list[Change]] = {}
        self._rows: Rows = {}
        self._applied = 0

    def run(self) -> list[str]:
        """Execute all steps; return a text for each fault that was found."""
        for number, step in enumerate(self._history.steps):
            self._write(step)
            if step.optimize and self._table.exists():
                self._session.spark.sql(f"OPTIMIZE delta.`{self._table}`")
            if self._log:
                self._query(step)
                if found := self._differences():
                    return [f"{self._history.name}, step {number}: {text}" for text in found]
        is_verified = self._log and not self._history.across and int(self._history.name.split("-")[-1]) % 4 == 0
        return [f"{self._history.name}: {text}" for text in (self._verified() if is_verified else ())]

    def _verified(self) -> list[str]:
        """Compare the table with its topic by `verify`, as it is and after a row was lost; return what is wrong."""
        report = self._report()
        if not report.equal:
            return [f"the table is right, and verify says: {report.summary()} {list(report.found())}"]
        if not self._rows:
            return []
        lost = min(self._rows)
        column = "id" if self._history.debezium else "key"
        self._session.spark.sql(f"DELETE FROM delta.`{self._table}` WHERE {column} = '{lost}'")
        report = self._report()
        expected = [((column, str(lost)), Kind.MISSING)]
        found = [(each.key[0], each.kind) for each in report.differences]
        return [] if found == expected else [f"the row {lost} was lost, and verify says: {list(report.found())}"]

    def _report(self) -> LatestReport:
        options = typed_options(self._folder / "bucket", "orders", self._settings())
        report = verify(self._session.spark, options=options, table=str(self._table))
        assert isinstance(report, LatestReport)
        return report

    def _write(self, step: Step) -> None:
        for partition, changes in step.records.items():
            log = self._log.setdefault(partition, [])
            records = [change.record(debezium=self._history.debezium) for change in changes]
            write_topic(self._folder / "bucket", "orders", [[]] * partition + [records], len(log))
            log.extend(changes)

    def _query(self, step: Step) -> None:
        """Run the query until it ends well, with the step's fault in its first run."""
        history = self._history
        given = {**self._settings(), "maxOffsetsPerTrigger": str(step.limit)}
        merge = MergeTransaction if history.by_spark or history.deletion_vectors else DeltalakeMerge
        for fault in (step.fault, Fault.NONE):
            with (
                patch.object(merge, "commit", _faulty(merge.commit, fault, step.at)),
                patch.multiple(latest_rows, _MIN_NEW_BYTES=history.memory, MAX_KEPT_BYTES=2 * history.memory),
            ):
                query = land(
                    self._session,  # type: ignore[arg-type]
                    options=typed_options(self._folder / "bucket", "orders", given), table=str(self._table),
                    checkpoint=str(self._checkpoint), lane="direct",
                )  # fmt: skip
                try:
                    query.awaitTermination(600)
                except Died:
                    continue
            break
        self._model()

    def _settings(self) -> dict[str, str]:
        history = self._history
        given = {
            **(DEBEZIUM if history.debezium else PLAIN), "ingest.mode": "upsert", "ingest.kafkaColumns": "timestamp",
            "ingest.commit": "spark" if history.by_spark else "auto",
        }  # fmt: skip
        if history.across:
            given["ingest.orderBy"] = "timestamp"
        if history.deletion_vectors:
            given["ingest.tableProperty.delta.enableDeletionVectors"] = "true"
        if history.dead_letters:
            given |= {"ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": str(self._dead)}
        return given

    def _model(self) -> None:
        """Apply the micro-batches of the checkpoint that the model has not seen."""
        ends = [{}, *(self._ends(number) for number in range(len(list((self._checkpoint / "offsets").iterdir()))))]
        for start, end in list(pairwise(ends))[self._applied :]:
            batch = {
                partition: list(enumerate(self._log[partition]))[start.get(partition, 0) : last]
                for partition, last in end.items()
            }
            apply_batch(self._rows, batch, across=self._history.across)
            self._applied += 1

    def _ends(self, number: int) -> dict[int, int]:
        offsets = json.loads((self._checkpoint / "offsets" / str(number)).read_text())["orders"]
        return {int(partition): end for partition, end in offsets.items()}

    def _differences(self) -> list[str]:
        spark, history = self._session.spark, self._history
        names = ("id", "name") if history.debezium else ("CAST(key AS BIGINT)", "value")
        table = spark.read.format("delta").load(str(self._table)).selectExpr(*names, "unix_millis(timestamp)").collect()
        found, expected = sorted(map(tuple, table)), sorted((key, *row) for key, row in self._rows.items())
        texts = [] if found == expected else [f"the table has {found}, the model {expected}"]
        if history.dead_letters:
            dead = spark.read.format("delta").load(str(self._dead)).select("partition", "offset").collect()
            garbage = [(number, at) for number, log in self._log.items() for at, each in enumerate(log) if each.garbage]
            if sorted(map(tuple, dead)) != sorted(garbage):
                texts.append(f"dead letters are {sorted(map(tuple, dead))}, and garbage is {sorted(garbage)}")
        return texts


def _faulty(commit: Callable[[Any, BatchCommit], int], fault: Fault, at: int) -> Any:
    """Return `commit`, which merges a micro-batch, with the fault in the commit number `at`."""
    seen = iter(range(1 << 30))

    def faulty(self: Any, batch: BatchCommit) -> int:
        if next(seen) != at or fault is Fault.NONE:
            return commit(self, batch)
        if fault is Fault.BEFORE:
            raise Died
        other = (self._of if isinstance(self, DeltalakeMerge) else self._table).begin()
        with patch.object(MergedTable, "remove", lambda *_: None):
            version = commit(self, batch)
        if fault is Fault.AFTER:
            raise Died
        if fault is Fault.UNCERTAIN:
            raise UncertainCommitError("no response")
        return commit(other, batch) if batch.files else version

    return faulty

"""Execution of a history: micro-batches by a small engine, each MERGE by deltalake or by a real session of Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import orjson
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructType

from tests.formats.scripted_registry import ScriptedRegistry
from tests.rigs.dead_letter_model import without_spark
from tests.rigs.upsert_model.history import (
    FIRST_LATE,
    VERSIONS,
    Change,
    Fault,
    Form,
    History,
    Placed,
    Row,
    Start,
    State,
    Step,
    UnorderedError,
)
from tests.rigs.upsert_model.table_rows import rows_of_topic
from tests.tier.topics import topic_options, write_topic
from tiered_stream import land, verify
from tiered_stream.delta.commit.deltalake_merge import DeltalakeMerge
from tiered_stream.delta.commit.merge import MergedTable, MergeTransaction
from tiered_stream.delta.commit.transaction import BatchCommit, UncertainCommitError
from tiered_stream.delta.redrive.redrive_run import DeadLetterFilter, redrive
from tiered_stream.delta.write import latest_rows
from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.formats.registry import schema_registry
from tiered_stream.verification.verify_report import Kind, LatestReport

_IMAGE = StructType().add("id", LongType()).add("name", StringType())
_ENVELOPE = StructType().add("before", _IMAGE).add("after", _IMAGE).add("op", StringType()).add("ts_ms", LongType())
_KEY = {
    "ingest.key.format": "json",
    "ingest.key.schema": StructType().add("id", LongType()).json(),
    "ingest.keys": "id",
}
SETTINGS = {
    Form.PLAIN: {"ingest.key.format": "string", "ingest.value.format": "string", "ingest.keys": "key"},
    Form.DEBEZIUM: {
        "ingest.value.format": "json", "ingest.value.schema": _ENVELOPE.json(), "ingest.envelope": "debezium", **_KEY,
    },
    Form.FIELDS: {"ingest.value.format": "avro", "ingest.value.schema": "registry", **_KEY},
}  # fmt: skip
COLUMNS = {Form.PLAIN: ("value",), Form.DEBEZIUM: ("name",), Form.FIELDS: ("name", "note", "more")}
_IDS = 1000
"""Number of schema ids for a history. A process asks for each id once, so histories must not share them."""


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
        return without_spark.installed(self)


class _Delegate(SimpleNamespace):
    def __init__(self, wrapped: Any) -> None:
        super().__init__(_wrapped=wrapped)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


class Execution:
    """One history in a folder of its own. `spark` returns a session, which histories of deltalake do without."""

    def __init__(
        self, history: History, folder: Path, registry: ScriptedRegistry, spark: Callable[[], SparkSession]
    ) -> None:
        self._history, self._folder, self._registry, self._spark = history, folder, registry, spark
        self._session: Any = Session(spark()) if history.needs_spark else without_spark.Session()
        self._table, self._dead = folder / "table", folder / "dead"
        self._checkpoint = folder / "checkpoint"
        self._log: dict[int, list[Change]] = {}
        self._state = State(history.form, history.placed, history.ordered)
        self._has_own = False
        self._applied = 0
        self._first_id = history.number * _IDS
        self._register(0)
        self._newest(3)

    def run(self) -> list[str]:
        """Execute all steps; return a text for each fault that was found."""
        with patch.object(schema_registry, "_UNKNOWN_SECONDS", 0):
            for number, step in enumerate(self._history.steps):
                found = list(self._step(step))
                if found:
                    return [f"{self._history.name}, step {number}: {text}" for text in found]
            return [f"{self._history.name}: {text}" for text in self._verified()]

    def _step(self, step: Step) -> Iterator[str]:
        for partition, changes in step.records.items():
            log = self._log.setdefault(partition, [])
            records = [change.record(self._history.form, self._first_id) for change in changes]
            write_topic(self._folder / "bucket", "orders", [[]] * partition + [records], len(log))
            log.extend(changes)
        if not self._log:
            return
        if self._table.exists():
            self._prepare_table(step)
        with self._session.installed():
            yield from self._query(step)
        yield from self._differences()
        if step.redrive and self._dead.exists():
            yield from self._redrive()
            yield from self._differences()

    def _prepare_table(self, step: Step) -> None:
        """Merge the table's files, and set the user's own column, as the step says."""
        table = None if self._history.deletion_vectors else DeltaTable(self._table)
        name = f"delta.`{self._table}`"
        if step.optimize:
            table.optimize.compact() if table else self._spark().sql(f"OPTIMIZE {name}")
        if not (self._history.has_own and step.own):
            return
        own = f"own of {self._applied}"
        if not self._has_own and table:
            table.alter.add_columns([Field("own", PrimitiveType("string"))])
        elif not self._has_own:
            self._spark().sql(f"ALTER TABLE {name} ADD COLUMNS (own STRING)")
        if table:
            DeltaTable(self._table).update({"own": f"'{own}'"})
        else:
            self._spark().sql(f"UPDATE {name} SET own = '{own}'")
        self._has_own = True
        rows = self._state.rows
        rows |= {key: Row(row.values, row.at, row.partition, row.offset, own) for key, row in rows.items()}

    def _query(self, step: Step) -> Iterator[str]:
        """Run the query with all starts of the step; yield what is wrong."""
        history = self._history
        merge = MergeTransaction if history.by_spark else DeltalakeMerge
        starts = list(step.starts)
        while starts:
            start = starts.pop(0)
            # Without growth, the table must get all columns when it is created.
            self._newest(start.newest if history.adds or self._table.exists() else 3)
            with (
                patch.object(merge, "commit", _faulty(merge.commit, start)),
                patch.object(without_spark.Writer, "_batch", _ending(without_spark.Writer._batch, start)),
                patch.multiple(latest_rows, _MIN_NEW_BYTES=history.memory, MAX_KEPT_BYTES=2 * history.memory),
            ):
                query = land(
                    self._session,
                    options=topic_options(
                        self._folder / "bucket", "orders", {**self._settings(), "maxOffsetsPerTrigger": str(step.limit)}
                    ),
                    table=str(self._table), checkpoint=str(self._checkpoint), lane="direct",
                )  # fmt: skip
                try:
                    query.awaitTermination(600)
                except Died:
                    continue
                except TableError as error:
                    if "set ingest.orderBy" not in str(error):
                        raise
                    if not self._model(is_refused=True) or self._state.ordered:
                        yield f"the query stops without need: {error}"
                        return
                    self._state.ordered = True
                    starts.append(Start(start.newest))
        if not self._model(is_refused=False):
            yield "the query has merged records that have no order"

    def _model(self, *, is_refused: bool) -> bool:
        """Apply the micro-batches of the checkpoint that the model has not seen.

        If `is_refused`, the query has refused the last one. Return whether the model accepts and refuses the same ones.
        """
        batches = list(pairwise([{}, *map(self._ends, range(len(list((self._checkpoint / "offsets").iterdir()))))]))
        for start, end in batches[self._applied :]:
            places = ((partition, start.get(partition, 0), last) for partition, last in end.items())
            records = [
                (partition, offset, self._log[partition][offset])
                for partition, first, last in places
                for offset in range(first, last)
            ]
            try:
                self._state.apply(records)
            except UnorderedError:
                return is_refused and self._applied == len(batches) - 1
            self._applied += 1
        return not is_refused

    def _ends(self, number: int) -> dict[int, int]:
        offsets = json.loads((self._checkpoint / "offsets" / str(number)).read_text())["orders"]
        return {int(partition): end for partition, end in offsets.items()}

    def _redrive(self) -> Iterator[str]:
        self._register(FIRST_LATE)
        options = topic_options(self._folder / "bucket", "orders", self._settings())
        report = redrive(self._spark(), options, str(self._table), DeadLetterFilter())
        kept = self._state.redrive()
        found = sum(count for (_, reason), count in report.left.items() if "set ingest.orderBy" in reason)
        if found != kept:
            yield f"a redrive keeps {found} letters that have no order, and the model {kept}: {report.left}"

    def _verified(self) -> Iterator[str]:
        """Compare what `verify` expects with the model's, and what it finds; yield what is wrong."""
        if not self._log:
            return
        records = list(self._records())
        try:
            truth = self._state.truth(records)
        except UnorderedError:
            truth = None
        options = topic_options(self._folder / "bucket", "orders", self._settings())
        if not self._history.needs_spark:
            if truth is not None:
                with self._session.installed():
                    found = self._as_rows(rows_of_topic(self._session, options, self._table), has_own=False)
                expected = {key: self._as_row(key, row, has_own=False) for key, row in truth.items()}
                if found != expected:
                    yield f"verify expects {_sorted(found)}, and the model {_sorted(expected)}"
            return
        try:
            report = verify(self._spark(), options=options, table=str(self._table))
        except ConfigurationError as error:
            if truth is not None or "set ingest.orderBy" not in str(error):
                yield f"verify fails: {error}"
            return
        assert isinstance(report, LatestReport)
        kinds = Counter(_kind(truth or {}, self._state.rows, self._state.ties(records), self._as_row))
        if truth is None or dict(report.counts) != kinds:
            yield f"verify says {report.summary()} {list(report.found())}, and the model {kinds}"

    def _records(self) -> Iterator[Placed]:
        for partition, log in self._log.items():
            for offset, change in enumerate(log):
                yield partition, offset, change

    def _differences(self) -> Iterator[str]:
        """Compare the table with the model's rows, and the dead letters with the model's."""
        found = self._as_rows(self._read(self._table), has_own=True)
        expected = {key: self._as_row(key, row, has_own=True) for key, row in self._state.rows.items()}
        if found != expected:
            yield f"the table has {_sorted(found)}, the model {_sorted(expected)}"
        if self._history.dead_letters and self._dead.exists():
            dead = sorted((each["partition"], each["offset"]) for each in self._read(self._dead))
            letters = sorted((partition, offset) for partition, offset, _ in self._state.dead)
            if dead != letters:
                yield f"dead letters are {dead}, and the model's {letters}"

    def _read(self, table: Path) -> list[dict[str, Any]]:
        if not self._history.deletion_vectors:
            rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
            return rows
        return [row.asDict() for row in self._spark().read.format("delta").load(str(table)).collect()]

    def _as_rows(self, rows: list[dict[str, Any]], *, has_own: bool) -> dict[int, tuple[Any, ...]]:
        """Return the rows by key, in the form of `_as_row`; a key that occurs twice has the key -1."""
        history, found = self._history, dict[int, tuple[Any, ...]]()
        for each in rows:
            key = int(each["key"] if history.form is Form.PLAIN else each["id"])
            values = tuple(each.get(name) for name in COLUMNS[history.form])
            at = each["timestamp"].timestamp()
            place = (each["partition"], each["offset"]) if history.placed else ()
            own = (each.get("own"),) if has_own else ()
            found[-1 if key in found else key] = (*values, round(at * 1000), *place, *own)
        return found

    def _as_row(self, _: int, row: Row, *, has_own: bool = False) -> tuple[Any, ...]:
        values = tuple(row.values.get(name) for name in COLUMNS[self._history.form])
        place = (row.partition, row.offset) if self._history.placed else ()
        return (*values, row.at, *place, *((row.own,) if has_own else ()))

    def _register(self, late: int) -> None:
        for version, names in VERSIONS.items():
            fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
            for name in names:
                is_plain = name == "name"
                fields.append({"name": name, "type": "string"} if is_plain else _nullable(name))
            text = orjson.dumps({"type": "record", "name": "o", "fields": fields}).decode()
            self._registry.schemas[self._first_id + late + version] = {"schema": text}

    def _newest(self, version: int) -> None:
        number = self._first_id + version
        self._registry.versions["orders-value", "latest"] = {**self._registry.schemas[number], "id": number}

    def _settings(self) -> dict[str, str]:
        history = self._history
        given = {
            **SETTINGS[history.form], "ingest.mode": "upsert", "ingest.commit": "spark" if history.by_spark else "auto",
            "ingest.kafkaColumns": "partition, offset, timestamp" if history.placed else "timestamp",
        }  # fmt: skip
        if history.form is Form.FIELDS:
            given["ingest.schema.registry.url"] = self._registry.url
            given["ingest.schemaEvolution"] = "add" if history.adds else "none"
        if self._state.ordered:
            given["ingest.orderBy"] = "timestamp"
        if self._has_own:
            given["ingest.ownColumns"] = "own"
        if history.deletion_vectors:
            given["ingest.tableProperty.delta.enableDeletionVectors"] = "true"
        if history.dead_letters:
            given |= {"ingest.onDecodeError": "deadLetter", "ingest.deadLetterTable": str(self._dead)}
        return given


def _nullable(name: str) -> dict[str, Any]:
    return {"name": name, "type": ["null", "string"], "default": None}


def _sorted(rows: dict[int, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((key, *row) for key, row in rows.items())


def _kind(
    truth: dict[int, Row], rows: dict[int, Row], ties: dict[int, list[Row | None]], as_row: Callable[[int, Row], Any]
) -> Iterator[Kind]:
    """Yield the kind of difference for each key whose row is not the row of a last record of the key."""
    for key in truth.keys() | rows.keys():
        possible = [each and as_row(key, each) for each in [truth.get(key), *ties.get(key, ())]]
        row = rows.get(key)
        if (row and as_row(key, row)) in possible:
            continue
        yield Kind.MISSING if row is None else Kind.DIFFERENT if key in truth else Kind.EXTRA


def _ending(run: Callable[..., None], start: Start) -> Any:
    """Return `run`, which runs a micro-batch; the driver dies before the micro-batch number `start.batches` of it."""
    seen = iter(range(1 << 30))

    def ending(self: Any, *given: Any) -> None:
        if next(seen) == start.batches:
            raise Died
        run(self, *given)

    return ending


def _faulty(commit: Callable[[Any, BatchCommit], int], start: Start) -> Any:
    """Return `commit`, which merges a micro-batch, with the start's fault in the commit number `start.at`."""
    seen, fault = iter(range(1 << 30)), start.fault

    def faulty(self: Any, batch: BatchCommit) -> int:
        if next(seen) != start.at or fault is Fault.NONE:
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

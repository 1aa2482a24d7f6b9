"""What a source makes of a setting: rows, the ends of micro-batches, or an error; and how two of them differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.rigs.stack.jars import SPARK
from tests.spark.abilities import SEVERAL_BATCHES

KAFKA, OURS = "kafka", "tiered_stream"
TUNED = {"kafka.max.partition.fetch.bytes": str(16 << 20), "kafka.fetch.max.wait.ms": "50"}
"""For Spark's source: a tiered segment costs it a request for each megabyte, and a wait at the end of each."""

_NAMED = re.compile(r"(?:KAFKA_DATA_LOSS\.|\[)([A-Z][A-Z_]{9,})")
_OF_SPARK = {"STREAM_FAILED", "KAFKA_DATA_LOSS", "INTERNAL_ERROR", "FOREACH_BATCH_USER_FUNCTION_ERROR"}
_COLUMNS = ("topic", "partition", "offset", "unix_micros(timestamp) AS timestamp", "timestampType", "key", "value")

Ends = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Outcome:
    """`rows` in the order of their offsets; `batches`: where each micro-batch ended."""

    rows: pa.Table | None
    error: str | None = None
    batches: tuple[Ends, ...] = ()

    @property
    def condition(self) -> str | None:
        """The name of the error, if it has one."""
        return next((name for name in _NAMED.findall(self.error or "") if name not in _OF_SPARK), None)


def difference(kafka: Outcome, ours: Outcome) -> str | None:
    """What sets them apart; None: nothing."""
    if kafka.error and ours.error:
        same = not kafka.condition or ours.condition == kafka.condition
        return None if same else f"kafka: {kafka.condition}\n  ours: {_told(ours)}"
    if kafka.error or ours.error or _count(kafka) != _count(ours):
        return f"kafka: {_told(kafka)}\n  ours: {_told(ours)}"
    if kafka.batches != ours.batches:
        return f"micro-batches end at\n  kafka: {kafka.batches}\n  ours: {ours.batches}"
    if kafka.rows is not None and ours.rows is not None and not kafka.rows.equals(ours.rows):
        return f"other rows: {_first(kafka.rows, ours.rows)}"
    return None


def on_purpose(options: Mapping[str, str], kafka: Outcome, ours: Outcome) -> bool:
    """Whether they differ as the docs say.

    Both fail at an end beyond the start of an open transaction: ours at once and by a name of its own. A start beyond
    its end is refused by ours, as by Spark's source from Spark 4.1 on if it does not divide partitions.
    """
    if "OpenTransactionError" in (ours.error or ""):
        return kafka.error is not None
    unchecked = SPARK == "4.0" or "minPartitions" in options
    return unchecked and kafka.error is None and "_GREATER_THAN_END_" in (ours.error or "")


def read(spark: SparkSession, source: str, options: Mapping[str, str]) -> Outcome:
    """A batch read."""
    try:
        return Outcome(_rows(spark.read.format(source).options(**_for(source, options)).load()))
    except (PySparkException, Py4JError) as error:
        return Outcome(None, str(error))


class Stream:
    """A query with a checkpoint, and what it has brought so far."""

    def __init__(self, spark: SparkSession, source: str, options: Mapping[str, str], checkpoint: Path) -> None:
        self._spark = spark
        self._source = source
        self._options = _for(source, options)
        self._checkpoint = checkpoint
        self._found: dict[int, pa.Table] = {}

    def run(self) -> Outcome:
        """Read all there is now, and stop; what all runs have brought."""
        try:
            self._run()
            known = -1
            while self._source == OURS and not SEVERAL_BATCHES.present and len(self._ends()) > known:
                known = len(self._ends())  # such a Spark ends each run after one micro-batch
                self._run()
        except (PySparkException, Py4JError) as error:
            return Outcome(None, str(error), self._ends())
        rows_of_all = pa.concat_tables(self._found.values()) if self._found else None
        return Outcome(_sorted(rows_of_all) if rows_of_all else None, None, self._ends())

    def _run(self) -> None:
        rows = self._spark.readStream.format(self._source).options(**self._options).load()
        writer = rows.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self._checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def _keep(self, rows: DataFrame, batch_id: int) -> None:
        self._found[batch_id] = _rows(rows)

    def _ends(self) -> tuple[Ends, ...]:
        files = sorted((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        return tuple(_without_notes(json.loads(file.read_text().splitlines()[-1])) for file in files)


def _without_notes(offsets: Ends) -> Ends:
    """Ours notes a stream's start and end as topics without partitions, which Spark's source ignores."""
    return {topic: partitions for topic, partitions in offsets.items() if partitions}


def _for(source: str, options: Mapping[str, str]) -> dict[str, str]:
    if source == OURS:
        return dict(options)
    return {name: value for name, value in options.items() if not name.startswith("remote.")} | TUNED


def _rows(frame: DataFrame) -> pa.Table:
    headers = ("headers",) if "headers" in frame.columns else ()
    return _sorted(frame.selectExpr(*_COLUMNS, *headers).toArrow())


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]).combine_chunks()


def _count(outcome: Outcome) -> int:
    return outcome.rows.num_rows if outcome.rows else 0


def _told(outcome: Outcome) -> str:
    return outcome.error[:600] if outcome.error else f"{_count(outcome)} rows"


def _first(kafka: pa.Table, ours: pa.Table) -> str:
    """The first one that differs, by each."""
    if kafka.schema != ours.schema:
        return f"{kafka.schema} and {ours.schema}"
    pairs = zip(kafka.to_pylist(), ours.to_pylist(), strict=True)
    return str(next((pair for pair in pairs if pair[0] != pair[1]), "their order"))

"""Dead letters that a test writes by hand, and the job that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tiered_stream.delta.redrive.job_dead_letters import DeadLetterFilter
from tiered_stream.delta.redrive.redrive_run import RedriveReport, redrive
from tiered_stream.delta.schema.row_schema import spark_columns
from tiered_stream.formats.rows.row_format import DEAD_LETTER_SCHEMA

Places = list[tuple[str, int]]
"""Topics and offsets, sorted."""


class SetAside:
    """A table for dead letters, and jobs whose rows have `id`, `name`, `topic` and `offset`."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.dead = str(folder / "dead")
        self.columns = spark_columns(DEAD_LETTER_SCHEMA, None)
        spark.createDataFrame([], self.columns).write.format("delta").save(self.dead)

    def table(self, name: str = "table") -> str:
        return str(self.folder / name)

    def create_table(self, name: str = "table") -> None:
        columns = "id BIGINT, name STRING, topic STRING, offset BIGINT"
        self.spark.sql(f"CREATE TABLE delta.`{self.table(name)}` ({columns}) USING delta")

    def write(self, values: Mapping[int, bytes], topic: str = "orders", table: str = "table", **more: Any) -> None:
        """Letters by offset, for `table`."""
        same = {"topic": topic, "partition": 0, "timestampType": 0, "reason": "of that day", "failed": "value", **more}
        same["target"] = Path(self.table(table)).as_uri()
        letters = [{**same, "offset": offset, "value": value} for offset, value in values.items()]
        rows = [tuple(letter.get(name) for name in self.columns.names) for letter in letters]
        made = self.spark.createDataFrame(rows, self.columns).coalesce(1)
        made.write.format("delta").mode("append").save(self.dead)

    def redrive(
        self, given: Mapping[str, str] | None = None, chosen: DeadLetterFilter | None = None, *, table: str = "table",
        dry_run: bool = False,
    ) -> RedriveReport:  # fmt: skip
        settings = {
            "ingest.value.format": "json", "ingest.value.schema": "id BIGINT, name STRING",
            "ingest.kafkaColumns": "topic, offset", "ingest.onDecodeError": "deadLetter",
            "ingest.deadLetterTable": self.dead, **(given or {}),
        }  # fmt: skip
        if not any(name.startswith("subscribe") for name in settings):
            settings["subscribe"] = "orders"
        return redrive(self.spark, settings, self.table(table), chosen or DeadLetterFilter(), dry_run=dry_run)

    def read(self, place: str) -> DataFrame:
        return self.spark.read.format("delta").load(place)

    def rows(self, table: str = "table") -> Places:
        place = self.table(table)
        return _places(self.read(place)) if Path(place).exists() else []

    @property
    def letters(self) -> Places:
        return _places(self.read(self.dead))

    @property
    def marks(self) -> set[int]:
        return {row.redrive for row in self.read(self.dead).where("redrive IS NOT NULL").collect()}


def _places(rows: DataFrame) -> Places:
    return sorted((row.topic, row.offset) for row in rows.select("topic", "offset").collect())


def of(topic: str, *offsets: int) -> Places:
    return [(topic, offset) for offset in offsets]


def damage(table: Path, ignored: str) -> None:
    """Let a table's files be such that Spark leaves them out by the setting `ignored`."""
    for path in table.glob("*.parquet"):
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.write_bytes(b"PAR1 garbage PAR1") if ignored == "ignoreCorruptFiles" else path.unlink()

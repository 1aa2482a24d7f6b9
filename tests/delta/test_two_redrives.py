"""Redrives that run at the same time, or that crash and are started again with other settings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tiered_stream.delta.dead_letters import dead_letter_columns
from tiered_stream.delta.job_letters import Chosen
from tiered_stream.delta.letter_marks import LetterMarks
from tiered_stream.delta.redrive import RedriveReport, redrive
from tiered_stream.delta.redriven_table import RedrivenTable
from tiered_stream.errors import TableError

pytestmark = pytest.mark.slow

EVERYTHING = Chosen()
STEPS = {LetterMarks: ("letters", "mark", "clear", "delete"), RedrivenTable: ("outcome", "append", "give_up")}
"""What a redrive does one after the other: each reads or changes a table."""
PLAIN = ("letters", "letters", "mark", "letters", "letters", "outcome", "letters", "append", "outcome", "delete", "letters")
"""The steps of a redrive of one topic that nobody disturbs."""


class CrashError(Exception):
    pass


class Aside:
    """Letters of topics, written by hand, of values `{"id": n}`; even ids fit into INT as they are."""

    def __init__(self, spark: SparkSession, folder: Path, table: str = "table") -> None:
        self.spark, self.folder = spark, folder
        self.table, self.dead = str(folder / table), str(folder / "dead")
        spark.createDataFrame([], dead_letter_columns()).write.format("delta").save(self.dead)

    def set_aside(self, topic: str, values: Mapping[int, bytes], **more: Any) -> None:
        columns = dead_letter_columns()
        rows = [
            Row(**{**dict.fromkeys(columns.names), "topic": topic, "partition": 0, "offset": offset, "value": value,
                   "timestampType": 0, "reason": "it was so", "failed": "value", **more})
            for offset, value in values.items()
        ]  # fmt: skip
        self.spark.createDataFrame([tuple(row[name] for name in columns.names) for row in rows], columns).coalesce(
            1
        ).write.format("delta").mode("append").save(self.dead)

    def numbers(self, topic: str = "orders", **more: Any) -> None:
        """Ten letters, of which one is garbage for every schema."""
        values = {offset: b'{"id": %d}' % offset for offset in range(9)}
        self.set_aside(topic, {**values, 9: b"garbage"}, **more)

    def redrive(self, chosen: Chosen = EVERYTHING, *, dry_run: bool = False, **given: str) -> RedriveReport:
        settings = {
            "subscribe": "orders", "ingest.value.format": "json", "ingest.value.schema": "id BIGINT",
            "ingest.kafkaColumns": "topic, offset", "ingest.onDecodeError": "deadLetter",
            "ingest.deadLetterTable": self.dead,
        }  # fmt: skip
        settings |= {key.replace("__", "."): value for key, value in given.items()}
        if "subscribePattern" in given:
            del settings["subscribe"]
        return redrive(self.spark, settings, settings.pop("table", self.table), chosen, dry_run=dry_run)

    def read(self, table: str) -> DataFrame:
        return self.spark.read.format("delta").load(table)

    def rows(self, table: str | None = None) -> list[tuple[str, int]]:
        place = Path(table or self.table)
        return sorted((row.topic, row.offset) for row in self.read(str(place)).collect()) if place.exists() else []

    @property
    def letters(self) -> list[tuple[str, int]]:
        return sorted((row.topic, row.offset) for row in self.read(self.dead).collect())

    @property
    def marks(self) -> int:
        return self.read(self.dead).where("redrive IS NOT NULL").count()


def of(topic: str, *offsets: int) -> list[tuple[str, int]]:
    return [(topic, offset) for offset in offsets]


@contextmanager
def before_each_step(patch: pytest.MonkeyPatch, call: Callable[[str], None]) -> Iterator[None]:
    """`call` gets each step's name before the step."""

    def hooked(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            call(name)
            return step(*args, **kwargs)

        return run

    with patch.context() as steps:
        for owner, names in STEPS.items():
            for name in names:
                steps.setattr(owner, name, hooked(name, getattr(owner, name)))
        yield


def at_step(number: int, do: Callable[[], None]) -> tuple[list[str], Callable[[str], None]]:
    """Do something before one step of the first redrive; steps of redrives within it do not count."""
    steps: list[str] = []
    within = False

    def call(name: str) -> None:
        nonlocal within
        if within:
            return
        steps.append(name)
        if len(steps) == number + 1:
            within = True
            do()
            within = False

    return steps, call


@pytest.fixture
def aside(spark: SparkSession, tmp_path: Path) -> Aside:
    return Aside(spark, tmp_path)


@pytest.mark.parametrize("step", range(len(PLAIN)))
def test_a_redrive_within_another_one_brings_each_letter_in_once(
    aside: Aside, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    aside.numbers()
    reports: list[RedriveReport] = []
    steps, call = at_step(step, lambda: reports.append(aside.redrive()))
    with before_each_step(monkeypatch, call):
        reports.append(aside.redrive())
    assert steps[: step + 1] == list(PLAIN[: step + 1])
    assert (aside.rows(), aside.letters, aside.marks) == (of("orders", *range(9)), of("orders", 9), 0)
    assert all(sum(report.left.values()) == 1 for report in reports)


@pytest.mark.parametrize("step", range(3, len(PLAIN) - 1))
def test_a_redrive_by_a_schema_that_fits_fewer_letters_within_another_one_leaves_each_letter_in_one_place(
    aside: Aside, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    values = {offset: b'{"id": "%d"}' % offset if offset % 2 else b'{"id": %d}' % offset for offset in range(9)}
    aside.set_aside("orders", values)
    # A string reads whatever a number is, and not the other way round.
    aside.spark.sql(f"CREATE TABLE delta.`{aside.table}` (id STRING, topic STRING, offset BIGINT) USING delta")
    few = {"ingest__value__schema": "id STRING", "ingest__transform": f"{__name__}:{refuses_odd.__name__}"}
    steps, call = at_step(step, lambda: aside.redrive(**few) and None)
    with before_each_step(monkeypatch, call):
        aside.redrive(ingest__value__schema="id STRING")
    assert steps[: step + 1] == list(PLAIN[: step + 1])
    assert sorted(aside.rows() + aside.letters) == of("orders", *range(9))
    assert aside.marks == 0

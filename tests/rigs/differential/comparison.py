"""Settings drawn one after the other, each by both sources."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tests.rigs.differential.outcomes import KAFKA, OURS, Outcome, Stream, difference, on_purpose, read
from tests.rigs.differential.settings import Setting, Settings
from tests.rigs.differential.topics import Topics
from tests.rigs.stack.tiered_stack import TieredStack

EVERY_FIFTH = 5
"""Is a stream: they take longest."""


@dataclass
class Tally:
    """Of the settings in which both did the same."""

    batch: int = 0
    stream: int = 0
    rows: int = 0
    errors: int = 0
    on_purpose: int = 0
    """Settings in which they are to differ."""

    def count(self, setting: Setting, outcome: Outcome) -> None:
        self.batch += setting.batch
        self.stream += not setting.batch
        self.rows += outcome.rows.num_rows if outcome.rows else 0
        self.errors += outcome.error is not None

    def __str__(self) -> str:
        alike = f"{self.batch} batch reads and {self.stream} streams alike"
        return f"{alike}, {self.rows:,} rows, {self.errors} errors; {self.on_purpose} differ on purpose"


class Comparison:
    """The topics of one seed, and what was found over them."""

    def __init__(self, spark: SparkSession, stack: TieredStack, folder: Path, seed: int) -> None:
        draw = random.Random(seed)
        self._spark = spark
        # Spark's source waits for the poll's timeout where an open transaction hides what it was told to read.
        waits = {"fetchOffset.retryIntervalMs": "10", "kafkaConsumer.pollTimeoutMs": "20000"}
        self._given = {**stack.options(), **waits}
        self._folder = folder
        self._draw = draw
        self._making = Topics(stack, draw)
        self._topics = self._making.make()
        self._settings = Settings(draw)
        self.tally = Tally()

    def run(self, settings: int, say: Callable[[str], None]) -> list[str]:
        """Compare so many; the differences, which are also said."""
        found = []
        for number in range(1, settings + 1):
            setting, differs = self._stream(number) if number % EVERY_FIFTH == 0 else self._batch(number)
            if differs:
                found.append(f"{setting}\n  {differs}")
                say(found[-1])
            if number % 25 == 0:
                say(f"{number}: {self.tally}")
        return found

    def _batch(self, number: int) -> tuple[Setting, str | None]:
        setting = self._settings.batch(number, self._topics)
        kafka, ours = (read(self._spark, source, {**self._given, **setting.options}) for source in (KAFKA, OURS))
        return setting, self._compared(setting, kafka, ours)

    def _stream(self, number: int) -> tuple[Setting, str | None]:
        """Of a topic of its own that grows between two runs, or of one that stays as it is."""
        grows = self._draw.random() < 0.7
        topic = self._making.make_growing(f"growing-{number}") if grows else self._draw.choice(self._topics)
        setting = self._settings.stream(number, topic)
        checkpoint = self._folder / f"stream-{number}"
        options = {**self._given, **setting.options}
        kafka, ours = (Stream(self._spark, source, options, checkpoint / source) for source in (KAFKA, OURS))
        by_kafka, by_ours = kafka.run(), ours.run()
        if grows and difference(by_kafka, by_ours) is None:
            self._making.grow(topic.name, self._draw.choice((0, 0, 1)))
            by_kafka, by_ours = kafka.run(), ours.run()
        return setting, self._compared(setting, by_kafka, by_ours)

    def _compared(self, setting: Setting, kafka: Outcome, ours: Outcome) -> str | None:
        differs = difference(kafka, ours)
        if differs is None:
            self.tally.count(setting, kafka)
        elif on_purpose(setting.options, kafka, ours):
            self.tally.on_purpose += 1
            return None
        return differs

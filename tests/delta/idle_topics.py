"""What topics without news add to a micro-batch: `python -m tests.delta.idle_topics 500`.

Two queries in turns, in one Spark session and from a real broker: one reads a few topics that get a record now and
then, the other these and the idle ones, each of which has a table already. Prints the medians of their micro-batches.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from kafka.admin import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.spark import spark_session
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import TIERED
from tiered_stream import land

console = Console(highlight=False, soft_wrap=True)

BUSY = [f"busy-{number}" for number in range(5)]
PARTITIONS = 2
TURNS, BATCHES = 2, 12
"""Of each query; batches with news of all busy topics in a turn."""
_PHASES = ("triggerExecution", "latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


@dataclass(frozen=True)
class Lander:
    """One of the two queries, which starts anew for each of its turns."""

    spark: SparkSession
    options: Mapping[str, str]
    folder: Path

    def land(self, trigger: str) -> StreamingQuery:
        table, checkpoint = f"{self.folder}/lake/{{topic}}", f"{self.folder}/checkpoint"
        return land(self.spark, options=self.options, table=table, checkpoint=checkpoint, trigger=trigger)

    def take_turn(self, producer: RawProducer) -> list[Mapping[str, int]]:
        """The milliseconds of each phase of its micro-batches, but for the first, which opens the tables."""
        query = self.land("1 second")
        try:
            while len(found := batches_with(query, at_least=len(BUSY))) <= BATCHES:
                self._bring_news(query, producer)
            return found[1:]
        finally:
            query.stop()

    def _bring_news(self, query: StreamingQuery, producer: RawProducer) -> None:
        """To all busy topics; mostly they are in one micro-batch."""
        before = sum(each["rows"] for each in batches_with(query))
        for topic in BUSY:
            producer.send(topic, [Record(b"k", b"v" * 100)])
        wait_until(
            lambda: sum(each["rows"] for each in batches_with(query)) >= before + len(BUSY), "the news", pause=0.05
        )


def batches_with(query: StreamingQuery, at_least: int = 1) -> list[Mapping[str, int]]:
    """Of the batches so far that have so many rows, these, and the milliseconds of their phases."""
    if (error := query.exception()) is not None:
        raise error
    return [
        {"rows": each.numInputRows, **each.durationMs} for each in query.recentProgress if each.numInputRows >= at_least
    ]


def make_topics(stack: TieredStack, names: Sequence[str]) -> None:
    """Each with a record."""
    with stack.broker.admin() as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 1, topic_configs=TIERED) for name in names])
        admin.wait_for_topics(list(names))
    with RawProducer(stack.broker) as producer:
        for name in names:
            producer.send(name, [Record(b"k", b"v")])


def measure(folder: Path, idle: int) -> list[list[Mapping[str, int]]]:
    """The phases of micro-batches without idle topics, and with them."""
    found: list[list[Mapping[str, int]]] = [[], []]
    with TieredStack(folder / "stack") as stack:
        make_topics(stack, [*BUSY, *(f"idle-{number}" for number in range(idle))])
        spark = spark_session("idle topics", groups=("delta",))
        given = {**stack.options(), "startingOffsets": "earliest"}
        landers = [
            Lander(spark, {**given, "subscribePattern": pattern}, folder / str(number))
            for number, pattern in enumerate(["^busy-", "^(busy|idle)-"])
        ]
        for lander in landers:
            lander.land("availableNow").awaitTermination()
        with RawProducer(stack.broker) as producer:
            for _ in range(TURNS):
                for lander, batches in zip(landers, found, strict=True):
                    batches += lander.take_turn(producer)
        spark.stop()
    return found


def main() -> None:
    idle = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with tempfile.TemporaryDirectory(prefix="idle-topics-") as folder:
        found = measure(Path(folder), idle)
    alone, beside = ({phase: median(each[phase] for each in batches) for phase in _PHASES} for batches in found)
    shown = Table("milliseconds, medians", f"{len(BUSY)} topics", f"and {idle} idle ones", "more")
    for phase in _PHASES:
        shown.add_row(phase, *(f"{each:.0f}" for each in (alone[phase], beside[phase], beside[phase] - alone[phase])))
    console.print(shown)
    console.print(f"{' and '.join(str(len(batches)) for batches in found)} micro-batches")


if __name__ == "__main__":
    main()

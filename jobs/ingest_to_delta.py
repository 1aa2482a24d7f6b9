r"""Kafka topics into Delta tables, from tiered storage where they are tiered.

    spark-submit --properties-file conf/spark-defaults.conf jobs/ingest_to_delta.py \
        --settings conf/ingest_to_delta.properties

Settings come from the file; the command line comes on top. `ingest.*` settings say where and how the rows land,
everything else is an option of `format("tiered_stream")`. With `{topic}` in `ingest.table`, each topic of `subscribe`
goes to a table of its own; `ingest.checkpointLocation` then needs it too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from tiered_stream.errors import ConfigurationError, TableError
from tiered_stream.landing.query import AVAILABLE_NOW, plan_landing
from tiered_stream.metrics import MetricsReceiver, ReadMetrics, describe
from tiered_stream.progress import describe_progress
from tiered_stream.settings import parse_assignment, read_settings

console = Console(highlight=False, soft_wrap=True)

TABLE = "ingest.table"
CHECKPOINT = "ingest.checkpointLocation"
TRIGGER = "ingest.trigger"
LANE = "ingest.lane"
_SECONDS_BETWEEN_LOOKS = 1
_SECONDS_BETWEEN_REPORTS = 5.0


@dataclass(frozen=True)
class Ingest:
    """One query: what is read, and where it lands."""

    options: Mapping[str, str]
    table: str
    checkpoint: str
    trigger: str
    lane: str = "auto"


def plan_ingests(settings: Mapping[str, str]) -> Iterator[Ingest]:
    """One query, or one a topic where the table's name holds `{topic}`."""
    missing = [name for name in (TABLE, CHECKPOINT) if not settings.get(name)]
    if missing:
        raise ConfigurationError(f"{' and '.join(missing)} must be set, in the settings file or with --option")
    table, checkpoint = settings[TABLE], settings[CHECKPOINT]
    how = settings.get(TRIGGER, AVAILABLE_NOW), settings.get(LANE, "auto")
    own = (TABLE, CHECKPOINT, TRIGGER, LANE)
    options = {name: value for name, value in settings.items() if name not in own}
    if "{topic}" not in table:
        yield Ingest(options, table, checkpoint, *how)
        return
    if "{topic}" not in checkpoint or not options.get("subscribe"):
        raise ConfigurationError(f"with {{topic}} in {TABLE}, {CHECKPOINT} needs it too, and topics come by subscribe")
    for topic in filter(None, map(str.strip, options["subscribe"].split(","))):
        names = table.replace("{topic}", topic), checkpoint.replace("{topic}", topic)
        yield Ingest({**options, "subscribe": topic}, *names, *how)


def start(spark: SparkSession, ingest: Ingest, metrics_address: str) -> StreamingQuery:
    """Start the query, and say by which lane; the table is made when it is missing."""
    name = f"ingest {ingest.table}"
    landing = plan_landing(
        spark,
        options={"remote.metrics.address": metrics_address, **ingest.options},
        table=ingest.table,
        checkpoint=ingest.checkpoint,
        trigger=ingest.trigger,
        lane=ingest.lane,
        name=name,
    )
    console.print(f"{name}: {landing.lane.value} lane, {landing.reason}", markup=False)
    return landing.start()


class TerminalProgress:
    """Prints a line for each micro-batch that had rows, and how far a long one has come."""

    def __init__(self, receiver: MetricsReceiver) -> None:
        self._receiver = receiver
        self._reported = ReadMetrics()
        self._said = time.monotonic()
        self._said_records = 0

    def follow(self, query: StreamingQuery) -> None:
        """Report until the query ends.

        Raises:
            StreamingQueryException: the query failed.
        """
        console.print(f"{query.name}: started, query id {query.id}")
        last_batch = -1
        ended = False
        while not ended:
            try:
                ended = bool(query.awaitTermination(_SECONDS_BETWEEN_LOOKS))
            finally:
                for progress in query.recentProgress:
                    if progress.batchId > last_batch and progress.numInputRows:
                        self._finished(query, progress)
                        last_batch = progress.batchId
            self._so_far(query)

    def _finished(self, query: StreamingQuery, progress: StreamingQueryProgress) -> None:
        total = self._receiver.total()
        console.print(f"{query.name}: {describe_progress(progress, total.since(self._reported))}")
        self._reported, self._said, self._said_records = total, time.monotonic(), 0

    def _so_far(self, query: StreamingQuery) -> None:
        spent = self._receiver.total().since(self._reported)
        if spent.records > self._said_records and time.monotonic() - self._said > _SECONDS_BETWEEN_REPORTS:
            console.print(f"{query.name}: so far {spent.records:,} rows, {describe(spent)}")
            self._said, self._said_records = time.monotonic(), spent.records


def run(settings: Mapping[str, str]) -> ReadMetrics:
    """Run every query to its end, or until one fails; what reading cost."""
    ingests = list(plan_ingests(settings))
    spark = SparkSession.builder.appName("ingest_to_delta").getOrCreate()
    host, bind = spark.conf.get("spark.driver.host", None), spark.conf.get("spark.driver.bindAddress", None)
    with MetricsReceiver(host or "127.0.0.1", bind) as receiver:
        progress = TerminalProgress(receiver)
        queries = [start(spark, ingest, receiver.address) for ingest in ingests]
        for query in queries:
            progress.follow(query)
        total = receiver.total()
    console.print(f"{total.records:,} rows read, {describe(total)}")
    return total


def main(
    settings: Annotated[Path | None, typer.Option(help="A settings file, see conf/ingest_to_delta.properties.")] = None,
    table: Annotated[str | None, typer.Option(help="The Delta table: a path, or a name in the catalog.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="The query's checkpoint location.")] = None,
    trigger: Annotated[str | None, typer.Option(help="availableNow, or an interval such as '10 seconds'.")] = None,
    lane: Annotated[str | None, typer.Option(help="auto, direct (tasks write the table's files) or spark.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="name=value, any setting; may be repeated.")] = None,
    metrics_file: Annotated[Path | None, typer.Option(help="Write what reading cost to this file, as JSON.")] = None,
) -> None:
    """Ingest Kafka topics into Delta tables."""
    try:
        given = {TABLE: table, CHECKPOINT: checkpoint, TRIGGER: trigger, LANE: lane}
        from_file = read_settings(settings) if settings else {}
        from_options = dict(map(parse_assignment, option or []))
        total = run({**from_file, **from_options, **{name: value for name, value in given.items() if value}})
    except (ConfigurationError, TableError) as error:
        console.print(str(error), style="red", markup=False)
        sys.exit(2)
    if metrics_file:
        metrics_file.write_text(json.dumps(asdict(total)))


if __name__ == "__main__":
    typer.run(main)

"""`make soak BATCHES=N`: N micro-batches in each of five ways, as fast as they go.

python -m tests.rigs.soak.batches N [--way NAME]. At 1 %, 10 %, 50 % and 100 % of N it records what all processes and
folders hold, and prints a Markdown table for each way. In the end, it checks that every record arrived exactly once.

The remedies for growth by design are a part of it: Delta's checkpoints and clean-up of the log, compaction, and VACUUM
of files that a compaction or a MERGE has replaced. Delta's retention is a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import urlopen

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from tests.observe.otlp_collector import OtlpCollector
from tests.rigs.soak.driver import soak_session, used_by_jvm
from tests.rigs.soak.marks import BATCHES, SECONDS, SHARES, figures, report
from tests.rigs.soak.ways import TITLES, WAYS, Arrivals, Way
from tests.rigs.stack.build import ROOT, build_folder
from tests.rigs.stack.processes import run_logged
from tiered_stream import report_queries

FIGURES = ROOT / "build" / "soak-batches.json"
REMEDY_BATCHES = 1000
"""Micro-batches from one VACUUM to the next."""
_PAUSE = 0.1
_SCRAPE_SECONDS = 1.0
_EXPORT_MS = "1000"

console = Console(highlight=False, markup=False, soft_wrap=True)


def beyond(batches: int) -> int:
    """Return micro-batches that follow the last mark: a query whose topics have ended has no planner."""
    return 20 + batches // 50


@dataclass(frozen=True)
class Driver:
    """Driver of one way, in a process of its own; `otlp` is where a collector listens."""

    way: str
    folder: str
    batches: int
    otlp: str

    @property
    def temporary(self) -> Path:
        return Path(self.folder, "temporary")

    @property
    def outcome(self) -> Path:
        """JSON: the marks, and what arrived in words."""
        return Path(self.folder, "outcome.json")

    def run_in_process(self) -> None:
        self.temporary.mkdir(parents=True)
        environment = {
            **os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT),
            "OTEL_METRIC_EXPORT_INTERVAL": _EXPORT_MS,
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.rigs.soak.batches", "--drive", json.dumps(asdict(self))]
        run_logged(f"soak, {self.way}", command, Path(self.folder, "driver.log"), environment)

    def run(self) -> None:
        """Run the query to its end, and write the outcome.

        Raises:
            StreamingQueryException: the query has failed.
            AssertionError: a record did not arrive exactly once.
        """
        way = Way(self.way, self.folder, self.batches + beyond(self.batches))
        way.write_topics()
        spark, arrivals = soak_session(self.temporary), Arrivals()
        with report_queries(spark, lines="none", prometheus="127.0.0.1:0", otlp=self.otlp) as reports:
            query = way.start(spark, arrivals)
            marks = list(self._marks(spark, way, query, f"http://127.0.0.1:{reports.port}/metrics"))
            query.awaitTermination()
        spark.stop()
        self.outcome.write_text(json.dumps({"marks": marks, "arrived": way.check(arrivals)}))

    def _marks(self, spark: SparkSession, way: Way, query: StreamingQuery, metrics: str) -> Iterator[dict[str, float]]:
        wanted = [max(1, round(share * self.batches)) for share in SHARES]
        began, before, cleaned, scraped = 0.0, 0, 0, 0.0
        while wanted and query.isActive:
            done, now = batches_done(way.checkpoint), time.monotonic()
            if done and not before:
                began, before = now, done  # the session's start is no part of a micro-batch
            if now - scraped >= _SCRAPE_SECONDS:
                scraped = now
                with urlopen(metrics) as response:
                    assert response.status == 200
            if done - cleaned >= REMEDY_BATCHES:
                cleaned = done
                clean(way)
            if done >= wanted[0]:
                wanted.pop(0)
                seconds = (now - began) / max(1, done - before)
                jvm = used_by_jvm(spark)
                yield {BATCHES: done, SECONDS: seconds, **figures(os.getpid(), way, self.temporary, jvm)}
                began, before = time.monotonic(), batches_done(way.checkpoint)
            time.sleep(_PAUSE)
        if error := query.exception():
            raise error
        assert not wanted, f"the query has ended before {wanted[0]} micro-batches"


def batches_done(checkpoint: Path) -> int:
    return max((int(file.name) for file in checkpoint.glob("commits/[0-9]*")), default=-1) + 1


def clean(way: Way) -> None:
    """Delete what the tables' retention no longer keeps: replaced data files, and versions of the log."""
    for path in way.tables():
        table = DeltaTable(path)
        table.vacuum(dry_run=False, enforce_retention_duration=False, full=False)
        table.cleanup_metadata()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.soak.batches")
    parser.add_argument("batches", nargs="?", type=int, default=1000)
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        Driver(**json.loads(given.drive)).run()
        return
    outcomes = {}
    with build_folder("soak-batches") as folder:
        for way in given.way or WAYS:
            with OtlpCollector() as collector:
                driver = Driver(way, str(folder / way), given.batches, collector.endpoint)
                driver.run_in_process()
                assert collector.requests, "no figure came to the collector of OpenTelemetry"
            outcomes[way] = json.loads(driver.outcome.read_text())
            console.print(f"\n{report(TITLES[way], outcomes[way]['marks'])}\n\n{outcomes[way]['arrived']}")
            FIGURES.write_text(json.dumps(outcomes, indent=2))


if __name__ == "__main__":
    main()

"""The job that lands the topics, killed at random events and started again."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.jobs.submitted import SubmittedJob
from tests.rigs.debezium.tables import Table
from tests.rigs.stack.processes import LONG, wait_until
from tests.rigs.stack.tiered_stack import TieredStack

APPEND, UPSERT = "append", "upsert"
MODES = (APPEND, UPSERT)
_LONGEST_WAIT = 0.4
"""Seconds between an event and the kill, at most."""
_LIMIT = 150
"""Records that a micro-batch has of a topic while the job is killed, on average at most."""
_BATCHES = 3
"""A kill comes within so many micro-batches, about."""
BATCH_EVENTS = ("a batch is planned", "a batch is done")
TABLE_EVENTS = ("a file is written", "a table is committed")


@dataclass(frozen=True)
class Lake:
    """The folder of the Delta tables and of the queries' checkpoints."""

    folder: Path

    def table(self, table: Table) -> Path:
        return self.folder / "tables" / table.topic

    def events(self) -> dict[str, int]:
        """Return how often each kind of event came: what the job leaves on its way through a micro-batch."""
        tables, checkpoints = _folders(self.folder / "tables"), _folders(self.folder / "checkpoints")
        planned, done = (sum(_files(each / name) for each in checkpoints) for name in ("offsets", "commits"))
        written = sum(_files(Path(place), ".parquet") for each in tables for place, *_ in os.walk(each))
        committed = sum(_files(each / "_delta_log", ".json") for each in tables)
        return dict(zip(BATCH_EVENTS + TABLE_EVENTS, (planned, done, written, committed), strict=True))


def _folders(parent: Path) -> list[Path]:
    return [Path(each.path) for each in os.scandir(parent) if each.is_dir()] if parent.exists() else []


def _files(folder: Path, suffix: str = "") -> int:
    try:
        return sum(each.name.endswith(suffix) and not each.name.startswith(".") for each in os.scandir(folder))
    except FileNotFoundError:
        return 0


class LandingJob:
    """Runs of `jobs/ingest_to_delta.py` by spark-submit: a Delta table for each topic.

    Each table of the latest state has a query of its own. One query appends to all tables.
    """

    def __init__(self, folder: Path, stack: TieredStack, tables: Sequence[Table], mode: str, seed: int) -> None:
        self.lake = Lake(folder)
        self.tables = [table for table in tables if mode == UPSERT or table.has_history]
        self._checkpoint = f"{folder}/checkpoints/{'{topic}' if mode == UPSERT else 'all'}"
        self._queries = len(self.tables) if mode == UPSERT else 1
        self._folder, self._stack, self._mode = folder, stack, mode
        self._random = Random(seed)
        self._runs = 0

    def settings(self, trigger: str, limit: int) -> dict[str, str]:
        """Return the job's settings; `limit` is the number of records that a micro-batch has of a topic, at most."""
        shared = {
            **self._stack.options(),
            "subscribe": ",".join(table.topic for table in self.tables),
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(limit * len(self.tables) // self._queries),
            "ingest.table": f"{self._folder}/tables/{{topic}}",
            "ingest.checkpointLocation": self._checkpoint,
            "ingest.trigger": trigger,
            "ingest.mode": self._mode,
        }
        for table in self.tables:
            own = f"ingest.topic.{table.topic}."
            shared |= {
                f"{own}value.format": "json",
                f"{own}value.schema": table.ddl,
                f"{own}envelope": table.envelope,
            }
            if table.times:
                shared[f"{own}times"] = table.times
            if self._mode == UPSERT:
                # A tombstone has a key, and no row.
                shared[f"{own}key.format"], shared[f"{own}key.schema"] = "json", table.key_ddl
                shared[f"{own}keys"] = ",".join(table.shape.keys)
        return shared

    def run_and_kill(self) -> str:
        """Start the job, kill it at a random event, and return the event.

        Raises:
            AssertionError: the job ended before.
        """
        event = self._random.choice(BATCH_EVENTS + TABLE_EVENTS)
        a_batch = self._queries if event in BATCH_EVENTS else len(self.tables)
        before, count = self.lake.events()[event], self._random.randint(1, _BATCHES * a_batch)
        with self._job("1 second", _LIMIT) as job:
            wait_until(
                lambda: not job.running or self.lake.events()[event] >= before + count, event, 3 * LONG, pause=0.01
            )
            time.sleep(self._random.uniform(0, _LONGEST_WAIT))
            assert job.running, job.output()[-6000:]
        return event

    def run_to_the_end(self) -> None:
        """Land all that the topics have now.

        Raises:
            AssertionError: the job failed.
        """
        with self._job("availableNow", 20 * _LIMIT) as job:
            assert job.wait(6 * LONG) == 0, job.output()[-6000:]

    def _job(self, trigger: str, limit: int) -> SubmittedJob:
        self._runs += 1
        return SubmittedJob("ingest_to_delta.py", self._folder / f"run-{self._runs:02d}", self.settings(trigger, limit))

"""A database whose changes Debezium writes into topics that tier, and a job that lands them while it is killed.

In the end, rows of the Delta tables are compared with rows of the database.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from kafka.protocol.consumer.offsets import OffsetSpec
from pyarrow.dataset import ParquetReadOptions
from rich.console import Console

from tests.rigs.debezium.connect import Connect, Connector
from tests.rigs.debezium.landing import UPSERT, LandingJob
from tests.rigs.debezium.postgres import Postgres
from tests.rigs.debezium.tables import Key, Row, Table
from tests.rigs.debezium.workload import Workload
from tests.rigs.stack.errors import StackError
from tests.rigs.stack.jars import jar_paths
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, offsets

_SHOWN = 5
_TIMESTAMPS = ParquetReadOptions(coerce_int96_timestamp_unit="us")
"""Spark writes timestamps as INT96, which pyarrow otherwise reads as nanoseconds of the years 1677 to 2262."""


def landed_rows(table: Table, place: Path, mode: str) -> dict[Key, Row]:
    """Return the rows of the latest state by key: the rows of the table, or what its history reduces to.

    Raises:
        ValueError: the table has two rows of one key.
    """
    found = DeltaTable(place).to_pyarrow_dataset(parquet_read_options=_TIMESTAMPS).to_table()
    if mode != UPSERT:
        found = _reduced(table, found)
    columns = [found.column(name).to_pylist() for name in table.columns]
    return table.by_key(list(zip(*columns, strict=True)))


def _reduced(table: Table, history: pa.Table) -> pa.Table:
    """Return the last change of each key, without deleted rows. A key's records are in one partition."""
    keys = ", ".join(f'"{name}"' for name in table.shape.keys)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("history", history)
        last = f'"offset" = max("offset") OVER (PARTITION BY "partition", {keys})'
        query = (
            f"SELECT * FROM (SELECT *, {last} AS last FROM history WHERE __op IS NOT NULL) WHERE last AND __op <> 'd'"
        )
        return connection.sql(query).to_arrow_table()


def differences(
    name: str, wanted: Mapping[Key, Row], found: Mapping[Key, Row], *, sides: tuple[str, str] = ("database", "table")
) -> list[str]:
    """Return a line for each of the first differences, and a line with their number; nothing if there are none."""
    keys = [key for key in {**wanted, **found} if wanted.get(key) != found.get(key)]
    lines = [f"{name} {key}: {sides[0]} {wanted.get(key)}, {sides[1]} {found.get(key)}" for key in keys[:_SHOWN]]
    return [*lines, f"{name}: {len(keys)} of {len(wanted)} rows differ"] if keys else []


SNAPSHOT_TRANSACTIONS = 40
"""Number of transactions before Debezium's snapshot, for each table."""
KILLS_OF_CONNECT = 5
"""After so many kills of the job, Kafka Connect is killed, too: Debezium then sends some records again."""
SEGMENT_MS = 10_000
"""A segment is closed, and tiered, after so many milliseconds."""

console = Console(highlight=False, soft_wrap=True)


class Writer:
    """A thread that executes the workload's transactions, so many a second at most, until it is told to stop."""

    def __init__(self, database: Postgres, workload: Workload, rate: float) -> None:
        self._session, self._workload, self._pause = database.session(), workload, 1 / rate
        self._stopped = threading.Event()
        self._error: StackError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the transaction that runs.

        Raises:
            StackError: a transaction failed.
        """
        self._stopped.set()
        self._thread.join()
        self._session.close()
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._pause):
                self._session.execute(self._workload.transaction())
        except StackError as error:
            self._error = error


class Rig:
    """A context manager: all services run inside it.

    Args:
        folder: for their data and logs.
    """

    def __init__(self, folder: Path, tables: Sequence[Table], seed: int) -> None:
        self.tables = tables
        self.workload = Workload(tables, seed)
        self.stack = TieredStack(folder / "stack", properties={"remote.log.manager.task.interval.ms": "3000"})
        self.database = Postgres(folder)
        connectors = []
        for name in sorted({table.connector for table in tables}):
            own = [table for table in tables if table.connector == name]
            connectors.append(Connector(name, [table.name for table in own], own[0].settings))
        self.connect = Connect(folder / "connect", self.stack.broker, self.database, connectors)
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        jar_paths("kafka", "connect", "s3", "delta", "debezium")
        with ExitStack() as closing:
            closing.enter_context(self.stack)
            closing.enter_context(self.database)
            for table in self.tables:
                self.database.execute(table.create)
                create_tiered_topic(
                    self.stack.broker, table.topic, table.shape.partitions, {"segment.ms": str(SEGMENT_MS)}
                )
            transactions = [self.workload.transaction() for _ in range(SNAPSHOT_TRANSACTIONS * len(self.tables))]
            self.database.execute("\n".join(transactions))
            closing.enter_context(self.connect)
            self.connect.wait_until_delivered()  # later changes are no part of its snapshot
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def land(self, job: LandingJob, kills: int, rate: float) -> Counter[str]:
        """Run the workload and the job, kill the job, and land the rest after the workload.

        Returns:
            how often the job was killed at each kind of event.
        """
        writer, events = Writer(self.database, self.workload, rate), Counter[str]()
        try:
            for number in range(1, kills + 1):
                begun = time.monotonic()
                event = job.run_and_kill()
                events[event] += 1
                console.print(f"kill {number}: {time.monotonic() - begun:.0f} s after the start, as {event}")
                if number % KILLS_OF_CONNECT == 0:
                    self.connect.kill()
                    self.connect.start()
                    events["Kafka Connect runs"] += 1
        finally:
            writer.stop()
        self.connect.wait_until_delivered()
        job.run_to_the_end()
        return events

    def differences(self, job: LandingJob, mode: str) -> list[str]:
        """Compare the database with the model, and the Delta tables with the database."""
        lines = []
        for table in job.tables:
            rows = table.parse(self.database.execute(table.select))
            lines += differences(table.name, self.workload.rows[table.name], rows, sides=("model", "database"))
            lines += differences(table.name, rows, landed_rows(table, job.lake.table(table), mode))
        return lines

    def tiered_share(self) -> tuple[int, int]:
        """Return how many records of the topics are tiered, and how many there are."""
        tiered = all_records = 0
        for table in self.tables:
            ends = offsets(self.stack.broker, table.topic, OffsetSpec.LATEST)
            last = offsets(self.stack.broker, table.topic, OffsetSpec.LATEST_TIERED)
            tiered += sum(offset + 1 for offset in last.values())
            all_records += sum(ends.values())
        return tiered, all_records

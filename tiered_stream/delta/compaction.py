"""Small files of a table into larger ones, beside the query, after every so many versions (`ingest.compactEvery`).

Rows stay what they are: the commit says `dataChange=false`, and has no application transaction, so that neither readers
of changes nor the query's own books see it. One that loses to another commit is given up, and the next one is tried
where it is due; a batch never waits for one. All tables of a process share one thread, so that memory is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache, partial

from pyspark.sql import SparkSession

from tiered_stream.delta.address import TableAddress
from tiered_stream.delta.committer import Committer, excluded_delta_spark
from tiered_stream.delta.ingest_settings import COMMIT_BY_SPARK, TableFiles

log = logging.getLogger(__name__)

Compact = Callable[[], None]
"""Compacts the table as it is now. It may raise anything."""

_MIN_FILE_SIZE, _MAX_FILE_SIZE = (f"spark.databricks.delta.optimize.{each}FileSize" for each in ("min", "max"))
"""Files below the one are taken, new ones are about as large as the other (Delta: `OptimizeTableCommand`)."""


def compaction_of(
    spark: SparkSession, address: TableAddress, files: TableFiles, committer: Committer
) -> Compaction | None:
    """By who commits, so that the two exclude each other; None: it is not wanted."""
    if files.compact_every is None:
        return None
    if committer.by == COMMIT_BY_SPARK:
        return Compaction(files.uri, files.compact_every, partial(_optimize, spark, address, files.target_bytes))
    return Compaction(files.uri, files.compact_every, partial(_compact, spark, address, files))


class Compaction:
    """Of one table; called by one thread."""

    def __init__(self, table: str, every: int, compact: Compact) -> None:
        self._table = table
        self._every = every
        self._compact = compact
        self._running: Future[None] | None = None

    def after(self, before: int, version: int) -> None:
        """A commit has brought the table from the one version to the other."""
        due = before // self._every != version // self._every
        if due and (self._running is None or self._running.done()):
            self._running = _thread().submit(self._run)

    def wait(self) -> None:
        """Until what is under way is done."""
        if self._running is not None:
            self._running.result()

    def _run(self) -> None:
        try:
            self._compact()
        except Exception as error:  # noqa: BLE001 - whatever it is, the query goes on
            line = str(error).strip().partition("\n")[0]
            log.warning("the table %s was not compacted, and is tried again later: %s", self._table, line)


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "compaction")


def _compact(spark: SparkSession, address: TableAddress, files: TableFiles) -> None:
    """By deltalake, or by the session's delta-spark if that has opened the table: then deltalake needs its lock.

    deltalake compacts and commits in one call. Under the lock, batches would wait for all of that.
    """
    from tiered_stream.delta.deltalake_compaction import compact_crowded, is_crowded

    excluded = excluded_delta_spark(spark, address, files)
    if excluded is None or not excluded.is_opened():
        compact_crowded(files, excluded.lock if excluded else nullcontext)
    elif is_crowded(files):
        _optimize(spark, address, files.target_bytes)


def _optimize(spark: SparkSession, address: TableAddress, target_bytes: int) -> None:
    """By Delta's own `OPTIMIZE`; its settings are those of a session of its own."""
    session = spark.newSession()
    for name in (_MIN_FILE_SIZE, _MAX_FILE_SIZE):
        session.conf.set(name, str(target_bytes))
    session.sql(f"OPTIMIZE {address.sql_path(spark)}")

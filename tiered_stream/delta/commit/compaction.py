"""Compaction of a table's small files into larger ones, in the background, every `ingest.compactEvery` versions.

Compaction does not change rows: its commit has `dataChange=false` and no application transaction. So readers of changes
ignore the commit, and so does the query when it looks for its batches. A compaction that conflicts with another commit
is given up, and the next compaction runs when it is due. Batches never wait for a compaction. All tables of a process
share one thread for compaction, so that memory is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache, partial

from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.commit.committer import excluded_delta_spark
from tiered_stream.delta.commit.delta_spark_commit import ALL_ROWS
from tiered_stream.delta.requirements.session_requirements import CODEC
from tiered_stream.delta.settings.ingest_settings import COMMIT_BY_SPARK, TableSpec

log = logging.getLogger(__name__)

Compact = Callable[[], None]
"""Function that compacts the table's newest version; it may raise any exception."""

_MIN_FILE_SIZE, _MAX_FILE_SIZE = (f"spark.databricks.delta.optimize.{bound}FileSize" for bound in ("min", "max"))
"""Settings of `OPTIMIZE` in bytes: it rewrites files below the first size, into files of about the second size.

Delta: `OptimizeTableCommand`.
"""


def compaction_of(spark: SparkSession, address: TableAddress, spec: TableSpec, by: str) -> Compaction | None:
    """Return the table's background compaction; None: `ingest.compactEvery` is not set.

    `by` is the library that commits to the table. If it is delta-spark, delta-spark compacts the table. If it is
    deltalake, deltalake compacts the table, unless the session's delta-spark has opened the table: then delta-spark
    compacts it.
    """
    if spec.compact_every is None:
        return None
    if by == COMMIT_BY_SPARK:
        return Compaction(spec.uri, spec.compact_every, partial(_optimize, spark, address, spec))
    return Compaction(spec.uri, spec.compact_every, partial(_compact, spark, address, spec))


class Compaction:
    """Background compaction of one table, due every `every` versions; its methods are called by one thread."""

    def __init__(self, table: str, every: int, compact: Compact) -> None:
        self._table = table
        self._every = every
        self._compact = compact
        self._running: Future[None] | None = None

    def after(self, before: int, version: int) -> None:
        """Start a compaction after a commit if it is due, and if no compaction of this table is waiting or running.

        `before` is the table's version before the commit, and `version` is the version of the commit. A compaction is
        due if a multiple of `every` is above `before` and not above `version`.
        """
        due = before // self._every != version // self._every
        if due and (self._running is None or self._running.done()):
            self._running = _thread().submit(self._run)

    def wait(self) -> None:
        """Wait until the last started compaction has ended; return at once if none was started."""
        if self._running is not None:
            self._running.result()

    def _run(self) -> None:
        try:
            self._compact()
        except Exception as error:  # noqa: BLE001 - the query goes on after any error
            line = str(error).strip().partition("\n")[0]
            log.warning("the table %s was not compacted, and is tried again later: %s", self._table, line)


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "compaction")


def _compact(spark: SparkSession, address: TableAddress, spec: TableSpec) -> None:
    """Compact the table, to which deltalake commits, if one of its partitions has many small files.

    deltalake compacts the table, unless the session's delta-spark has opened it. In that case deltalake would need
    delta-spark's lock. Because deltalake compacts and commits in one call, batches would wait for the lock during the
    whole compaction. So delta-spark compacts the table.
    """
    from tiered_stream.delta.commit.deltalake_compaction import compact_crowded, is_crowded

    excluded = excluded_delta_spark(spark, address, spec)
    if excluded is None or not excluded.is_opened():
        compact_crowded(spec, excluded.lock if excluded else nullcontext)
    elif is_crowded(spec):
        _optimize(spark, address, spec)


def _optimize(spark: SparkSession, address: TableAddress, spec: TableSpec) -> None:
    """Rewrite files below the table's target size into files of about this size, with Delta's `OPTIMIZE`.

    `OPTIMIZE` runs in a new session, so that its settings affect no other query.
    """
    session = spark.newSession()
    sizes = dict.fromkeys((_MIN_FILE_SIZE, _MAX_FILE_SIZE), str(spec.target_bytes))
    for name, value in {**ALL_ROWS, **sizes, CODEC: spec.codec}.items():
        session.conf.set(name, value)
    session.sql(f"OPTIMIZE {address.sql_path(spark)}")

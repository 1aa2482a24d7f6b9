"""Compaction of a table's small files into larger ones, in the background, every `ingest.compactEvery` versions.

Compaction does not change rows: its commit has `dataChange=false` and no application transaction. So readers of changes
ignore the commit, and so does the query when it looks for its batches. A compaction that conflicts with another commit
is given up, and the next compaction runs when it is due. Batches never wait for a compaction. All tables of a process
share one thread for compaction, so that memory is bounded.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import SparkSession

from tiered_stream.delta.catalog.address import TableAddress
from tiered_stream.delta.commit.commit_library import excluded_delta_spark
from tiered_stream.delta.commit.delta_spark_commit import ALL_ROWS
from tiered_stream.delta.commit.transaction import Lock
from tiered_stream.delta.requirements.session_requirements import CODEC
from tiered_stream.delta.settings.ingest_settings import COMMIT_BY_SPARK, TableSpec
from tiered_stream.delta.write.file_systems import open_folder

if TYPE_CHECKING:
    from deltalake import DeltaTable

log = logging.getLogger(__name__)

Compact = Callable[[], None]
"""Function that compacts the table's newest version; it may raise any exception."""

_MIN_FILE_SIZE, _MAX_FILE_SIZE = (f"spark.databricks.delta.optimize.{bound}FileSize" for bound in ("min", "max"))
"""Settings of `OPTIMIZE` in bytes: it rewrites files below the first size, into files of about the second size.

Delta: `OptimizeTableCommand`.
"""

MIN_SMALL_FILES = 8
"""Minimum number of small files in a partition that is compacted; with fewer, rewriting costs more than it gains."""
_NOT_COMPACTED = (
    "the table %s%s is not compacted: it has dates before 1582 or timestamps before 1900, for which Spark needs its "
    "version in a file's footer, which deltalake does not write. Set ingest.commit=spark to compact it."
)
_NO_FOLDERS = (
    "the table %s is not compacted: deltalake does not escape the colon in the names of partition folders, and Spark "
    "would not find its files. Set ingest.commit=spark to compact it."
)
_Partition = tuple[tuple[str, str], ...]
"""Partition, as pairs of a partition column's name and its value."""
_PARTITION = "partition."
"""Prefix of the names of partition columns in deltalake's list of a table's files (`get_add_actions`)."""


def compaction_of(spark: SparkSession, address: TableAddress, spec: TableSpec, by: str) -> Compaction | None:
    """Return the table's background compaction, or None if `ingest.compactEvery` is not set.

    `by` is the library that commits to the table (`COMMIT_BY_SPARK` or `COMMIT_BY_DELTALAKE`). The same library
    compacts the table. But if the session's delta-spark has opened a table to which deltalake commits, delta-spark
    compacts the table.
    """
    if spec.compact_every is None:
        return None
    compact = _optimize if by == COMMIT_BY_SPARK else _compact
    return Compaction(spec.uri, spec.compact_every, partial(compact, spark, address, spec))


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
    """Compact the table, to which deltalake commits.

    deltalake compacts the partitions that have many small files, unless the session's delta-spark has opened the table.
    In that case deltalake would need delta-spark's lock. Because deltalake compacts and commits in one call, batches
    would wait for the lock during the whole compaction. So delta-spark compacts the table, and Delta chooses the files.
    """
    excluded = excluded_delta_spark(spark, address, spec)
    if excluded is None or excluded.opened_lock() is None:
        compact_crowded(spec, excluded.lock if excluded else nullcontext)
    else:
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


# Compaction by deltalake of partitions that have many small files, one partition at a time.


def compact_crowded(spec: TableSpec, lock: Lock = nullcontext) -> None:
    """Compact with deltalake the files below the target size, in each partition with `MIN_SMALL_FILES` of them or more.

    Each partition is compacted in a `with` block of `lock`. Nothing is done if there is no table.

    A partition with dates before 1582 or timestamps before 1900 in these files is skipped with a warning. The reason is
    that deltalake cannot write the footer key that makes Spark read such values right. A table whose partition column
    has a colon in its name is skipped with a warning, too.
    """
    # Imported late, because a driver whose tables are not compacted does not need these modules.
    from tiered_stream.delta.commit.deltalake_commit import NO_CHECKPOINT, open_table
    from tiered_stream.delta.commit.deltalake_statistics import UnsafeTimes, find_unsafe_times, writer_properties

    table = open_table(spec)
    if table is None:
        return
    if any(":" in name for name in table.metadata().partition_columns):
        log.warning(_NO_FOLDERS, spec.uri)
        return
    folder = open_folder(spec.uri, spec.storage)
    for partition, paths in _crowded(table, spec.target_bytes).items():
        odd = find_unsafe_times(folder, paths)
        if UnsafeTimes.NEED_VERSION_KEY in odd:
            log.warning(_NOT_COMPACTED, spec.uri, "".join(f", {name}={value}," for name, value in partition))
            continue
        with lock():
            metrics = table.optimize.compact(
                partition_filters=[(name, "=", value) for name, value in partition] or None,
                target_size=spec.target_bytes,
                max_concurrent_tasks=1,
                writer_properties=writer_properties(table, spec.codec, with_times=UnsafeTimes.BEYOND_YEARS not in odd),
                post_commithook_properties=NO_CHECKPOINT,
            )
        log.info("the table %s: %d files are now %d", spec.uri, metrics["numFilesRemoved"], metrics["numFilesAdded"])


def _crowded(table: DeltaTable, target_bytes: int) -> dict[_Partition, list[str]]:
    """Return, by partition, the paths of the files that are smaller than `target_bytes`.

    A partition with fewer than `MIN_SMALL_FILES` of these files, or with a null value, is left out. The partition ()
    stands for a whole table without partitions.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    names = [name for name in files.column_names if name.startswith(_PARTITION)]
    small = defaultdict[_Partition, list[str]](list)
    for row in files.select(["path", "size_bytes", *names]).to_pylist():
        # A partition whose value is null is skipped, because `partition_filters` cannot name it.
        if row["size_bytes"] < target_bytes and None not in (row[name] for name in names):
            small[tuple((name.removeprefix(_PARTITION), str(row[name])) for name in names)].append(unquote(row["path"]))
    return {partition: paths for partition, paths in small.items() if len(paths) >= MIN_SMALL_FILES}

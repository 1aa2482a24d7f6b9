"""Compaction by the `deltalake` library of partitions that have many small files, one partition at a time."""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import nullcontext
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from tiered_stream.delta.commit.deltalake_commit import NO_CHECKPOINT, open_table
from tiered_stream.delta.commit.deltalake_statistics import find_odd_times, writer_properties
from tiered_stream.delta.commit.transaction import Lock
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.file_systems import open_folder

log = logging.getLogger(__name__)

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
"""Prefix of partition columns' names in deltalake's table of files (`get_add_actions`)."""


def compact_crowded(spec: TableSpec, lock: Lock = nullcontext) -> None:
    """Compact files below the target size in each partition with at least `MIN_SMALL_FILES` such files.

    Each partition is compacted in a `with` block of `lock`. Nothing is done if there is no table.

    A partition with dates before 1582 or timestamps before 1900 in these files is skipped with a warning. The reason is
    that deltalake cannot write the footer key that makes Spark read such values right. A table whose partition column
    has a colon in its name is skipped with a warning, too.

    Raises:
        TableError: the table cannot be opened. Errors of deltalake during compaction pass unchanged.
    """
    table = open_table(spec)
    if table is None:
        return
    if any(":" in name for name in table.metadata().partition_columns):
        log.warning(_NO_FOLDERS, spec.uri)
        return
    folder = open_folder(spec.uri, spec.storage)
    for partition, paths in _crowded(table, spec.target_bytes).items():
        odd = find_odd_times(folder, paths)
        if odd.need_version_key:
            log.warning(_NOT_COMPACTED, spec.uri, "".join(f", {name}={value}," for name, value in partition))
            continue
        with lock():
            metrics = table.optimize.compact(
                partition_filters=[(name, "=", value) for name, value in partition] or None,
                target_size=spec.target_bytes,
                max_concurrent_tasks=1,
                writer_properties=writer_properties(table, spec.codec, with_times=not odd.beyond_years),
                post_commithook_properties=NO_CHECKPOINT,
            )
        log.info("the table %s: %d files are now %d", spec.uri, metrics["numFilesRemoved"], metrics["numFilesAdded"])


def is_crowded(spec: TableSpec) -> bool:
    """Return whether any partition of the table has at least `MIN_SMALL_FILES` files below the target size.

    Return false if there is no table.
    """
    table = open_table(spec)
    return table is not None and bool(_crowded(table, spec.target_bytes))


def _crowded(table: DeltaTable, target_bytes: int) -> dict[_Partition, list[str]]:
    """Return the paths of files below `target_bytes` of each partition that has at least `MIN_SMALL_FILES` such files.

    The partition () stands for a whole table without partitions. A partition with a null value is left out.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    names = [name for name in files.column_names if name.startswith(_PARTITION)]
    small = defaultdict[_Partition, list[str]](list)
    for row in files.select(["path", "size_bytes", *names]).to_pylist():
        # A partition whose value is null is skipped, because `partition_filters` cannot name it.
        if row["size_bytes"] < target_bytes and None not in (row[name] for name in names):
            small[tuple((name.removeprefix(_PARTITION), str(row[name])) for name in names)].append(unquote(row["path"]))
    return {partition: paths for partition, paths in small.items() if len(paths) >= MIN_SMALL_FILES}

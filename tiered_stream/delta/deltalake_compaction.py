"""Compaction by the `deltalake` library: of partitions that have many small files, one after the other."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties, WriterProperties

from tiered_stream.delta.deltalake_commit import open_table
from tiered_stream.delta.ingest_settings import TableFiles

log = logging.getLogger(__name__)

MANY = 8
"""Small files of a partition; below that, to write it again costs more than it gains."""
_COMPRESSION: dict[str, Literal["SNAPPY", "ZSTD", "UNCOMPRESSED"]] = {
    "snappy": "SNAPPY", "zstd": "ZSTD", "none": "UNCOMPRESSED",
}  # fmt: skip
_PARTITION = "partition."
"""Before the names of partition columns in the library's table of files."""


def compact_crowded(files: TableFiles) -> None:
    """Files below the target size, of partitions that have many; raises as the library does."""
    table = open_table(files)
    if table is None:
        return
    for partition in _crowded(table, files.target_bytes):
        made = table.optimize.compact(
            partition_filters=[(name, "=", value) for name, value in partition] or None,
            target_size=files.target_bytes,
            max_concurrent_tasks=1,
            writer_properties=WriterProperties(compression=_COMPRESSION[files.compression]),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
        )
        log.info("the table %s: %d files are now %d", files.uri, made["numFilesRemoved"], made["numFilesAdded"])


def _crowded(table: DeltaTable, target_bytes: int) -> list[tuple[tuple[str, str], ...]]:
    """Partitions with many small files, by their values; () is the whole of a table without partitions."""
    found = pa.table(table.get_add_actions(flatten=True))
    names = [name for name in found.column_names if name.startswith(_PARTITION)]
    rows = found.select(["size_bytes", *names]).to_pylist()
    small = Counter(tuple(row[name] for name in names) for row in rows if row["size_bytes"] < target_bytes)
    bare = [name.removeprefix(_PARTITION) for name in names]
    # What has no value cannot be asked for.
    crowded = (values for values, count in small.items() if count >= MANY and None not in values)
    return [tuple(zip(bare, map(str, values), strict=True)) for values in crowded]

"""What the tests of commits commit, and what they then look at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from tests.delta.made_batches import ORDERS, plain
from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable, describe, open_table
from tiered_stream.delta.commit.open_table import OpenTable
from tiered_stream.delta.commit.transaction import CommitTable
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.delta.write.table_writer import TableWriter

QUERY = "3c1e0fd4-0000-4000-8000-6a1c4c0f2b11"


def written(files: TableSpec, count: int, first_offset: int = 0) -> list[DataFile]:
    """A batch of `count` records."""
    writer = TableWriter(files, 0)
    writer.add(ORDERS, plain(count, first_offset))
    return writer.finish()


def table(files: TableSpec) -> DeltaTable:
    found = open_table(files)
    assert found is not None
    return found


def planned(files: TableSpec, by: CommitTable | None = None, schema: StructType | None = None) -> OpenTable:
    """As a query would that starts now."""
    spec = replace(files, schema=schema or table_schema(True, files.day_column))
    return OpenTable(spec, by or DeltalakeTable(files), describe(table(files)))


def offsets(files: TableSpec) -> list[int]:
    found: list[int] = table(files).to_pyarrow_table()["offset"].to_pylist()
    return sorted(found)


def folder_of(uri: str) -> Path:
    """Where the local table is whose URI this is."""
    return Path(unquote(urlsplit(uri).path))


def log_file(files: TableSpec, version: int) -> Path:
    return folder_of(files.uri) / "_delta_log" / f"{version:020d}.json"


def log_of(files: TableSpec, version: int) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in log_file(files, version).read_bytes().splitlines()]


def overwrite(files: TableSpec, version: int, actions: list[dict[str, Any]]) -> None:
    """As a writer does that has looked for the version before it was there."""
    overwritten = log_file(files, version)
    overwritten.write_bytes(b"\n".join(map(orjson.dumps, actions)))
    # Hadoop keeps a checksum beside a local file, and would take what is there now for damaged.
    overwritten.with_name(f".{overwritten.name}.crc").unlink(missing_ok=True)

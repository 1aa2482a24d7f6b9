"""What the tests of commits commit, and what they then look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
from deltalake import DeltaTable

from tests.delta.made_batches import ORDERS, plain
from tiered_stream.delta.commit.batch_commit import LandingTable
from tiered_stream.delta.commit.deltalake_commit import describe, open_table
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableFiles
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.delta.write.table_writer import TableWriter

QUERY = "3c1e0fd4-0000-4000-8000-6a1c4c0f2b11"


def written(files: TableFiles, count: int, first_offset: int = 0) -> list[DataFile]:
    """A batch of `count` records."""
    writer = TableWriter(files, 0)
    writer.add(ORDERS, plain(count, first_offset))
    return writer.finish()


def table(files: TableFiles) -> DeltaTable:
    found = open_table(files)
    assert found is not None
    return found


def planned(files: TableFiles) -> LandingTable:
    """As a query would that starts now."""
    return LandingTable(files, table_schema(True, None), describe(table(files)).table_id, lambda _: None)


def offsets(files: TableFiles) -> list[int]:
    found: list[int] = table(files).to_pyarrow_table()["offset"].to_pylist()
    return sorted(found)


def folder_of(uri: str) -> Path:
    """Where the local table is whose URI this is."""
    return Path(unquote(urlsplit(uri).path))


def log_file(files: TableFiles, version: int) -> Path:
    return folder_of(files.uri) / "_delta_log" / f"{version:020d}.json"


def log_of(files: TableFiles, version: int) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in log_file(files, version).read_bytes().splitlines()]


def overwrite(files: TableFiles, version: int, actions: list[dict[str, Any]]) -> None:
    """As a writer does that has looked for the version before it was there."""
    overwritten = log_file(files, version)
    overwritten.write_bytes(b"\n".join(map(orjson.dumps, actions)))
    # Hadoop keeps a checksum beside a local file, and would take what is there now for damaged.
    overwritten.with_name(f".{overwritten.name}.crc").unlink(missing_ok=True)

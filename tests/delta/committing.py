"""What the tests of commits commit, and what they then look at."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from tests.delta.made_batches import ORDERS, plain
from tiered_stream.delta.commit.commit_attempts import TableCommits
from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable, create_table, describe, open_table
from tiered_stream.delta.commit.open_table import OpenTable
from tiered_stream.delta.commit.transaction import CommitTable
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec
from tiered_stream.delta.write.data_files import DataFile
from tiered_stream.delta.write.data_folder import DataFolder, UploadThreads
from tiered_stream.delta.write.table_writer import TableWriter, open_data_folder
from tiered_stream.model import TopicPartition

QUERY = "3c1e0fd4-0000-4000-8000-6a1c4c0f2b11"


def written(files: TableSpec, count: int, first_offset: int = 0, *, parts: int = 1) -> list[DataFile]:
    """A batch of `count` records, which come to the writer in so many parts."""
    size = count // parts
    return written_rows(files, *(plain(size, first_offset + part * size) for part in range(parts)))


def written_rows(files: TableSpec, *batches: pa.RecordBatch, partition: TopicPartition = ORDERS) -> list[DataFile]:
    """Data files with the rows of a partition."""
    writer = TableWriter(files, 0, UploadThreads())
    for batch in batches:
        writer.add(partition, batch)
    found = writer.finish()
    writer.close()
    return found


def put(folder: DataFolder, files: Mapping[str, bytes]) -> None:
    """Write files, and wait for none of them."""
    for path, content in files.items():
        file = folder.open(path)
        file.write(content)
        folder.finish(path, file)


def upload_error(files: TableSpec, content: bytes = b"content") -> str:
    """Return the error of an upload of the file `part-0`, which fails."""
    folder = open_data_folder(files, UploadThreads())
    put(folder, {"part-0": content})
    with pytest.raises(OSError, match="part-0 ") as caught:
        folder.wait()
    folder.close()
    return str(caught.value)


def commit_by_two_writers(files: TableSpec) -> None:
    """Let two writers commit to a new table at once, each batch twice, and look for every record."""
    create_table(files, table_schema(True, None), {})
    batches, size = 4, 10

    def write(writer: int) -> None:
        commits = TableCommits(planned(files), lambda *_: None)
        for batch in range(batches):
            begin = (writer * batches + batch) * size
            commits.commit(f"{QUERY}-{writer}", batch, written(files, size, begin))
            commits.commit(f"{QUERY}-{writer}", batch, written(files, size, begin))  # as a batch that is run again

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, range(2)))
    assert offsets(files) == list(range(2 * batches * size))
    assert table(files).version() == 2 * batches
    assert table(files).get_add_actions().num_rows == 2 * batches


def table(files: TableSpec) -> DeltaTable:
    found = open_table(files)
    assert found is not None
    return found


def planned(files: TableSpec, by: CommitTable | None = None, schema: StructType | None = None) -> OpenTable:
    """As a query would that starts now."""
    spec = replace(files, columns=schema or table_schema(True, files.day_column))
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

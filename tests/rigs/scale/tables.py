"""Opening of large tables: of 1,000,000 files, and of 100,000 versions without a checkpoint of the log.

Only the logs of these tables are there. They are written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from tests.rigs.scale.measured import Meter
from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable, create_table, open_table
from tiered_stream.delta.commit.transaction import BatchCommit
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import TableSpec, table_spec

FILES, FILES_A_VERSION, VERSIONS = 1_000_000, 10_000, 100_000
_STATISTICS = json.dumps({
    "numRecords": 1000, "minValues": {"topic": "old", "offset": 0}, "maxValues": {"topic": "old", "offset": 999},
    "nullCount": {"topic": 0, "offset": 0},
})  # fmt: skip


def write_log(spec: TableSpec, versions: int, files: int) -> None:
    """Create the table, and add so many files in each of so many further versions."""
    create_table(spec, table_schema(False, None), {})
    log = Path(spec.uri, "_delta_log")
    for version in range(1, versions + 1):
        lines = [*_adds(version, files), '{"commitInfo":{"timestamp":1700000000000,"operation":"WRITE"}}']
        (log / f"{version:020}.json").write_text("\n".join(lines))


def _adds(version: int, files: int) -> Iterable[str]:
    stats = json.dumps(_STATISTICS)
    for number in range(files):
        yield (
            f'{{"add":{{"path":"part-{version:06}-{number:06}-5c1fbf4e-0b0d-4f6b-9a0e-3c5fd5f1f0aa.parquet",'
            f'"partitionValues":{{}},"size":1048576,"modificationTime":1700000000000,"dataChange":true,"stats":{stats}}}}}'
        )


def opened(spec: TableSpec) -> DeltaTable:
    table = open_table(spec)
    assert table is not None
    return table


def committed(spec: TableSpec) -> None:
    """Commit an empty micro-batch, as a query does that opened the table before."""
    DeltalakeTable(spec).begin().commit(BatchCommit("query", 0, []))


def measure(scale: float, folder: Path) -> Meter:
    files, versions = max(FILES_A_VERSION, round(FILES * scale)), max(20, round(VERSIONS * scale))
    meter = Meter("tables")
    large = replace(table_spec({}), uri=str(folder / "large"))
    write_log(large, files // FILES_A_VERSION, FILES_A_VERSION)
    of_files, of_versions = (files, "file"), (versions, "version")
    table = meter.step(f"open a table of {files:,} files, no checkpoint", partial(opened, large), of_files)
    meter.step("checkpoint of its log", table.create_checkpoint, of_files)
    del table
    meter.restart()
    meter.step("open it with the checkpoint", partial(opened, large), of_files)
    meter.step("open it, and commit an empty micro-batch", partial(committed, large), of_files)
    long = replace(table_spec({}), uri=str(folder / "long"))
    write_log(long, versions, 1)
    meter.restart()
    table = meter.step(f"open a log of {versions:,} versions, no checkpoint", partial(opened, long), of_versions)
    meter.step("checkpoint of the log", table.create_checkpoint, of_versions)
    del table
    meter.restart()
    meter.step("open it with the checkpoint", partial(opened, long), of_versions)
    return meter

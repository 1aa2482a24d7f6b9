"""What a micro-batch costs at a trigger of a second in a table of many files and versions, by who commits.

python -m tests.rigs.bench.large_table [--files 100000] [--versions 300] [--batches 30]

Files of the table but the landed ones exist in its log only. Batches in whose commit a checkpoint was written stand by
themselves.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

import orjson
from deltalake import DeltaTable, PostCommitHookProperties, Schema
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from tests.delta.archive import LONG, options
from tests.rigs.bench.lakes import Lake, serving
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.spark import spark_session
from tiered_stream import land
from tiered_stream.delta.commit.deltalake_commit import DEFAULT_CHECKPOINT_INTERVAL
from tiered_stream.delta.requirements.lane import table_schema

RECORDS = 18_687
WAYS = {
    "direct lane, spark commits": ("direct", "spark"),
    "direct lane, deltalake commits": ("direct", "deltalake"),
    "Spark lane": ("spark", "auto"),
}
_STATISTICS = orjson.dumps({
    "numRecords": 1000, "minValues": {"topic": "old", "offset": 0}, "maxValues": {"topic": "old", "offset": 999},
    "nullCount": {"topic": 0, "offset": 0},
}).decode()  # fmt: skip
_WARM_UP = 2
"""Batches at the start that do not count: the table's state is read for the first time."""

console = Console(highlight=False, width=120)


@dataclass(frozen=True)
class Batches:
    """Seconds of `addBatch` in each micro-batch, by whether its commit wrote a checkpoint."""

    plain: list[float]
    with_checkpoint: list[float]

    def __str__(self) -> str:
        said = f"{statistics.median(self.plain):.2f} s, at most {max(self.plain):.2f}, in {len(self.plain)} batches"
        if self.with_checkpoint:
            said += f"; with a checkpoint {statistics.median(self.with_checkpoint):.2f} s"
        return said


def opened(lake: Lake, name: str) -> DeltaTable:
    return DeltaTable(_uri(lake, name), storage_options=dict(lake.storage_options))


def _uri(lake: Lake, name: str) -> str:
    return f"{lake.uri}/{name}".replace("s3a:", "s3:")


def fill(lake: Lake, name: str, files: int, versions: int) -> None:
    """A table with so many files, added in so many versions, as the last of which a checkpoint stands."""
    schema = Schema.from_json(table_schema(False, None).json())
    table = DeltaTable.create(_uri(lake, name), schema, storage_options=dict(lake.storage_options))
    for version in range(versions):
        count = files * (version + 1) // versions - files * version // versions
        actions: list[AddAction | RemoveAction] = [
            AddAction(f"part-{uuid.uuid4()}.parquet", 1 << 20, {}, 1_700_000_000_000, True, _STATISTICS)
            for _ in range(count)
        ]
        no_checkpoint = PostCommitHookProperties(create_checkpoint=False)
        table.create_write_transaction(
            actions, "append", table.schema(), post_commithook_properties=no_checkpoint
        )  # fmt: skip
        table.update_incremental()
    table.create_checkpoint()


def ran(query: StreamingQuery, batches: int) -> list[StreamingQueryProgress]:
    """What the query tells of its micro-batches with rows, after it was stopped behind so many of them."""

    def enough() -> bool:
        return not query.isActive or len(query.recentProgress) > batches

    wait_until(enough, "batches", timeout=1e6)
    query.stop()
    if error := query.exception():
        raise error
    return [each for each in query.recentProgress if each.numInputRows]


def measure(spark: SparkSession, folder: Path, lake: Lake, name: str, way: tuple[str, str], batches: int) -> Batches:
    """Land so many micro-batches in the table, a second or more apart."""
    lane, commit = way
    limit = RECORDS // (batches + 2 * _WARM_UP)
    given = {"maxOffsetsPerTrigger": str(limit), "includeHeaders": "false", "ingest.commit": commit}
    query = land(
        spark,
        options=options(LONG, given),
        table=f"{lake.uri}/{name}",
        checkpoint=str(folder / f"checkpoint of {lake.where} {name}"),
        trigger="1 second",
        lane=lane,
    )
    seconds = {each.batchId: each.durationMs["addBatch"] / 1000 for each in ran(query, batches + _WARM_UP)}
    versions = {
        int(entry["operationParameters"]["epochId"]): entry["version"]
        for entry in opened(lake, name).history(2 * batches)
        if "epochId" in entry.get("operationParameters", {})
    }
    found = Batches([], [])
    for batch in sorted(seconds.keys() & versions.keys())[_WARM_UP:]:
        checkpoint = versions[batch] % DEFAULT_CHECKPOINT_INTERVAL == 0
        (found.with_checkpoint if checkpoint else found.plain).append(seconds[batch])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rigs.bench.large_table", description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--versions", type=int, default=300)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiered-stream-large-") as folder, serving(Path(folder)) as lakes:
        session = {**lakes[1].session, "spark.databricks.delta.snapshotPartitions": "4", "spark.driver.memory": "4g"}
        spark = spark_session("large table", ("delta", "s3a"), session)
        for lake in lakes:
            for number, way in enumerate(arguments.ways):
                name = f"table{number}"
                fill(lake, name, arguments.files, arguments.versions)
                took = measure(spark, Path(folder), lake, name, WAYS[way], arguments.batches)
                console.print(f"{lake.where}, {way}: addBatch {took}")
        spark.stop()


if __name__ == "__main__":
    main()

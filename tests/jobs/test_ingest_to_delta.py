from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs import ingest_to_delta
from tests.jobs.submitted import SubmittedJob
from tests.reading import options, tier_segments
from tests.stack.bulk import produce_bulk
from tests.stack.consume import read_topic
from tests.stack.processes import wait_until
from tests.stack.tiered_stack import TieredStack
from tests.stack.topics import create_tiered_topic, wait_until_tiered

RECORDS = 120_000
TABLE, CHECKPOINT = ingest_to_delta.TABLE, ingest_to_delta.CHECKPOINT


def test_each_topic_lands_in_a_table_of_its_own(stack: TieredStack, spark: SparkSession, tmp_path: Path) -> None:
    counts = {name: tier_segments(stack, name, sizes) for name, sizes in {"ours": [40, 30], "theirs": [20]}.items()}
    places = {TABLE: f"{tmp_path}/{{topic}}", CHECKPOINT: f"{tmp_path}/checkpoints/{{topic}}"}
    ingest_to_delta.run({**options(stack, "ours,theirs"), **places})
    for topic, count in counts.items():
        landed = spark.read.format("delta").load(f"{tmp_path}/{topic}").select("topic", "offset").collect()
        assert sorted(map(tuple, landed)) == [(topic, offset) for offset in range(count)]


@pytest.fixture
def started() -> Iterator[list[SubmittedJob]]:
    """Jobs to be killed after the test, whatever happens in it."""
    jobs: list[SubmittedJob] = []
    yield jobs
    for job in jobs:
        job.kill()


def test_a_job_killed_in_mid_batch_goes_on_and_lands_every_record_once(
    stack: TieredStack, topic: str, tmp_path: Path, started: list[SubmittedJob]
) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2, config={"segment.bytes": str(2 << 20)})
    produce_bulk(stack.broker, topic, records=RECORDS)
    wait_until_tiered(stack.broker, topic)
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    places = {TABLE: str(table), CHECKPOINT: str(checkpoint), "maxOffsetsPerTrigger": str(RECORDS // 3)}
    job = SubmittedJob("ingest_to_delta.py", tmp_path / "job", {**options(stack, topic), **places})
    started.append(job)

    job.start()
    wait_until(lambda: not job.running or _in_mid_batch(table, checkpoint), "a second batch", pause=0.01)
    job.kill()
    assert _in_mid_batch(table, checkpoint), job.output()
    job.start()
    assert job.wait() == 0, job.output()
    assert "segments are located by" in job.output() and "the last micro-batch: " in job.output()

    landed = DeltaTable(table).to_pyarrow_table(columns=["partition", "offset", "value"])
    consumed = [(row.partition, row.offset, row.value) for row in read_topic(stack.broker, topic)]
    assert sorted(zip(*(column.to_pylist() for column in landed.columns), strict=True)) == consumed
    assert len(consumed) == RECORDS


def _in_mid_batch(table: Path, checkpoint: Path) -> bool:
    """Whether a batch after the first is planned, has written data files, and is not committed."""
    last = max((int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*")), default=0)
    if last == 0 or (checkpoint / "commits" / str(last)).exists():
        return False
    committed = {
        action["add"]["path"]
        for version in (table / "_delta_log").glob("[0-9]*.json")
        for line in version.read_bytes().splitlines()
        if "add" in (action := orjson.loads(line))
    }
    return any(str(file.relative_to(table)) not in committed for file in table.rglob("*.parquet"))

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.cli.running import words
from tests.jobs.submitted import SubmittedJob, run_here
from tests.reading import build_segments, fill_segments, options
from tests.rigs.stack.bulk import produce_bulk
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, wait_until_tiered
from tests.tier.topics import topic_options, write_topic
from tiered_stream.delta.settings.ingest_settings import CHECKPOINT, METRICS_LINES, METRICS_PROMETHEUS, TABLE
from tiered_stream.ingest import ingest_run
from tiered_stream.ingest.ingest_plan import Ingest

pytestmark = pytest.mark.starts_spark

RECORDS = 120_000


def by_topic(folder: Path) -> dict[str, str]:
    return {TABLE: f"{folder}/{{topic}}", CHECKPOINT: f"{folder}/checkpoints/{{topic}}"}


def landed(spark: SparkSession, folder: Path, topic: str) -> list[tuple[str, int]]:
    rows = spark.read.format("delta").load(f"{folder}/{topic}").select("topic", "offset").collect()
    return sorted((row["topic"], row["offset"]) for row in rows)


def test_each_topic_lands_in_a_table_of_its_own_and_has_its_own_cost(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bucket, sizes = tmp_path / "bucket", {"ours": [40, 30], "theirs": [20]}
    counts = {name: build_segments(bucket, name, each) for name, each in sizes.items()}
    told = {METRICS_LINES: "json", METRICS_PROMETHEUS: "127.0.0.1:0"}
    outcome = ingest_run.run(topic_options(bucket, "ours,theirs", {**by_topic(tmp_path), **told}))
    assert outcome.failed == {}
    for topic, count in counts.items():
        assert landed(spark, tmp_path, topic) == [(topic, offset) for offset in range(count)]
        cost = outcome.ended[f"ingest {tmp_path}/{topic}"].cost
        assert cost.records == count and cost.remote_fetch_bytes > 0
    printed = capfd.readouterr()
    assert f"in all {sum(counts.values())} rows in 2 tables, " in printed.out
    lines = [orjson.loads(line) for line in printed.err.splitlines() if line.startswith('{"event"')]
    assert {line["query"]: line["rows"] for line in lines} == {
        f"ingest {tmp_path}/{topic}": count for topic, count in counts.items()
    }


@pytest.mark.parametrize(("lane", "on_table_error"), [("direct", "fail"), ("direct", "park"), ("spark", "fail")])
def test_a_query_keeps_the_columns_of_a_new_table_that_another_query_of_the_job_lands_in(
    spark: SparkSession, tmp_path: Path, lane: str, on_table_error: str
) -> None:
    """The topics have other columns, as by schemas of a registry, and name the table differently."""
    of_topics = {"wide": ("all", "id BIGINT, name STRING"), "narrow": ("all/", "id BIGINT")}
    ingests = []
    for topic, (table, schema) in of_topics.items():
        write_topic(tmp_path / "bucket", topic, [[Record(None, b'{"id": 1, "name": "a"}')]])
        given = {"ingest.value.format": "json", "ingest.value.schema": schema, "ingest.onTableError": on_table_error}
        read = topic_options(tmp_path / "bucket", topic, given)
        ingests.append(Ingest(read, f"{tmp_path}/{table}", f"{tmp_path}/c/{topic}", "availableNow", lane, topic))
    assert ingest_run.run_all(spark, ingests).failed == {}
    rows = spark.read.format("delta").load(f"{tmp_path}/all").select("topic", "id", "name").collect()
    assert sorted(map(tuple, rows)) == [("narrow", 1, None), ("wide", 1, "a")]


def test_sick_topics_cost_themselves_only_and_few_start_at_once(
    stack: TieredStack, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fails before it starts, and one while it runs; both come before those that are well."""
    topics = [f"well-{number}" for number in range(5)]
    counts = {topic: fill_segments(stack, topic, [7]) for topic in topics}
    (tmp_path / "unwritable").write_text("a file, where the table's folder should be")
    fill_segments(stack, "unwritable", [7])
    running: list[ingest_run.IngestQuery] = []
    starting = []

    class Seen(ingest_run.IngestQuery):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            starting.append(sum(query.is_starting() for query in running))
            super().__init__(*arguments, **named)
            running.append(self)

    monkeypatch.setattr(ingest_run, "IngestQuery", Seen)
    monkeypatch.setattr(ingest_run, "MAX_STARTING", 2)
    names = ",".join(["unwritable", "missing", *topics])
    metrics = tmp_path / "metrics.json"
    settings = {**options(stack, names), **by_topic(tmp_path), "fetchOffset.numRetries": "1"}
    status, printed = run_here(*words(settings), "--metrics-file", str(metrics))

    assert status == 1
    for topic, count in counts.items():
        assert landed(spark, tmp_path, topic) == [(topic, offset) for offset in range(count)]
        assert f"ingest {tmp_path}/{topic}: batch 0: {count} rows" in printed
    assert len(starting) == 7 and max(starting) < 2
    *summary, advice = printed.partition("2 of 7 queries failed:\n")[2].splitlines()
    summary.sort()
    assert "tables and checkpoints stay" in advice
    assert len(summary) == 2 and "Traceback" not in printed
    assert summary[0].startswith(f"  ingest {tmp_path}/missing: ") and "topic: 'missing'" in summary[0]
    assert summary[1].startswith(f"  ingest {tmp_path}/unwritable: ")
    # What a sick topic's tasks had read before the query ended is its own, and part of the whole.
    spent = {query.name: query._receiver.total().records for query in running}
    sick = spent.pop(f"ingest {tmp_path}/unwritable")
    assert spent.pop(f"ingest {tmp_path}/missing") == 0
    assert spent == {f"ingest {tmp_path}/{topic}": count for topic, count in counts.items()}
    assert orjson.loads(metrics.read_bytes())["records"] == sum(counts.values()) + sick


def test_a_job_killed_in_mid_batch_goes_on_and_lands_every_record_once(
    stack: TieredStack, topic: str, tmp_path: Path
) -> None:
    create_tiered_topic(stack.broker, topic, partitions=2, config={"segment.bytes": str(2 << 20)})
    produce_bulk(stack.broker, topic, records=RECORDS)
    wait_until_tiered(stack.broker, topic)
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    places = {TABLE: str(table), CHECKPOINT: str(checkpoint), "maxOffsetsPerTrigger": str(RECORDS // 3)}
    with SubmittedJob("ingest_to_delta.py", tmp_path / "job", {**options(stack, topic), **places}) as job:
        wait_until(lambda: not job.running or _in_mid_batch(table, checkpoint), "a second batch", pause=0.01)
        job.kill()
        assert _in_mid_batch(table, checkpoint), job.output()
        job.start()
        assert job.wait() == 0, job.output()
    assert "segments are located by" in job.output() and " rows read, " in job.output()

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

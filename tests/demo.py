"""`make demo`: a topic that lives in S3 becomes a Delta table, and every record of it is checked.

A real broker tiers a topic's segments to a real S3 endpoint and drops its own copies. The ingest job, through
spark-submit, reads them straight from there into a Delta table; more records come, and the job goes on from its
checkpoint. Then every record of the table is compared with what a plain Kafka consumer returns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from tests.stack.bulk import produce_bulk
from tests.stack.consume import read_topic
from tests.stack.jars import jar_paths
from tests.stack.produce import RawProducer
from tests.stack.rows import Record, Row
from tests.stack.spark import DELTA, LOCAL, ROOT
from tests.stack.tiered_stack import TieredStack
from tests.stack.topics import create_tiered_topic, wait_until_tiered
from tests.stack.transactions import TransactionalProducer
from tiered_stream.metrics import ReadMetrics
from tiered_stream.records.arrow import SCHEMA_WITH_HEADERS

TOPIC = "orders"
PARTITIONS = 4
BULK_RECORDS = 1_000_000
MORE_RECORDS = 100_000
RECORD_BYTES = 100
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PRODUCERS = 3
TRANSACTIONS = 20

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Run:
    """One run of the job."""

    seconds: float
    metrics: ReadMetrics


def fill(stack: TieredStack, records: int) -> None:
    """Bulk records, records of every shape in every codec, and interleaved transactions, a part of them aborted."""
    odd = [
        Record(),
        Record(b"", b""),
        Record(b"key", None),
        Record(None, b"value", (("trace", b"1"), ("trace", None), ("", b""))),
        *(Record(b"key %d" % each, b"value %d" % each * (each % 20), (("n", b"%d" % each),)) for each in range(500)),
    ]
    with RawProducer(stack.broker) as producer:
        for partition in range(PARTITIONS):
            for codec in CODECS:
                producer.send(TOPIC, odd, partition, codec)
    produce_bulk(stack.broker, TOPIC, records // 2, RECORD_BYTES)
    transact(stack)
    produce_bulk(stack.broker, TOPIC, records - records // 2, RECORD_BYTES, {"compression.type": "zstd"})


def transact(stack: TieredStack) -> None:
    """Every producer keeps its transactions open over those of the others; every third is aborted."""
    producers = [TransactionalProducer(stack.broker, f"demo-{time.time_ns()}-{each}") for each in range(PRODUCERS)]
    for number in range(TRANSACTIONS):
        for index, producer in enumerate(producers):
            values = [Record(b"transaction %d" % number, b"of producer %d" % index)] * 50
            producer.send(TOPIC, values, (number + index) % PARTITIONS)
            if (number + index) % 2:
                producer.abort() if number % 3 == 0 else producer.commit()
    for producer in producers:
        producer.send(TOPIC, [Record(b"last", b"one")])
        producer.commit()
        producer.close()


def write_settings(stack: TieredStack, folder: Path) -> Path:
    """The job's settings file, as a user would write it."""
    settings = {
        **stack.options(),
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "ingest.table": str(folder / "table"),
        "ingest.checkpointLocation": str(folder / "checkpoint"),
    }
    file = folder / "ingest_to_delta.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def submit(settings: Path, folder: Path) -> Run:
    """One run of the job through spark-submit."""
    metrics_file = folder / "metrics.json"
    jars = ",".join(map(str, jar_paths("delta")))
    conf = {**LOCAL, **DELTA, "spark.jars": jars}
    command = [str(Path(sys.executable).with_name("spark-submit"))]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command += [str(ROOT / "jobs" / "ingest_to_delta.py"), "--settings", str(settings)]
    command += ["--metrics-file", str(metrics_file)]
    begin = time.perf_counter()
    with (folder / "spark.log").open("a") as log:
        subprocess.run(command, check=True, env=spark_environment(), stderr=log)
    return Run(time.perf_counter() - begin, ReadMetrics(**json.loads(metrics_file.read_text())))


def spark_environment() -> Mapping[str, str]:
    """What spark-submit needs to find this Python and the project."""
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}


def expected_table(rows: Sequence[Row]) -> pa.Table:
    """The consumer's rows in the columns of the source."""
    headers = [[{"key": name, "value": value} for name, value in row.headers] or None for row in rows]
    columns = {
        "key": [row.key for row in rows],
        "value": [row.value for row in rows],
        "topic": [TOPIC] * len(rows),
        "partition": [row.partition for row in rows],
        "offset": [row.offset for row in rows],
        "timestamp": [row.timestamp_ms * 1000 for row in rows],
        "timestampType": [row.timestamp_type for row in rows],
        "headers": headers,
    }
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in SCHEMA_WITH_HEADERS})


def landed_table(path: Path) -> pa.Table:
    """The Delta table, by partition and offset, read without Spark."""
    by_offset = [("partition", "ascending"), ("offset", "ascending")]
    landed = pa.table(DeltaTable(path).to_pyarrow_table()).sort_by(by_offset)
    return landed.select(SCHEMA_WITH_HEADERS.names).cast(SCHEMA_WITH_HEADERS)


def count_mismatches(expected: pa.Table, landed: pa.Table) -> int:
    """Records that are missing, too many, or differ in any field."""
    if expected.num_rows != landed.num_rows:
        keys = ["partition", "offset"]
        wanted, got = ({tuple(row.values()) for row in each.select(keys).to_pylist()} for each in (expected, landed))
        return len(wanted ^ got) + landed.num_rows - len(got)
    wrong = pa.array([False] * expected.num_rows)
    for name in expected.column_names:
        left, right = expected[name].combine_chunks(), landed[name].combine_chunks()
        if not left.equals(right):
            differs = [one != other for one, other in zip(left.to_pylist(), right.to_pylist(), strict=True)]
            wrong = pc.or_(wrong, pa.array(differs))
    return int(pc.sum(wrong).as_py() or 0)


def count_segments(stack: TieredStack) -> int:
    """Segments of the topic in the bucket."""
    pages = stack.s3proxy.client().get_paginator("list_objects_v2").paginate(Bucket=stack.bucket)
    keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
    return sum(key.startswith(f"{TOPIC}-") and key.endswith(".log") for key in keys)


def report(runs: Sequence[Run], rows: int, segments: int, mismatches: int) -> Table:
    table = Table(title=f"topic {TOPIC} → Delta table")
    figures: list[tuple[str, str]] = [("records", f"{rows:,}"), ("segments in S3", f"{segments:,}")]
    for name, run in zip(("first run", "second run, from the checkpoint"), runs, strict=True):
        figures += [
            (f"{name}: rows", f"{run.metrics.records:,}"),
            (f"{name}: bytes from S3", f"{run.metrics.remote_fetch_bytes:,}"),
            (f"{name}: bytes from the broker", f"{run.metrics.broker_fetch_bytes:,}"),
            (f"{name}: seconds", f"{run.seconds:.1f}"),
        ]
    for column in ("figure", "value"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for figure in [*figures, ("mismatches", f"{mismatches:,}")]:
        table.add_row(*figure)
    return table


def main() -> int:
    """Run the demo; 1 when any record differs."""
    with tempfile.TemporaryDirectory(prefix="tiered-stream-demo-") as name, TieredStack() as stack:
        folder = Path(name)
        console.print(f"broker at {stack.bootstrap_servers}, S3 at {stack.s3_endpoint}, bucket {stack.bucket}")
        create_tiered_topic(stack.broker, TOPIC, PARTITIONS, {"segment.bytes": str(2 << 20)})
        fill(stack, BULK_RECORDS)
        wait_until_tiered(stack.broker, TOPIC)
        console.print(f"{TOPIC}: filled and tiered; the broker keeps only the last segment of each partition")
        settings = write_settings(stack, folder)
        first = submit(settings, folder)
        fill(stack, MORE_RECORDS)
        second = submit(settings, folder)
        console.print("comparing every record with what a Kafka consumer returns")
        expected = expected_table(read_topic(stack.broker, TOPIC))
        mismatches = count_mismatches(expected, landed_table(folder / "table"))
        console.print(report([first, second], expected.num_rows, count_segments(stack), mismatches))
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())

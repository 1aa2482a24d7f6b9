"""`make demo`: a topic that lives in S3 becomes Delta tables, and every record of it is checked.

A broker tiers a topic's segments into a folder that an S3 server serves, and drops its own copies. The ingest job, by
spark-submit, reads them straight from the server into a Delta table; more records come, and the job goes on from its
checkpoint, in the demo's own Spark. Then a gateway tells another reader, who has no storage credential, where the
segments are; he gets the topic into a second table by Spark's own Delta sink. Records are deleted from the first table,
and a replay of that time puts them back; the table is verified. Every record of both tables is compared with what a
plain Kafka consumer returns. In the end the topic, with more history, is landed by two sources in turn: ours, and
Spark's own `kafka` source.

What is timed runs alone.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from tests.rigs.demo.race import KAFKA, OURS, Landed, race, starts, warm_up
from tests.rigs.demo.runs import WHOLE_TOPIC, Run, job_settings, land_through_gateway, run_here, submit
from tests.rigs.demo.tables import count_mismatches, expected_table, landed_table, lose, mend, middle_half
from tests.rigs.demo.throughput import draw
from tests.rigs.demo.topic import PARTITIONS, TOPIC, bytes_not_tiered, count_segments, fill, fill_history
from tests.rigs.stack.broker import JVM_OPTIONS
from tests.rigs.stack.broker_counters import jmx_options
from tests.rigs.stack.build import build_folder
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.processes import free_ports
from tests.rigs.stack.rows import Row
from tests.rigs.stack.spark import spark_session
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, wait_until_tiered
from tests.rigs.tables import table

BULK_RECORDS = 200_000
MORE_RECORDS = 50_000
HISTORY_RECORDS = 1_300_000

console = Console(highlight=False, soft_wrap=True)
reports = Console(highlight=False, width=120)


def report(runs: Mapping[str, Run], figures: Mapping[str, int]) -> Table:
    rows = []
    for name, run in runs.items():
        counted = run.metrics.records, run.metrics.remote_fetch_bytes, run.metrics.broker_fetch_bytes
        rows.append((name, *(f"{count:,}" for count in counted), *_times(run)))
    rows += [(name, f"{count:,}") for name, count in figures.items()]
    columns = ("", "rows", "bytes from S3", "bytes from the broker", *_TIMES)
    return table(f"topic {TOPIC} → Delta tables", columns, rows)


def race_report(landed: Mapping[str, Landed]) -> Table:
    rows = []
    for name, each in landed.items():
        figures = each.rate, each.run.metrics.remote_fetch_bytes, each.broker.bytes_out
        rows.append((name, *(f"{figure:,.0f}" for figure in figures), *_times(each.run)))
    columns = ("", "rows a second", "bytes from S3", "bytes from the broker", *_TIMES)
    return table(f"the same topic, {landed[OURS].rows:,} rows, by two sources in a warm Spark", columns, rows)


_TIMES = ("start-up", "run")


def _times(run: Run) -> tuple[str, str]:
    """Until the first micro-batch began, and from there until the last one was committed."""
    return f"{run.start_up:.1f} s", f"{run.seconds:.1f} s"


def filled_topic(stack: TieredStack, beside: ThreadPoolExecutor) -> SparkSession:
    """Fill the topic, and start this process's Spark meanwhile."""
    starting = beside.submit(spark_session, "demo")
    create_tiered_topic(stack.broker, TOPIC, PARTITIONS, {"segment.bytes": str(2 << 20)})
    fill(stack, BULK_RECORDS)
    wait_until_tiered(stack.broker, TOPIC)
    console.print(f"{TOPIC}: filled and tiered; the broker keeps only the last segment of each partition")
    return starting.result()


def landed_runs(stack: TieredStack, folder: Path) -> dict[str, Run]:
    """The job's runs, one after the other: by spark-submit, and then in this process's Spark."""
    table = folder / "table"
    settings = job_settings(stack.options(), table)
    runs = {"first run, spark-submit": submit(settings, folder, table)}
    fill(stack, MORE_RECORDS)
    wait_until_tiered(stack.broker, TOPIC)
    runs["second run, from the checkpoint"] = run_here(settings, table)
    runs["signed URLs from a gateway, Spark lane"] = land_through_gateway(stack, folder, folder / "second-table")
    return runs


def mended_and_compared(spark: SparkSession, stack: TieredStack, folder: Path, consumed: list[Row]) -> dict[str, int]:
    """Lose a part of the table and replay it; how many records that were, how many there are, and how many differ."""
    table = folder / "table"
    times = middle_half(consumed)
    lost = lose(spark, table, times)
    console.print(f"{lost:,} records were deleted; replaying {times[0]} to {times[1]}, and verifying the table")
    verified = mend(spark, {**stack.options(), **WHOLE_TOPIC}, table, times)
    console.print(verified.summary())
    console.print("comparing every record of both tables with what a Kafka consumer returns")
    expected = expected_table(consumed)
    mismatches = sum(count_mismatches(expected, landed_table(each)) for each in (table, folder / "second-table"))
    mismatches += not verified.equal
    return {"records": expected.num_rows, "records deleted, and replayed": lost, "mismatches": mismatches}


def main() -> int:
    """Run the demo; 1 when any record differs, or a tiered one came through the broker."""
    logging.getLogger("kafka").setLevel(logging.ERROR)  # the consumer would complain that others use the cores too
    (jmx_port,) = free_ports(1)
    jvm_options = (*JVM_OPTIONS, *jmx_options(jmx_port))
    with (
        build_folder("demo") as folder,
        TieredStack(folder / "stack", jvm_options=jvm_options) as stack,
        ThreadPoolExecutor(1) as beside,
    ):
        console.print(f"broker at {stack.bootstrap_servers}, S3 at {stack.s3_endpoint}, bucket {stack.bucket}")
        spark = filled_topic(stack, beside)
        runs = landed_runs(stack, folder)
        through_broker = runs["signed URLs from a gateway, Spark lane"].metrics.broker_fetch_bytes
        figures = {"segments in S3": count_segments(stack)}
        figures |= {"tiered bytes through the broker": max(0, through_broker - bytes_not_tiered(stack))}
        consuming = beside.submit(read_topic, stack.broker, TOPIC)
        sources = starts(spark, stack)
        warm_up(sources, folder)
        consumed = consuming.result()
        filling = beside.submit(fill_history, stack, HISTORY_RECORDS)
        figures |= mended_and_compared(spark, stack, folder, consumed)
        filling.result()
        reports.print(report(runs, figures))
        console.print(f"{HISTORY_RECORDS:,} more records are in S3; landing all of the topic by two sources in turn")
        landed = race(sources, stack, jmx_port, folder)
        spark.stop()
        reports.print(race_report(landed))
        picture = folder / "throughput.svg"
        picture.write_text(draw(landed, f"rows a second into a Delta table: {landed[OURS].rows:,} rows of 100 bytes"))
        console.print(f"throughput over time: {picture}")
    wrong = figures["mismatches"] + figures["tiered bytes through the broker"]
    return 1 if wrong or landed[OURS].rows != landed[KAFKA].rows else 0


if __name__ == "__main__":
    sys.exit(main())

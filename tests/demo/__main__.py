"""`make demo`: a topic that lives in S3 becomes Delta tables, and every record of it is checked.

A real broker tiers a topic's segments to a real S3 endpoint and drops its own copies. The ingest job, through
spark-submit, reads them straight from there into a Delta table; more records come, and the job goes on from its
checkpoint. Beside that, a gateway tells another reader, who has no storage credential, where the segments are; he gets
the topic into a second table by Spark's own Delta sink. Then records are deleted from the first table, and a replay of
that time puts them back and verifies it. In the end every record of the first table is compared with what a plain
Kafka consumer returns, and the second table with the first.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.table import Table

from tests.demo.compare import count_mismatches, expected_table, landed_table
from tests.demo.mended import lose, mend, middle_half
from tests.demo.runs import Run, submit, write_settings
from tests.demo.second_table import count_differences, land_through_gateway
from tests.demo.topic import PARTITIONS, TOPIC, bytes_not_tiered, count_segments, fill
from tests.stack.build import build_folder
from tests.stack.consume import read_topic
from tests.stack.spark import SHORT_LIVED, spark_session
from tests.stack.tiered_stack import TieredStack
from tests.stack.topics import create_tiered_topic, wait_until_tiered

BULK_RECORDS = 1_000_000
MORE_RECORDS = 100_000

console = Console(highlight=False, soft_wrap=True)
reports = Console(highlight=False, width=120)


def report(runs: Mapping[str, Run], figures: Mapping[str, int]) -> Table:
    table = Table(title=f"topic {TOPIC} → Delta tables")
    table.add_column("")
    for column in ("rows", "bytes from S3", "bytes from the broker", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, run in runs.items():
        counted = run.metrics.records, run.metrics.remote_fetch_bytes, run.metrics.broker_fetch_bytes
        table.add_row(name, *(f"{count:,}" for count in counted), f"{run.seconds:.1f}")
    table.add_section()
    for name, count in figures.items():
        table.add_row(name, f"{count:,}")
    return table


def main() -> int:
    """Run the demo; 1 when any record differs, or a tiered one came through the broker."""
    logging.getLogger("kafka").setLevel(logging.ERROR)  # the consumer would complain that others use the cores too
    with build_folder("demo") as folder, TieredStack(folder / "stack") as stack:
        table, second_table = folder / "table", folder / "second-table"
        console.print(f"broker at {stack.bootstrap_servers}, S3 at {stack.s3_endpoint}, bucket {stack.bucket}")
        create_tiered_topic(stack.broker, TOPIC, PARTITIONS, {"segment.bytes": str(2 << 20)})
        fill(stack, BULK_RECORDS)
        wait_until_tiered(stack.broker, TOPIC)
        console.print(f"{TOPIC}: filled and tiered; the broker keeps only the last segment of each partition")
        settings = write_settings(stack, folder, table)
        runs = {"first run": submit(settings, folder)}
        fill(stack, MORE_RECORDS)
        wait_until_tiered(stack.broker, TOPIC)
        with ThreadPoolExecutor(2) as beside:
            second = beside.submit(submit, settings, folder)
            consumer = beside.submit(read_topic, stack.broker, TOPIC)
            spark = spark_session("demo", groups=("delta",), config=SHORT_LIVED)
            through_gateway = land_through_gateway(stack, folder, second_table)
            runs |= {"second run, from the checkpoint": second.result()}
            runs |= {"signed URLs from a gateway, Spark lane": through_gateway}
            consumed = consumer.result()
            times = middle_half(consumed)
            lost = lose(spark, table, times)
            console.print(f"{lost:,} records were deleted; replaying {times[0]} to {times[1]}, and verifying that time")
            mend(settings, folder, times)
            console.print("comparing every record with what a Kafka consumer returns, and the tables with each other")
            differences = beside.submit(count_differences, spark, table, second_table)
            expected = expected_table(consumed)
            mismatches = count_mismatches(expected, landed_table(table)) + differences.result()
        spark.stop()
        tiered_bytes = max(0, through_gateway.metrics.broker_fetch_bytes - bytes_not_tiered(stack))
        figures = {"records": expected.num_rows, "segments in S3": count_segments(stack)}
        figures |= {"records deleted, and replayed": lost}
        figures |= {"tiered bytes through the broker": tiered_bytes, "mismatches": mismatches}
        reports.print(report(runs, figures))
    return 1 if mismatches or tiered_bytes else 0


if __name__ == "__main__":
    sys.exit(main())

"""Run the measurements and print one table each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from tests.bench.decode import DecodeRates, measure_decode
from tests.bench.lakes import serving
from tests.bench.landing import Landed, measure_landing
from tests.bench.noop import WARM_UP_TOPIC, NoopRates, fill, measure_noop
from tests.bench.verify import VerifyTimes, measure_verify
from tests.gateway.planning import planning_figures
from tests.stack.build import build_folder
from tests.stack.spark import spark_session
from tests.stack.tiered_stack import TieredStack

TOPIC = "bench"

console = Console(highlight=False, width=100)


def titled(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in ("what", *columns):
        table.add_column(column, justify="left" if column == "what" else "right")
    return table


def decode_report(decode: DecodeRates) -> Table:
    table = titled("one core decodes record batches", "M records/s", "ours is faster by")
    rates = {"our decoder": decode.ours, "the same, no CRC": decode.without_crc, "kafka-python": decode.kafka_python}
    for name, rate in rates.items():
        table.add_row(name, f"{rate / 1e6:.2f}", f"{decode.ours / rate:.1f}x")
    return table


def noop_report(noop: NoopRates) -> Table:
    table = titled(
        "Spark on local[2] reads a tiered topic into the noop sink", "seconds", "M records/s", "ours is faster by"
    )
    times = {"tiered_stream": noop.ours, "kafka as it comes": noop.kafka, "kafka, 16 MiB fetches": noop.kafka_tuned}
    for name, seconds in times.items():
        rate = noop.records / seconds
        table.add_row(name, f"{seconds:.1f}", f"{rate / 1e6:.2f}", f"{seconds / noop.ours:.1f}x")
    return table


def landing_report(landed: Mapping[str, Landed], records: int, where: str) -> Table:
    columns = ("seconds", "M records/s", "direct lane is faster by", "peak of a worker")
    table = titled(f"Spark on local[2] lands a tiered topic in a new Delta table {where}", *columns)
    ours = landed["direct lane"].median
    for name, each in landed.items():
        peak = f"{each.worker_bytes >> 20:,} MiB" if each.worker_bytes else ""
        rate = records / each.median / 1e6
        seconds = f"{each.median:.1f} ({min(each.seconds):.1f} to {max(each.seconds):.1f})"
        table.add_row(name, seconds, f"{rate:.2f}", f"{each.median / ours:.1f}x", peak)
    return table


def verify_report(times: VerifyTimes) -> Table:
    table = titled(
        "Spark on local[2] compares that table with its topic", "seconds", "M records/s", "of a read of both"
    )
    reads = times.topic + times.table
    rows = {"verify": times.verify, "the topic into noop": times.topic, "the table into noop": times.table}
    for name, seconds in rows.items():
        rate = times.records / seconds / 1e6
        table.add_row(name, f"{seconds:.1f}", f"{rate:.2f}", f"{seconds / reads:.2f}x")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3, help="of ours in each turn; the median counts")
    parser.add_argument("--kafka-runs", type=int, default=1, help="of Spark's own source, which takes long")
    arguments = parser.parse_args()
    records, runs = arguments.records, (arguments.runs, arguments.kafka_runs)
    console.print(decode_report(measure_decode()))
    console.print(planning_figures())
    with build_folder("bench") as folder, TieredStack(folder / "stack") as stack, serving(folder) as lakes:
        fill(stack, WARM_UP_TOPIC, 100_000, arguments.record_bytes)
        fill(stack, TOPIC, records, arguments.record_bytes)
        spark = spark_session("bench", ("delta", "spark-kafka", "s3a"), lakes[-1].session)
        console.print(noop_report(measure_noop(stack, spark, TOPIC, records, *runs)))
        for lake in lakes:
            landed = measure_landing(stack, spark, lake, TOPIC, records, *runs)
            console.print(landing_report(landed, records, lake.where))
        console.print(verify_report(measure_verify(stack, spark, TOPIC, records, arguments.runs)))
        spark.stop()


if __name__ == "__main__":
    main()

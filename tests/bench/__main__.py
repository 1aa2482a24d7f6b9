"""Run the measurements and print one table."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from tests.bench.decode import DecodeRates, measure_decode
from tests.bench.noop import WARM_UP_TOPIC, NoopRates, fill, measure_noop
from tests.stack.spark import spark_session
from tests.stack.tiered_stack import TieredStack

TOPIC = "bench"


def report(decode: DecodeRates, noop: NoopRates) -> Table:
    table = Table(title="one core decodes; Spark on local[2] reads a tiered topic into the noop sink")
    for column in ("what", "seconds", "M records/s", "ours is faster by"):
        table.add_column(column, justify="left" if column == "what" else "right")
    rates = {"decoder": decode.ours, "decoder, no CRC": decode.without_crc, "kafka-python": decode.kafka_python}
    for name, rate in rates.items():
        table.add_row(f"decode: {name}", "", f"{rate / 1e6:.2f}", f"{decode.ours / rate:.1f}x")
    times = {"tiered_stream": noop.ours, "kafka as it comes": noop.kafka, "kafka, 16 MiB fetches": noop.kafka_tuned}
    for name, seconds in times.items():
        rate = noop.records / seconds
        table.add_row(f"noop: {name}", f"{seconds:.1f}", f"{rate / 1e6:.2f}", f"{seconds / noop.ours:.1f}x")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3, help="of our source; the median counts")
    parser.add_argument("--kafka-runs", type=int, default=1, help="of Spark's own source, which takes long")
    arguments = parser.parse_args()
    decode = measure_decode()
    with TieredStack() as stack:
        fill(stack, WARM_UP_TOPIC, 100_000, arguments.record_bytes)
        fill(stack, TOPIC, arguments.records, arguments.record_bytes)
        spark = spark_session("bench")
        noop = measure_noop(stack, spark, TOPIC, arguments.records, arguments.runs, arguments.kafka_runs)
        spark.stop()
    Console(highlight=False, width=100).print(report(decode, noop))


if __name__ == "__main__":
    main()

"""The driver's part of a micro-batch of 10,000 splits, whose tasks write 100,000 files.

The tasks are made up: their rows and their datagrams are what tasks
send. Spark's scheduler is left out.
"""

from __future__ import annotations

import json
import pickle
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import orjson
from pyspark.sql import Row

from tests.rigs.scale.made_up_topics import OFFSETS, Topics
from tests.rigs.scale.measured import Meter
from tests.rigs.scale.segments import Planner, warm_up
from tiered_stream.delta.commit.deltalake_commit import DeltalakeTable, create_table
from tiered_stream.delta.commit.transaction import BatchCommit
from tiered_stream.delta.requirements.lane import table_schema
from tiered_stream.delta.settings.ingest_settings import table_spec
from tiered_stream.delta.write.data_files import DataFile, data_files, file_rows, record_count
from tiered_stream.model import Split
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.spark.split_partition import SplitPartition

TASKS, FILES = 10_000, 100_000
_WAIT_SECONDS = 5.0
_BURST = 64
"""Tasks that end at once, on as many cores."""


def splits_of(planner: Planner) -> list[Split]:
    """Return a split for each of the topic's segments, and a micro-batch's plan up to Spark's bytes."""
    _, splits = planner.plan(planner.stream.initial())
    return splits


def pickled(splits: Sequence[Split]) -> list[bytes]:
    """Return the input partitions as Spark's planner process sends them to the JVM."""
    return [pickle.dumps(SplitPartition(split)) for split in splits]


def rows_of_tasks(splits: Sequence[Split], files: int) -> list[Row]:
    """Return the rows that `collect` returns of the tasks' files."""
    rows: list[Row] = []
    each = max(1, files // len(splits))
    for task, split in enumerate(splits):
        written = [_file(task, number, split) for number in range(each)]
        batch = file_rows(written, ReadMetrics(records=OFFSETS), 1 << 28)
        rows += [Row(**row) for row in batch.to_pylist()]
    return rows


def _file(task: int, number: int, split: Split) -> DataFile:
    bounds = {"topic": split.topic_partition.topic, "partition": split.topic_partition.partition}
    lowest = {**bounds, "offset": split.offsets.start, "timestamp": "2026-11-21T00:00:00.000Z"}
    stats = {
        "numRecords": OFFSETS, "minValues": lowest, "maxValues": {**lowest, "offset": split.offsets.end - 1},
        "nullCount": dict.fromkeys(("key", "value", *lowest), 0),
    }  # fmt: skip
    name = f"part-{task:05}-{number:03}-5c1fbf4e-0b0d-4f6b-9a0e-3c5fd5f1f0aa-c000.zstd.parquet"
    ends = {split.topic_partition: (split.offsets.start, split.offsets.end - 1)}
    return DataFile("table", name, 128 << 20, 1_700_000_000_000, None, OFFSETS, json.dumps(stats), ends)


def report(meter: Meter, receiver: MetricsReceiver, tasks: int) -> int:
    """Send a datagram for each task, in bursts, and return how many were counted."""
    (address,) = receiver.report_to
    host, port = address.place.rsplit(":", 1)
    counters = asdict(ReadMetrics(records=OFFSETS))
    with meter.outside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for task in range(tasks):
            report = counters | {"micro_batch": ("query", 1), "part": f"part-{task}"}
            sender.sendto(address.token + orjson.dumps(report), (host, int(port)))
            if task % _BURST == _BURST - 1:
                time.sleep(0.001)
    ends = time.monotonic() + _WAIT_SECONDS
    while receiver.total().records < tasks * OFFSETS and time.monotonic() < ends:
        time.sleep(0.01)
    return receiver.total().records // OFFSETS


def measure(scale: float, folder: Path) -> Meter:
    tasks, files = max(2, round(TASKS * scale)), max(20, round(FILES * scale))
    warm_up()
    meter = Meter(f"a micro-batch of {tasks:,} splits and {files:,} files")
    topics = Topics(1, max(1, tasks // 100), min(100, tasks))
    whole = {"maxBytesPerTrigger": "1p", "remote.split.bytes": "1g", "remote.log.metadata.snapshot.dir": "none"}
    planner = Planner(topics, meter, whole)
    of_tasks, of_files = (tasks, "split"), (files, "file")
    splits = meter.step("plan of the splits", partial(splits_of, planner), of_tasks)
    partitions = meter.step("input partitions, pickled", partial(pickled, splits), of_tasks)
    assert isinstance(pickle.loads(partitions[0]), SplitPartition)
    with MetricsReceiver() as receiver:
        counted = meter.step("reports by datagram", partial(report, meter, receiver, tasks), of_tasks)
    sys.stderr.write(f"{counted:,} of {tasks:,} datagrams were counted\n")
    rows = rows_of_tasks(splits, files)
    meter.restart()
    found = meter.step("file names and statistics", partial(data_files, rows), of_files)
    meter.step("records of all tasks", partial(record_count, rows), of_files)
    spec = replace(table_spec({}), uri=str(folder / "table"))
    create_table(spec, table_schema(False, None), {})
    transaction = DeltalakeTable(spec).begin()
    batch = BatchCommit("query", 0, found)
    meter.step("one commit", partial(transaction.commit, batch), of_files)
    return meter

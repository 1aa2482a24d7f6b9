"""Splits planned for a batch query, and read as its tasks read them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from tests.archives import arrow_rows
from tests.rigs.stack.rows import Row
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import Split
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.options.parsing import Options
from tiered_stream.plan.batch import plan_batch
from tiered_stream.read.split_reader import SplitReader


def plan(asked: Options) -> list[Split]:
    with closing(open_log_source(asked)) as tier:
        return plan_batch(asked, tier)


def read(splits: Sequence[Split], asked: Options) -> tuple[list[Row], ReadMetrics]:
    """The rows by partition and offset, and what they cost."""
    rows: list[Row] = []
    metrics = ReadMetrics()
    for split in splits:
        reader = SplitReader(split, asked)
        for batch in reader.batches():
            rows += arrow_rows(batch)
        metrics.add(reader.metrics)
    return sorted(rows, key=lambda row: (row.partition, row.offset)), metrics

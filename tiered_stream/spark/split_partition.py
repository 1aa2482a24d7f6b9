"""Spark's input partition for one split, and the read of it in a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import datasource

from tiered_stream.observe.read_metrics import new_part
from tiered_stream.options.parsing import Options
from tiered_stream.process.heap_and_gc import settle_worker, share_heap
from tiered_stream.process.logs import show_log

if TYPE_CHECKING:
    import pyarrow as pa

    from tiered_stream.model import ReportAddress, Split


class SplitPartition(datasource.InputPartition):
    """Input partition of Spark with one `Split`: offsets of one Kafka partition that one task reads.

    The task sends its counters to the addresses in `batch_log`. The addresses are not in the reader, because Spark
    pickles the reader in another process, which does not have the planner's state. Only input partitions carry the
    planner's state to tasks. `part` is the name of the input partition in the reports of its tasks.
    """

    def __init__(self, split: Split, batch_log: tuple[ReportAddress, ...] = ()) -> None:
        super().__init__(split)
        self.split = split
        self.batch_log = batch_log
        self.part = new_part()


def read_partition(partition: datasource.InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    """Read a `SplitPartition` in a task, and yield its rows in Arrow record batches.

    `options` are the options of the query. The task's counters go to the partition's addresses and the options'.
    """
    from tiered_stream.read.split_reader import read_split

    show_log()
    share_heap()
    assert isinstance(partition, SplitPartition)
    addresses = (*options.report_addresses, *partition.batch_log)
    yield from read_split(partition.split, replace(options, report_addresses=addresses), partition.part)
    settle_worker()

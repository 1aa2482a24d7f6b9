"""Spark sources that are planned like the source `tiered_stream`, but return row hashes or their sums, not records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tiered_stream.model import Split
from tiered_stream.observe.read_metrics import send
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.process.heap_and_gc import settle_worker
from tiered_stream.process.logs import show_log
from tiered_stream.records.arrow import repeated_int32, repeated_text
from tiered_stream.records.row_hash import BATCH_ROWS, HASHED, Numbers, bucket_sums, numbers, row_hashes
from tiered_stream.spark.source import BatchReader
from tiered_stream.spark.split_partition import SplitPartition

SOURCE, HASHES_SOURCE = "tiered_stream_sums", "tiered_stream_row_hashes"
SUMS = ("topic", "partition", "bucket", "records", "high", "low")
"""Columns of a row that has the sums of row hashes of one bucket of 65,536 offsets (see `row_hash.bucket_sums`).

Several tasks may return rows of the same bucket. The caller must add up their sums.
"""
ROW_HASHES = ("topic", "partition", "offset", "hash")
"""Columns of a row that has the hash of one record."""


class SumsDataSource(DataSource):
    """Spark data source that returns sums of row hashes; only `record_comparison` uses it.

    A row hash covers the offset, and the columns in `HASHED` that the option `columns` names.
    """

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        return _schema(SUMS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return SplitsReader(parse_options(self.options, streaming=False), split_sums)


class HashesDataSource(DataSource):
    """Spark data source that returns the hash of each record; only `record_comparison` uses it.

    A row hash covers the same columns as in `SumsDataSource`. So large values are not sent to the JVM.
    """

    @classmethod
    def name(cls) -> str:
        return HASHES_SOURCE

    def schema(self) -> StructType:
        return _schema(ROW_HASHES)

    def reader(self, schema: StructType) -> DataSourceReader:
        return SplitsReader(parse_options(self.options, streaming=False), split_hashes)


def _schema(columns: Sequence[str]) -> StructType:
    kinds = {"topic": StringType(), "partition": IntegerType(), **dict.fromkeys(columns[2:], LongType())}
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


class SplitsReader(BatchReader):
    """Batch reader that plans like the source `tiered_stream`, but whose tasks return other rows than the records.

    Args:
        options: options of the source.
        read_split: called in a task with one split (offsets of one partition) and `options`; yields the rows. The
            function is pickled.
    """

    def __init__(self, options: Options, read_split: Callable[[Split, Options], Iterator[pa.RecordBatch]]) -> None:
        super().__init__(options)
        self._read_split = read_split

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SplitPartition):
            show_log()
            yield from self._read_split(partition.split, self.options)
            settle_worker()


def split_sums(split: Split, options: Options) -> Iterator[pa.RecordBatch]:
    """Read a split (offsets of one partition), and yield Arrow batches of sums with the columns `SUMS`.

    A row of a batch has the sums of row hashes of one bucket of 65,536 offsets. At the end, send the read counters to
    the addresses in `options`.

    Raises:
        TieredStreamError: the split cannot be read.
    """
    yield from _rows(split, options, SUMS, bucket_sums)


def split_hashes(split: Split, options: Options) -> Iterator[pa.RecordBatch]:
    """Read a split (offsets of one partition), and yield Arrow batches with the columns `ROW_HASHES`.

    A row of a batch has the hash of one record. At the end, send the read counters to the addresses in `options`.

    Raises:
        TieredStreamError: the split cannot be read.
    """
    yield from _rows(split, options, ROW_HASHES, lambda offsets, hashes: (offsets, hashes))


def _rows(
    split: Split, options: Options, names: Sequence[str], figures: Callable[[Numbers, Numbers], tuple[Numbers, ...]]
) -> Iterator[pa.RecordBatch]:
    """Read a split, and yield rows with the columns `names`: topic, partition, and the columns that `figures` returns.

    Args:
        figures: called with the offsets and the hashes of a batch of records.
    """
    # Imported late, because only tasks read splits.
    from tiered_stream.read.split_reader import SplitReader

    reader, (topic, number) = SplitReader(split, options, BATCH_ROWS), split.topic_partition
    columns = [name for name in HASHED if name in (options.columns or ())]
    for batch in reader.batches():
        found = figures(numbers(batch["offset"]), row_hashes(batch, columns))
        rows = len(found[0])
        arrays = [repeated_text(topic, rows), repeated_int32(number, rows), *map(pa.array, found)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))
    send(reader.metrics, options.report_addresses)

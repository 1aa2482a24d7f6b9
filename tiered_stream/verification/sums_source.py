"""Spark source that is planned like `tiered_stream`, but returns sums of row hashes, or one hash for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tiered_stream.model import Split
from tiered_stream.observe.read_metrics import send
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.process.heap_and_gc import settle_worker
from tiered_stream.process.logs import show_log
from tiered_stream.records.arrow import repeated_int32, repeated_text
from tiered_stream.records.row_hash import BATCH_ROWS, bucket_sums, numbers, row_hashes
from tiered_stream.spark.source import BatchReader
from tiered_stream.spark.split_partition import SplitPartition

SOURCE = "tiered_stream_sums"
HASHING = "verify.hashing"
"""Name of the source's option whose value is a `Hashing` in JSON."""
SUMS = ("topic", "partition", "bucket", "records", "high", "low")
"""Columns of a row with the sums over one bucket of offsets (see `row_hash.bucket_sums`).

Several tasks may return rows of the same bucket, whose sums the reader must add up.
"""
HASHES = ("topic", "partition", "offset", "hash")


@dataclass(frozen=True, slots=True)
class Hashing:
    """Selection of the rows and columns that tasks hash. A row hash covers the offset and `columns`.

    If `by_row` is true, tasks return a hash for each row instead of sums.
    """

    columns: Sequence[str]
    by_row: bool = False

    @property
    def result_columns(self) -> tuple[str, ...]:
        """Return the names of the columns that tasks return; all except `topic` and `partition` are 64-bit integers."""
        return HASHES if self.by_row else SUMS


class SumsDataSource(DataSource):
    """Spark data source that returns sums of row hashes, or one hash for each row; only `record_comparison` uses it."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        columns = self._hashing().result_columns
        types = (StringType(), IntegerType(), *[LongType()] * (len(columns) - 2))
        return StructType([StructField(name, kind) for name, kind in zip(columns, types, strict=True)])

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options, streaming=False)
        return SplitsReader(options, partial(hashed_split, hashing=self._hashing()))

    def _hashing(self) -> Hashing:
        return Hashing(**orjson.loads(self.options[HASHING]))


class SplitsReader(BatchReader):
    """Batch reader that plans like `BatchReader`, and whose tasks return what `read_split` yields for a split.

    `read_split` gets the split and the options of the source. It is pickled.
    """

    def __init__(self, options: Options, read_split: Callable[[Split, Options], Iterator[pa.RecordBatch]]) -> None:
        super().__init__(options)
        self._read_split = read_split

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SplitPartition):
            show_log()
            yield from self._read_split(partition.split, self.options)
            settle_worker()


def hashed_split(split: Split, options: Options, hashing: Hashing) -> Iterator[pa.RecordBatch]:
    """Read a split, and yield Arrow batches with the columns `hashing.result_columns`; then send the reading counters.

    A row of a batch has the sums of row hashes of one bucket of offsets, or the hash of one record.

    Raises:
        TieredStreamError: the split cannot be read (see `read_split`).
    """
    # Imported late, because only tasks read splits.
    from tiered_stream.read.split_reader import SplitReader

    reader, (topic, number) = SplitReader(split, options, BATCH_ROWS), split.topic_partition
    hashed = ((numbers(batch["offset"]), row_hashes(batch, hashing.columns)) for batch in reader.batches())
    for columns in hashed if hashing.by_row else starmap(bucket_sums, hashed):
        rows = len(columns[0])
        arrays = [repeated_text(topic, rows), repeated_int32(number, rows), *map(pa.array, columns)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(hashing.result_columns))
    send(reader.metrics, options.report_addresses)

"""Spark source that is planned like `tiered_stream`, but returns sums of row hashes, or one hash for each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.process.heap_and_gc import settle_worker
from tiered_stream.process.logs import show_log
from tiered_stream.spark.source import BatchReader
from tiered_stream.spark.split_partition import SplitPartition
from tiered_stream.verification.hashing import HASHING, Hashing

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "tiered_stream_sums"


class SumsDataSource(DataSource):
    """Spark data source that returns sums of row hashes, or one hash for each row; only `comparison.py` uses it."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        columns = self._hashing().result_columns
        types = (StringType(), IntegerType(), *[LongType()] * (len(columns) - 2))
        return StructType([StructField(name, kind) for name, kind in zip(columns, types, strict=True)])

    def reader(self, schema: StructType) -> DataSourceReader:
        return SumsReader(parse_options(self.options, streaming=False), self._hashing())

    def _hashing(self) -> Hashing:
        return Hashing.from_json(self.options[HASHING])


class SumsReader(BatchReader):
    """Batch reader that plans like `BatchReader`, and whose tasks return sums or hashes as `hashing` selects."""

    def __init__(self, options: Options, hashing: Hashing) -> None:
        super().__init__(options)
        self._hashing = hashing

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SplitPartition):
            return
        from tiered_stream.verification.sums import hashed_split

        show_log()
        yield from hashed_split(partition.split, self.options, self._hashing)
        settle_worker()

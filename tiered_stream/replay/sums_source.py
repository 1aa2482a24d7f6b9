"""The source whose tasks hash the topic's rows: planned like `tiered_stream`, what it gives are sums, not records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.process import settle_worker, show_log
from tiered_stream.replay.hashing import Hashing
from tiered_stream.source import BatchReader, SplitPartition

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "tiered_stream_sums"
HASHING = "verify.hashing"
"""The option that says what is hashed, by `Hashing.to_json`."""


class SumsDataSource(DataSource):
    """For `replay.verify` alone."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def _hashing(self) -> Hashing:
        return Hashing.from_json(self.options[HASHING])

    def schema(self) -> StructType:
        topic, partition, *others = self._hashing().answer
        schema = StructType().add(topic, StringType()).add(partition, IntegerType())
        for name in others:
            schema = schema.add(name, LongType())
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return SumsReader(parse_options(self.options, streaming=False), self._hashing())


class SumsReader(BatchReader):
    """Plans as `BatchReader` does; its tasks hash."""

    def __init__(self, options: Options, hashing: Hashing) -> None:
        super().__init__(options)
        self._hashing = hashing

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SplitPartition):
            return
        from tiered_stream.replay.sums import hashed_split

        show_log()
        yield from hashed_split(partition.split, self.options, self._hashing)
        settle_worker()

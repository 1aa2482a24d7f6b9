"""The source whose tasks hash the topic's rows: planned like `tiered_stream`, what it gives are sums, not records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import orjson
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.options.positions import TimeRange
from tiered_stream.process import settle_worker, show_log
from tiered_stream.source import BatchReader, SplitPartition

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "tiered_stream_sums"
HASHING = "verify.hashing"
"""The option that says what is hashed, by `Hashing.to_json`."""

SUMS = ("topic", "partition", "bucket", "records", "high", "low")
"""The columns of sums: of a bucket of offsets, what `row_hash.bucket_sums` gives. They may come from several tasks."""
HASHES = ("topic", "partition", "offset", "hash")


@dataclass(frozen=True, slots=True)
class Hashing:
    """What is hashed: the `columns` beside the offset, of rows whose timestamp is in `times`.

    `each_row`: the hashes are wanted, not their sums.
    """

    columns: tuple[str, ...]
    times: TimeRange | None = None
    each_row: bool = False

    @property
    def answer(self) -> tuple[str, ...]:
        """The answer's columns; all but the first two are 64-bit integers."""
        return HASHES if self.each_row else SUMS

    def to_json(self) -> str:
        """As an option of the source."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Hashing:
        """Inverse of `to_json`."""
        given = orjson.loads(text)
        times = given["times"]
        return cls(tuple(given["columns"]), None if times is None else TimeRange(**times), given["each_row"])


class SumsDataSource(DataSource):
    """For `replay.verification` alone."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        answer = self._hashing().answer
        types = (StringType(), IntegerType(), *[LongType()] * (len(answer) - 2))
        return StructType([StructField(name, kind) for name, kind in zip(answer, types, strict=True)])

    def reader(self, schema: StructType) -> DataSourceReader:
        return SumsReader(parse_options(self.options, streaming=False), self._hashing())

    def _hashing(self) -> Hashing:
        return Hashing.from_json(self.options[HASHING])


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

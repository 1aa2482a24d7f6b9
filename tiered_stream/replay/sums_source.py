"""Spark source whose tasks hash a topic's records: planned like `tiered_stream`, but its rows are sums or hashes."""

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
"""Option that says what is hashed; its value comes from `Hashing.to_json`."""

SUMS = ("topic", "partition", "bucket", "records", "high", "low")
"""Columns of a row of sums, for one bucket of offsets (see `row_hash.bucket_sums`).

Several tasks may give rows of the same bucket, which must be added up.
"""
HASHES = ("topic", "partition", "offset", "hash")


@dataclass(frozen=True, slots=True)
class Hashing:
    """Choice of what is hashed: the offset and `columns`, for rows whose timestamp is in `times` (None: all rows).

    `each_row`: return a hash for each row instead of sums.
    """

    columns: tuple[str, ...]
    times: TimeRange | None = None
    each_row: bool = False

    @property
    def answer(self) -> tuple[str, ...]:
        """Return the names of the result's columns; all but the first two are 64-bit integers."""
        return HASHES if self.each_row else SUMS

    def to_json(self) -> str:
        """Return the value of the source's option `HASHING`."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Hashing:
        """Parse the value of the option `HASHING`; the inverse of `to_json`."""
        given = orjson.loads(text)
        times = given["times"]
        return cls(tuple(given["columns"]), None if times is None else TimeRange(**times), given["each_row"])


class SumsDataSource(DataSource):
    """Spark data source that returns sums of row hashes or row hashes; only `replay.verification` uses it."""

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
    """Batch reader that plans like `BatchReader`, but whose tasks return sums or hashes instead of records."""

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

"""What Spark calls: the data source `tiered_stream`, its batch reader and its stream reader.

Here is only what Spark asks for; the work is done by other packages. The planning side lives in one Python process of
the driver, the reading side in the executors' workers, which get the reader pickled with its options. Each side
imports its own half when it needs it, so that looking the source up stays quick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.offset_json import offsets_from_dict, offsets_to_dict
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.process import collection_paused, settle_worker, show_log

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tiered_stream.locate.log_source import LogSource
    from tiered_stream.model import Split
    from tiered_stream.observe.driver_log import BatchLog
    from tiered_stream.plan.stream import StreamPlanner

_NO_LIMIT = 2**63 - 1

_FIELDS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


def spark_schema(include_headers: bool) -> StructType:
    """The columns of Spark's `kafka` source, `headers` last where they are wanted."""
    return StructType([*_FIELDS, _HEADERS] if include_headers else list(_FIELDS))


class SplitPartition(InputPartition):
    """A `Split`, as Spark wants it, and where else its task is to report what it cost.

    Spark pickles the reader in a process of its own: what the planner knows, only partitions take along.
    """

    def __init__(self, split: Split, batch_log: tuple[str, ...] = ()) -> None:
        super().__init__(split)
        self.split = split
        self.batch_log = batch_log


class TieredStreamDataSource(DataSource):
    """Spark's `kafka` source, reading tiered segments straight from their storage (KIP-1248, KIP-1254, KIP-405)."""

    @classmethod
    def name(cls) -> str:
        return "tiered_stream"

    def schema(self) -> StructType:
        return spark_schema(self.options.get("includeHeaders", "false").lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(_checked(schema, parse_options(self.options, streaming=False)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            return StreamReader(_checked(schema, parse_options(self.options, streaming=True)))
        except ConfigurationError as error:
            return RefusedStreamReader(error)


def register(spark: SparkSession) -> None:
    """Make `format("tiered_stream")` known to the session; to do it again is no harm.

    Spark looks sources up by itself, once in a driver's life, and gives up for good where its Python process takes
    longer than ten seconds to start (Spark: `DataSourceManager`, `PythonWorkerFactory`).
    """
    spark.dataSource.register(TieredStreamDataSource)


def _checked(schema: StructType, options: Options) -> Options:
    """Refuse a schema of the user's own, as the `kafka` source does."""
    own = spark_schema(options.include_headers)
    if schema != own:
        raise ConfigurationError(f"tiered_stream has a schema of its own, {own.simpleString()}; take .schema(…) away")
    return options


def _read(partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    from tiered_stream.read import read_split

    show_log()
    assert isinstance(partition, SplitPartition)
    addresses = (*options.metrics_addresses, *partition.batch_log)
    yield from read_split(partition.split, replace(options, metrics_addresses=addresses))
    settle_worker()


class BatchReader(DataSourceReader):
    """One batch query."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        from tiered_stream.locate.log_source import open_log_source
        from tiered_stream.plan.batch import plan_batch

        show_log()
        source = open_log_source(self.options)
        try:
            # Without a partition Spark would make one up, and read it.
            return [SplitPartition(split) for split in plan_batch(self.options, source)] or [InputPartition(None)]
        finally:
            source.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.options) if isinstance(partition, SplitPartition) else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._opened: tuple[LogSource, StreamPlanner] | None = None
        self._batch_log: BatchLog | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors need no planner, and its connections cannot travel.
        return {"options": self.options, "_opened": None, "_batch_log": None}

    def _open(self) -> tuple[LogSource, StreamPlanner]:
        if self._opened is None:
            with collection_paused():
                from tiered_stream.locate.log_source import open_log_source
                from tiered_stream.observe.driver_log import BatchLog
                from tiered_stream.plan.stream import StreamPlanner

                show_log()
                source = open_log_source(self.options)
                self._opened = source, StreamPlanner(self.options, source.offset_reader, source.locator)
                self._batch_log = BatchLog()
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return offsets_to_dict(self._open()[1].initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        # Always a limit, so that Spark asks for everything only where it ignores limits (`Trigger.Once`).
        most = self.options.max_offsets_per_trigger
        return ReadMaxRows(_NO_LIMIT if most is None else most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._open()[1].prepare_for_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        # The planner knows the limits, `minOffsetsPerTrigger` too.
        limited = not isinstance(limit, ReadAllAvailable)
        return offsets_to_dict(self._open()[1].next_end(offsets_from_dict(start), limited=limited))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        latest = self._opened[1].latest() if self._opened else None
        return offsets_to_dict(latest) if latest else None

    @property
    def batch_log(self) -> tuple[str, ...]:
        """Where tasks report to the planner."""
        return () if self._batch_log is None else (self._batch_log.address,)

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> list[Split]:
        """What the micro-batch from `start` to `end` reads, cut into tasks."""
        from tiered_stream.plan.splits import splits_for

        log, planner = self._open()
        ranges = planner.ranges(offsets_from_dict(start), offsets_from_dict(end))
        return splits_for(ranges, self.options, log.locator, planner.topic_ids)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [SplitPartition(split, self.batch_log) for split in self.splits(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.options)

    def commit(self, end: dict[str, Any]) -> None:
        if self._batch_log is not None:
            self._batch_log.tell()

    def stop(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
        if self._batch_log is not None:
            self._batch_log.close()


class RefusedStreamReader(DataSourceStreamReader):
    """Raises what is wrong with the options at the first call.

    Were it raised where the reader is made, pyspark's runner would go on to stop the reader that it does not have, and
    bury the reason under an UnboundLocalError of its own.
    """

    def __init__(self, error: ConfigurationError) -> None:
        self._error = error

    def _refuse(self, *_args: Any, **_named: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - Spark's names

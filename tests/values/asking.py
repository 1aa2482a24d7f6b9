"""What the sources make of options: ours, called as Spark calls it, and Spark's own `kafka` source in Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, DataSourceStreamReader

from tests.reading import batch, stream
from tests.rigs.stack.produce import RawProducer
from tests.rigs.stack.rows import Record
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic
from tests.values.cases import RECORD_TIMES, TOPIC
from tiered_stream.errors import TieredStreamError
from tiered_stream.spark.source import TieredStreamDataSource
from tiered_stream.spark.stream_reader import StreamReader

NEVER_ENDS = "never ends"
_PATIENCE_S = 120


def create_topic(stack: TieredStack) -> dict[str, str]:
    """The topic that the cases are about, and how the sources reach its broker."""
    create_tiered_topic(stack.broker, TOPIC, partitions=len(RECORD_TIMES))
    with RawProducer(stack.broker) as producer:
        for partition, times in RECORD_TIMES.items():
            producer.send(TOPIC, [Record(value=b"v", timestamp_ms=time) for time in times], partition)
    return {"kafka.bootstrap.servers": stack.bootstrap_servers}


def our_answer(options: Mapping[str, str], kind: str) -> str:
    """`load` is where Spark asks for the schema: that is all that `load()` calls of a Python source."""
    stage = "load"
    try:
        source = TieredStreamDataSource(CaseInsensitiveDict({"remote.log.locator": "none", **options}))
        schema = source.schema()
        stage = "run"
        rows = _batch_rows(source.reader(schema)) if kind == "batch" else _stream_rows(source.streamReader(schema))
        return f"rows {rows}"
    except TieredStreamError as error:
        return f"{stage} {type(error).__name__}"


def sparks_answer(spark: SparkSession, options: Mapping[str, str], kind: str) -> str:
    stage = "load"
    try:
        frame = (batch if kind == "batch" else stream)(spark, options, "kafka")
        stage = "run"
        if kind == "batch":
            return f"rows {len(frame.select('offset').collect())}"
        query = frame.writeStream.format("noop").trigger(availableNow=True).start()
        if not query.awaitTermination(_PATIENCE_S):
            query.stop()
            return NEVER_ENDS
        return f"rows {sum(progress.numInputRows for progress in query.recentProgress)}"
    except (PySparkException, Py4JJavaError) as error:
        return f"{stage} {type(error).__name__}"


def _batch_rows(reader: DataSourceReader) -> int:
    batches: Iterator[Any] = (rows for partition in reader.partitions() for rows in reader.read(partition))
    return sum(rows.num_rows for rows in batches)


def _stream_rows(reader: DataSourceStreamReader) -> int:
    """By the calls of a run with `Trigger.AvailableNow`."""
    rows = idle = 0
    start = reader.initialOffset()
    assert isinstance(reader, StreamReader)
    try:
        reader.prepareForTriggerAvailableNow()
        while idle < 2:  # an empty batch may be the first one
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            idle = idle + 1 if end == start else 0
            rows += sum(each.num_rows for part in reader.partitions(start, end) for each in reader.read(part))
            start = end
    finally:
        reader.stop()
    return rows

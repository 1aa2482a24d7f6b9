"""Topics of the stack read with Spark, in the form in which a plain consumer returns them (`stack.consume`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession

from tests.rigs.stack.produce import produce_batch, produce_segments
from tests.rigs.stack.rows import Record, Row
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, wait_until_tiered
from tests.tier.topics import write_segments
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.model import TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.options.offset_json import offsets_from_dict

FIRST_TIMESTAMP_MS = 1_700_000_000_000
SEGMENT_STEP_MS = 10_000
BY_STEP = {"segment.ms": "1000"}
"""For a topic's `config`: `segments` rolls with each step of the timestamps."""


def options(stack: TieredStack, topic: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Everything in the topic from its start, headers too; `given` comes on top."""
    reading = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    return {**stack.options(), **reading, **(given or {})}


def batch(spark: SparkSession, given: Mapping[str, str], source: str = "tiered_stream") -> DataFrame:
    return spark.read.format(source).options(**given).load()


def stream(spark: SparkSession, given: Mapping[str, str], source: str = "tiered_stream") -> DataFrame:
    return spark.readStream.format(source).options(**given).load()


def rows(frame: DataFrame) -> list[Row]:
    """The rows in Spark's order; headers that are null become the empty tuple."""
    columns = ("partition", "offset", "unix_millis(timestamp)", "timestampType", "key", "value", "headers")
    return [_row(*found) for found in frame.selectExpr(*columns).collect()]


def _row(
    partition: int, offset: int, timestamp: int, kind: int, key: bytes | None, value: bytes | None, headers: Any
) -> Row:
    pairs = tuple((header["key"], _bytes(header["value"])) for header in headers or ())
    return Row(partition, offset, timestamp, kind, _bytes(key), _bytes(value), pairs)


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def split_rows(frame: DataFrame) -> list[list[tuple[int, int]]]:
    """By task, in order: (partition, offset) of its rows, as it gave them."""
    tasks: dict[int, list[tuple[int, int]]] = {}
    for task, partition, offset in frame.selectExpr("spark_partition_id()", "partition", "offset").collect():
        tasks.setdefault(task, []).append((partition, offset))
    return [tasks[task] for task in sorted(tasks)]


def run_available_now(frame: DataFrame, table: Path, checkpoint: Path) -> list[Any]:
    """Land all there is now in a Delta table; the progress of each micro-batch that had rows."""
    writer = frame.writeStream.format("delta").option("checkpointLocation", str(checkpoint))
    return _finished(writer.trigger(availableNow=True).start(str(table)))


def run_in_memory(frame: DataFrame, name: str) -> list[Any]:
    """As `run_available_now`, into a table in memory, which cannot go on later."""
    return _finished(frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start())


def _finished(query: Any) -> list[Any]:
    query.awaitTermination()
    return [progress for progress in query.recentProgress if progress.numInputRows]


def end_offsets(progress: Any) -> dict[int, int]:
    """By partition, where a micro-batch over one topic ended (exclusive)."""
    ends = offsets_from_dict(orjson.loads(progress.sources[0].endOffset))
    return {partition.partition: offset for partition, offset in ends.items()}


def records(count: int, first: int = 0, value_bytes: int = 20, timestamp_ms: int = FIRST_TIMESTAMP_MS) -> list[Record]:
    """Records that tell themselves apart."""
    return [
        Record(b"%d" % n, (b"%d " % n).ljust(value_bytes, b"x"), (), timestamp_ms) for n in range(first, first + count)
    ]


def fill(stack: TieredStack, topic: str, *partitions: Sequence[Record]) -> None:
    """Create the topic with these records in each partition. They are in its active segments, and not tiered."""
    create_tiered_topic(stack.broker, topic, partitions=len(partitions))
    for number, contents in enumerate(partitions):
        produce_batch(stack.broker, topic, contents, number)


def tier_segments(stack: TieredStack, topic: str, sizes: Iterable[int], partitions: int = 1) -> int:
    """Create the topic with a tiered segment of each size (in records) in each partition, and one record after them.

    Returns:
        how many records are in a partition.
    """
    count = fill_segments(stack, topic, sizes, partitions)
    wait_until_tiered(stack.broker, topic)
    return count


def fill_segments(stack: TieredStack, topic: str, sizes: Iterable[int], partitions: int = 1) -> int:
    """As `tier_segments`, without waiting until the segments are tiered."""
    create_tiered_topic(stack.broker, topic, partitions, config=BY_STEP)
    contents = list(_segments([*sizes, 1]))
    for partition in range(partitions):
        produce_segments(stack.broker, topic, contents, partition)
    return sum(map(len, contents))


def build_segments(bucket: Path, topic: str, sizes: Iterable[int], partitions: int = 1) -> int:
    """As `tier_segments`, in an archive and without a broker; the one record is in a segment of its own."""
    contents = list(_segments([*sizes, 1]))
    write_segments(bucket, topic, [contents] * partitions)
    return sum(map(len, contents))


def _segments(sizes: Sequence[int]) -> Iterable[list[Record]]:
    first = 0
    for number, size in enumerate(sizes):
        yield records(size, first, timestamp_ms=FIRST_TIMESTAMP_MS + number * SEGMENT_STEP_MS)
        first += size


def log_end(client: BrokerClient, topic: str) -> int:
    """Return where the log of the topic's first partition ends."""
    where = TopicPartition(topic, 0)
    return BrokerOffsetReader(client, IsolationLevel.READ_COMMITTED).latest([where])[where]


def log_end_by(login: Mapping[str, str], topic: str) -> int:
    """Return `log_end` as a client with this login sees it."""
    with BrokerClient({"default.api.timeout.ms": "60000", **login}) as client:
        return log_end(client, topic)

"""Lag of a streaming query behind its topics: unread offsets, how many of them are tiered, and the age in seconds.

The query's progress is the last committed micro-batch in its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import orjson
import pyarrow as pa
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiered_stream.delta.checkpoint.folder_without_spark import StoredFolder
from tiered_stream.delta.checkpoint.spark_checkpoint import SparkCheckpoint
from tiered_stream.delta.settings.ingest_settings import BUCKET_SCHEMES, TableStorage
from tiered_stream.delta.write.file_systems import path_uri
from tiered_stream.errors import ConfigurationError, StorageError, TieredStreamError
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import Split, TopicPartition
from tiered_stream.options.offset_ranges import ranges_between
from tiered_stream.options.parsing import FetchOptions, Options
from tiered_stream.options.positions import show_time
from tiered_stream.plan.offset_lookup import OffsetLookup
from tiered_stream.plan.read_cost import PartitionCost, broker_read_lines, total_costs
from tiered_stream.plan.splits import splits_for
from tiered_stream.read.split_reader import read_split


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """Last committed micro-batch of a streaming query; `offsets` has the next offset to read of each partition."""

    batch_id: int
    offsets: dict[TopicPartition, int]


def committed_batch(checkpoint: str, storage: TableStorage) -> CommittedBatch:
    """Return the last committed micro-batch of the streaming query with this checkpoint.

    Args:
        checkpoint: path of the checkpoint's folder, such as `/folder` or `s3a://bucket/prefix`. A path without a scheme
            is in the default file system of HADOOP_CONF_DIR.
        storage: settings with which object stores are reached.

    Raises:
        ConfigurationError: the folder does not exist, or is neither local nor in HDFS nor in a supported object store.
            Or it has no committed micro-batch. Or the query reads no Kafka topic.
        StorageError: the folder cannot be read.
        CorruptDataError: a file of the checkpoint is missing or malformed.
        UnsupportedDataError: a file has a version that is not supported.
    """
    uri = path_uri(checkpoint)
    if urlsplit(uri).scheme not in ("file", *BUCKET_SCHEMES):
        raise ConfigurationError(
            f"the checkpoint {checkpoint}: it has to be in a local folder, in S3 (s3a://…), in Azure Blob Storage "
            "(abfss://…), in Google Cloud Storage (gs://…) or in HDFS (hdfs://…)"
        )
    try:
        committed = SparkCheckpoint(StoredFolder(checkpoint, uri, storage)).committed()
    except OSError as error:
        fix = ". How to reach it: ingest.storage.*, or --properties-file with Spark's own settings"
        raise StorageError(
            f"the checkpoint {checkpoint} cannot be read: {error}{fix if '://' in checkpoint else ''}"
        ) from error
    if committed is None:
        raise ConfigurationError(
            f"the checkpoint {checkpoint}: no micro-batch is committed there; is it a query's checkpointLocation?"
        )
    batch, ends = committed
    if not ends.positions:
        raise ConfigurationError(f"the checkpoint {checkpoint} is of a query that reads no Kafka topic")
    return CommittedBatch(batch, ends.positions)


_AT_ONCE = 16
_NEXT_RECORD_BYTES = 1 << 16
"""Size in bytes of a request for the next record of a partition. It is small, because one record is enough."""


@dataclass(frozen=True, slots=True)
class NextRecord:
    """Next record that a query will read in a partition. `timestamp_ms` is its timestamp in ms since the epoch.

    If the record could not be read, `timestamp_ms` is None and `fault` is the error's text. If there is no next record,
    both are None.
    """

    timestamp_ms: int | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of a streaming query in one partition.

    `committed` is the next offset to read, from the query's checkpoint. It is None if the partition was added after the
    last micro-batch; then the query reads the partition from the start of its log. `end` is the offset (exclusive) up
    to which the query can read. Under read_committed, this is the last stable offset, otherwise the high watermark.
    `unread` is the cost of reading up to `end`: numbers of offsets and bytes. `next` is the next record to read.
    `now_ms` is the time at which the lag was measured, in ms since the epoch.
    """

    partition: TopicPartition
    committed: int | None
    log_start: int
    end: int
    high_watermark: int
    unread: PartitionCost
    next: NextRecord
    now_ms: int

    @property
    def offsets(self) -> int:
        """Number of offsets that the query has still to read in this partition."""
        return self.unread.offsets

    @property
    def tiered(self) -> int:
        """Number of unread offsets that the query will read from storage."""
        return self.offsets - self.unread.broker_offsets - self.unread.skipped

    @property
    def lost(self) -> int:
        """Number of offsets that retention has deleted before the query read them; 0 if `committed` is None."""
        return 0 if self.committed is None else max(0, self.log_start - self.committed)

    @property
    def seconds(self) -> float | None:
        """Age of the next record at `now_ms`, in seconds; 0 if no offset is unread; None if no record could be read."""
        if not self.offsets:
            return 0.0
        return None if self.next.timestamp_ms is None else max(0, self.now_ms - self.next.timestamp_ms) / 1000

    def figures(self) -> dict[str, Any]:
        """Return the partition's lag as a dictionary for JSON."""
        return {
            **self.partition._asdict(),
            "committed_offset": self.committed,
            "log_start_offset": self.log_start,
            "end_offset": self.end,
            "high_watermark": self.high_watermark,
            "lag_offsets": self.offsets,
            "lag_seconds": self.seconds,
            "next_timestamp_ms": self.next.timestamp_ms,
            "tiered_offsets": self.tiered,
            "tiered_bytes": self.unread.storage_bytes,
            "broker_reason": self.unread.broker_reason,
            "lost_offsets": self.lost,
            "fault": self.next.fault,
        }


@dataclass(frozen=True, slots=True)
class LagReport:
    """Lag of a streaming query after its last committed micro-batch, whose id is `batch_id`.

    `checkpoint` is the path of the query's checkpoint. `isolation` is the isolation level with which the lag was
    measured. `gone` are partitions in the checkpoint that the options choose, but that do not exist any more.
    """

    checkpoint: str
    batch_id: int
    isolation: str
    partitions: tuple[PartitionLag, ...]
    gone: tuple[TopicPartition, ...]

    @property
    def seconds(self) -> float | None:
        """Largest lag of all partitions in seconds; None if the lag of any partition is unknown.

        Without partitions, it is 0.
        """
        known = [lag.seconds for lag in self.partitions if lag.seconds is not None]
        return max(known, default=0.0) if len(known) == len(self.partitions) else None

    def total(self, name: str) -> int:
        """Return the sum over all partitions of the attribute of `PartitionLag` with this name."""
        return sum(getattr(lag, name) for lag in self.partitions)

    @property
    def tiered_bytes(self) -> int:
        """Number of bytes of the log that the query will read from storage for its unread offsets."""
        return sum(lag.unread.storage_bytes for lag in self.partitions)

    @property
    def faults(self) -> list[str]:
        """Errors of partitions whose next record could not be read, one line for each partition."""
        return [f"{lag.partition}: {lag.next.fault}" for lag in self.partitions if lag.next.fault]

    def to_json(self) -> str:
        """Return the whole report as JSON."""
        figures = {
            "checkpoint": self.checkpoint,
            "batch_id": self.batch_id,
            "isolation_level": self.isolation,
            "partitions": [lag.figures() for lag in self.partitions],
            "gone": [partition._asdict() for partition in self.gone],
            "total": {
                "lag_offsets": self.total("offsets"),
                "lag_seconds": self.seconds,
                "tiered_offsets": self.total("tiered"),
                "tiered_bytes": self.tiered_bytes,
                "lost_offsets": self.total("lost"),
            },
        }
        return orjson.dumps(figures, option=orjson.OPT_INDENT_2).decode()


def lag_of(checkpoint: str, batch: CommittedBatch, options: Options, now_ms: int) -> LagReport:
    """Return the lag of a query after the micro-batch `batch`, in the partitions that the options choose.

    The next record of each partition is read, because its timestamp gives the lag in seconds. If the record cannot be
    read, the error is in the report.

    Args:
        checkpoint: path of the query's checkpoint, which is only shown in the report.
        batch: last committed micro-batch of the query.
        options: options of the query's source.
        now_ms: the current time in milliseconds since the epoch.

    Raises:
        UnknownTopicError: a topic does not exist.
        BrokerError, StorageError: offsets or segments cannot be looked up.
    """
    with closing(open_log_source(options)) as source:
        reader, assignment = source.offset_reader, OffsetLookup.of(options, source.offset_reader).assignment()
        partitions = sorted(assignment.partitions)
        starts, ends = reader.earliest(partitions), reader.latest(partitions)
        watermarks = reader.high_watermarks(partitions)
        first_unread = {partition: max(start, batch.offsets.get(partition, 0)) for partition, start in starts.items()}
        ranges = ranges_between(first_unread, ends)
        splits = splits_for(ranges, options, source.locator, assignment.topic_ids)
        costs = total_costs(ranges, splits, options, source)
    following = _next_records(partitions, splits, options)
    lags = tuple(
        PartitionLag(
            partition, batch.offsets.get(partition), starts[partition], ends[partition], watermarks[partition], cost,
            following[partition], now_ms,
        )
        for partition, cost in zip(partitions, costs, strict=True)
    )  # fmt: skip
    missing = batch.offsets.keys() - assignment.partitions
    gone = tuple(sorted(filter(options.subscription.chooses, missing)))
    return LagReport(checkpoint, batch.batch_id, str(options.isolation_level), lags, gone)


def _next_records(
    partitions: Sequence[TopicPartition], splits: Sequence[Split], options: Options
) -> dict[TopicPartition, NextRecord]:
    """Read the first record of each partition's splits, and return the records by partition.

    Args:
        splits: splits of the unread offsets of all partitions, in offset order.
    """
    by_partition: dict[TopicPartition, list[Split]] = {partition: [] for partition in partitions}
    for split in splits:
        by_partition[split.topic_partition].append(split)
    small = FetchOptions(request_bytes=_NEXT_RECORD_BYTES, in_flight=1, memory_bytes=_NEXT_RECORD_BYTES)
    kafka = {**options.kafka, "max.partition.fetch.bytes": str(_NEXT_RECORD_BYTES)}
    small_reads = replace(
        options, fetch=small, kafka=kafka, report_addresses=(), max_bytes_per_second=None, columns=None
    )
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="next-records") as executor:
        records = executor.map(partial(_next_record, options=small_reads), by_partition.values())
        return dict(zip(by_partition, records, strict=True))


def _next_record(splits: Sequence[Split], options: Options) -> NextRecord:
    """Read the first record of one partition's splits, and return it; an error of this package becomes its `fault`."""
    try:
        for split in splits:
            with closing(read_split(split, options)) as batches:
                for batch in batches:
                    micros: int = batch.column("timestamp").cast(pa.int64())[0].as_py()
                    return NextRecord(micros // 1000)
    except TieredStreamError as error:
        return NextRecord(fault=str(error))
    return NextRecord()


def render_lag(report: LagReport) -> RenderableType:
    """Render the lag report for a terminal: a table of the partitions, and lines about lost offsets and errors."""
    table = Table("partition", title=f"{report.checkpoint}, after micro-batch {report.batch_id}")
    for column in ("committed", "log end", "lag", "seconds", "next record of", "tiered", "MiB"):
        table.add_column(column, justify="right")
    for lag in report.partitions:
        committed = "new" if lag.committed is None else f"{lag.committed:,}"
        timestamp_ms = lag.next.timestamp_ms
        mib = f"{lag.unread.storage_bytes / (1 << 20):,.1f}"
        table.add_row(
            str(lag.partition), committed, f"{lag.end:,}", f"{lag.offsets:,}", _seconds(lag.seconds),
            "" if timestamp_ms is None else show_time(timestamp_ms), f"{lag.tiered:,}", mib,
        )  # fmt: skip
    table.add_section()
    sums = f"{report.total('offsets'):,}", _seconds(report.seconds), "", f"{report.total('tiered'):,}"
    table.add_row("all", "", "", *sums, f"{report.tiered_bytes / (1 << 20):,.1f}")
    return Group(table, *(Text(line, style) for line, style in _lines(report)))


def _seconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds:,.1f}"


def _lines(report: LagReport) -> Iterator[tuple[str, str]]:
    for lag in report.partitions:
        if lag.lost:
            yield (
                f"{lag.partition}: {lag.lost:,} offsets are gone that were not read: it begins at {lag.log_start:,}",
                "red",
            )
        if lag.committed is not None and lag.committed > lag.high_watermark:
            yield (
                f"{lag.partition}: the query has read up to offset {lag.committed:,}, but the log ends at "
                f"{lag.high_watermark:,}: the topic was created again, "
                "the log has lost records, or a new leader has just been elected",
                "red",
            )
        if lag.high_watermark > lag.end:
            yield f"{lag.partition}: a transaction is open, the log goes on to {lag.high_watermark:,}", ""
    yield from ((line, "") for line in broker_read_lines(lag.unread for lag in report.partitions))
    for partition in report.gone:
        yield f"{partition} is in the checkpoint, and does not exist any more", "red"
    yield from ((fault, "red") for fault in report.faults)

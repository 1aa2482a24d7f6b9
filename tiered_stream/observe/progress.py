"""Reports on finished micro-batches, with their rows and their cost, as lines for people or as JSON."""

from __future__ import annotations

import time
from ast import literal_eval
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson

from tiered_stream.model import TopicPartition
from tiered_stream.observe.driver_log import describe_lag, offset_lag
from tiered_stream.observe.landed_rows import LandedRows, describe_rows, landed_in
from tiered_stream.observe.read_metrics import OBSERVATION, ReadMetrics, describe
from tiered_stream.options.offset_json import offsets_from_dict, offsets_to_dict

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Report on a finished micro-batch.

    `query` is the query's name, or its id if it has no name. `timestamp` is the start of the trigger, as Spark's text.
    `seconds` is the duration of the whole trigger. `cost` are the counters of the tasks. `lag` is the number of offsets
    from the batch's end to the log's end, by partition, or None if no source reports these offsets. `tables` are the
    rows and dead letters that the batch has committed, by table, or None if they are unknown.
    """

    query: str
    query_id: str
    batch_id: int
    timestamp: str
    rows: int
    seconds: float
    rows_per_second: float
    cost: ReadMetrics
    lag: Mapping[TopicPartition, int] | None
    tables: tuple[LandedRows, ...] | None = None

    @property
    def lag_seconds(self) -> float | None:
        """Age of the newest record that was read, in seconds; 0 if no offset is left to read.

        It is None if the lag in offsets is unknown, or if offsets are left and no record was read.
        """
        if self.lag is None or not any(self.lag.values()):
            return None if self.lag is None else 0.0
        newest = self.cost.record_timestamp_max
        return max(0.0, time.time() - newest / 1000) if newest else None


def finished_batch(progress: StreamingQueryProgress, counted: ReadMetrics, *, reports_lag: bool = True) -> MicroBatch:
    """Return the report on a finished micro-batch, from Spark's progress and the counters of its tasks.

    In the direct lane, where tasks write the table's files, counters and rows come from Spark's observed metrics, which
    are exact. Otherwise the counters are `counted`: the sum of the datagrams that have arrived from the tasks. If
    `reports_lag` is false, the report has no lag; this is needed if a server of Spark Connect is older than its client.
    """
    observed = progress.observedMetrics.get(OBSERVATION)
    cost, rows, rate = counted, progress.numInputRows, progress.processedRowsPerSecond
    if observed is not None:  # direct lane, in which Spark's own numbers count files
        cost = ReadMetrics(**{name: type(zero)(observed[name] or 0) for name, zero in asdict(ReadMetrics()).items()})
        rows, rate = cost.records, cost.records * 1000 / max(1, progress.durationMs.get("triggerExecution", 0))
    return MicroBatch(
        query=progress.name or str(progress.id),
        query_id=str(progress.id),
        batch_id=progress.batchId,
        timestamp=progress.timestamp,
        rows=rows,
        seconds=progress.durationMs.get("triggerExecution", 0) / 1000,
        rows_per_second=rate,
        cost=cost,
        lag=_lag(progress) if reports_lag else None,
        tables=landed_in((str(progress.id), progress.batchId)),
    )


def describe_batch(batch: MicroBatch) -> str:
    """Format the report on a micro-batch as one line for people: rows, dead letters, rates, bytes, and lag."""
    lag = "" if batch.lag is None else f", {describe_lag(batch.lag)}"
    seconds = f", {batch.lag_seconds:,.0f} s" if batch.lag_seconds else ""
    return (
        f"batch {batch.batch_id}: {describe_rows(batch.rows, batch.tables)}, {batch.rows_per_second:,.0f} rows/s, "
        f"{describe(batch.cost)}{lag}{seconds}"
    )


def as_json(batch: MicroBatch) -> bytes:
    """Format the report on a micro-batch as one line of JSON; sizes are in bytes, durations in seconds."""
    cost = batch.cost
    return orjson.dumps(
        {
            "event": "micro-batch",
            "query": batch.query,
            "query_id": batch.query_id,
            "batch_id": batch.batch_id,
            "timestamp": batch.timestamp,
            "seconds": batch.seconds,
            "rows": batch.rows,
            "landed_rows": None if batch.tables is None else sum(table.rows for table in batch.tables),
            "dead_letters": None if batch.tables is None else sum(table.dead_letters for table in batch.tables),
            "tables": None if batch.tables is None else [asdict(table) for table in batch.tables],
            "rows_per_second": round(batch.rows_per_second, 1),
            "storage_bytes": cost.remote_fetch_bytes,
            "storage_requests": cost.remote_fetch_requests,
            "storage_seconds_p50": cost.latency_quantile(0.5),
            "storage_seconds_p99": cost.latency_quantile(0.99),
            "storage_seconds_max": cost.remote_fetch_latency_max,
            "storage_errors": cost.remote_fetch_errors,
            "broker_bytes": cost.broker_fetch_bytes,
            "broker_requests": cost.broker_fetch_requests,
            "decoded_rows_per_second": round(cost.records / cost.decode_seconds, 1) if cost.decode_seconds else None,
            "fallbacks": cost.fallbacks,
            "lag_seconds": batch.lag_seconds,
            "lag_offsets": None if batch.lag is None else sum(batch.lag.values()),
            "lag": None if batch.lag is None else offsets_to_dict(batch.lag),
        }
    )


def _lag(progress: StreamingQueryProgress) -> dict[TopicPartition, int] | None:
    """Return the lag in offsets by partition, added up over all of this package's sources that report offsets.

    The result is None if no source reports its end and latest offsets. Before Spark 4.2, a Python source cannot report
    its latest offset, and Spark's progress repeats the end of the micro-batch there.
    """
    from pyspark.sql.datasource import DataSourceStreamReader  # late, because commands without Spark import this module

    if not hasattr(DataSourceStreamReader, "reportLatestOffset"):
        return None
    reported = [
        (end, latest)
        for source in progress.sources
        if (end := end_offsets(source)) is not None and (latest := source_offsets(source.latestOffset)) is not None
    ]
    lag: Counter[TopicPartition] = Counter()
    for end, latest in reported:
        lag.update(offset_lag(end, latest))
    return dict(lag) if reported else None


def end_offsets(source: SourceProgress) -> dict[TopicPartition, int] | None:
    """Return a source's end offsets by partition, or None if it reports none or is not a source of this package.

    Spark describes a Python source by the name of Spark's own class, not by the source's name. So the form of the
    offsets counts, too.
    """
    with suppress(ValueError, AttributeError):  # offsets of another source in Python
        if "PythonMicroBatchStream" in source.description:
            return source_offsets(source.endOffset)
    return None


def source_offsets(text: str | Mapping[str, Any] | None) -> dict[TopicPartition, int] | None:
    """Return the offsets that a source reports in Spark's progress, by partition, or None if it reports no offsets.

    `text` is JSON with offsets by topic and partition, or the text of a Python dictionary with these offsets, which
    pyspark 4.0 and 4.1 give in `lastProgress`.

    Raises:
        ValueError: the text has neither form.
    """
    if not text or text in ("null", "None"):
        return None
    if not isinstance(text, str):
        return offsets_from_dict(text)
    return offsets_from_dict(literal_eval(text) if text.startswith("{'") else orjson.loads(text))

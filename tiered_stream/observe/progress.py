"""What a finished micro-batch did and cost, as a line for people or as JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tiered_stream.model import TopicPartition
from tiered_stream.observe.behind import behind, describe_lag
from tiered_stream.observe.metrics import OBSERVATION, ReadMetrics, describe
from tiered_stream.options.offset_json import offsets_from_dict, offsets_to_dict

FALLBACKS = "fallbacks_"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """`seconds` is the whole trigger's, `lag` the offsets between the batch's end and the log's end, by partition;
    None where the source does not tell.
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

    @property
    def lag_seconds(self) -> float | None:
        """The age of the newest record that was read, where some are left to read; 0 where none is."""
        if self.lag is None or not any(self.lag.values()):
            return None if self.lag is None else 0.0
        newest = self.cost.record_timestamp_max
        return max(0.0, time.time() - newest / 1000) if newest else None

    @property
    def fallbacks(self) -> dict[str, int]:
        """How many splits were left to the brokers, by reason."""
        counts = {name: count for name, count in asdict(self.cost).items() if name.startswith(FALLBACKS)}
        return {name.removeprefix(FALLBACKS): count for name, count in counts.items() if count}


def micro_batch(progress: StreamingQueryProgress, cost: ReadMetrics) -> MicroBatch:
    """Of what Spark tells of it, and of what its tasks have counted."""
    rows, rate = _rows(progress)
    return MicroBatch(
        query=progress.name or str(progress.id),
        query_id=str(progress.id),
        batch_id=progress.batchId,
        timestamp=progress.timestamp,
        rows=rows,
        seconds=progress.durationMs.get("triggerExecution", 0) / 1000,
        rows_per_second=rate,
        cost=cost,
        lag=_lag(progress),
    )


def cost_of(progress: StreamingQueryProgress, counted: ReadMetrics) -> ReadMetrics:
    """What the batch cost: as Spark has observed it in the direct lane, else as its tasks' datagrams said (`counted`).

    A datagram may be lost; what is observed is the batch's own.
    """
    observed = progress.observedMetrics.get(OBSERVATION)
    if observed is None:
        return counted
    return ReadMetrics(**{name: type(zero)(observed[name] or 0) for name, zero in asdict(ReadMetrics()).items()})


def describe_progress(progress: StreamingQueryProgress, metrics: ReadMetrics) -> str:
    """What the terminal shows of a finished micro-batch; `metrics` is what it cost."""
    return describe_batch(micro_batch(progress, metrics))


def describe_batch(batch: MicroBatch) -> str:
    """One line for people."""
    lag = "" if batch.lag is None else f", {describe_lag(batch.lag)}"
    seconds = f", {batch.lag_seconds:,.0f} s" if batch.lag_seconds else ""
    return (
        f"batch {batch.batch_id}: {batch.rows:,} rows, {batch.rows_per_second:,.0f} rows/s, "
        f"{describe(batch.cost)}{lag}{seconds}"
    )


def as_json(batch: MicroBatch) -> bytes:
    """One line for programs; sizes in bytes, durations in seconds."""
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
            "fallbacks": batch.fallbacks,
            "lag_seconds": batch.lag_seconds,
            "lag_offsets": None if batch.lag is None else sum(batch.lag.values()),
            "lag": None if batch.lag is None else offsets_to_dict(batch.lag),
        }
    )


def _rows(progress: StreamingQueryProgress) -> tuple[int, float]:
    """Rows, and rows a second: in the direct lane Spark sees only files, and the rows are observed."""
    observed = progress.observedMetrics.get(OBSERVATION)
    if observed is None:
        return progress.numInputRows, progress.processedRowsPerSecond
    rows = int(observed["records"] or 0)
    return rows, rows * 1000 / max(1, progress.durationMs.get("triggerExecution", 0))


def _lag(progress: StreamingQueryProgress) -> dict[TopicPartition, int] | None:
    """Over all sources that tell both ends; None where none does."""
    told = [
        (end, latest)
        for source in progress.sources
        if (end := source_offsets(source.endOffset)) is not None
        and (latest := source_offsets(source.latestOffset)) is not None
    ]
    lag: Counter[TopicPartition] = Counter()
    for end, latest in told:
        lag.update(behind(end, latest))
    return dict(lag) if told else None


def source_offsets(text: str | Mapping[str, Any] | None) -> dict[TopicPartition, int] | None:
    """The offsets that a source's progress tells; None where it tells none."""
    if not text or text == "null":
        return None
    return offsets_from_dict(orjson.loads(text) if isinstance(text, str) else text)

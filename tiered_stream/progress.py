"""One line of progress for each micro-batch: rows, rows a second, bytes by where they came from, lag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tiered_stream.metrics import ReadMetrics
from tiered_stream.offsets import offsets_from_dict


def describe_progress(progress: StreamingQueryProgress, metrics: ReadMetrics) -> str:
    """What the terminal shows of a finished micro-batch; `metrics` is what it cost."""
    lag = _lag(progress)
    return (
        f"batch {progress.batchId}: {progress.numInputRows:,} rows, "
        f"{progress.processedRowsPerSecond:,.0f} rows/s, {describe_bytes(metrics)}"
        + (f", lag {lag:,} offsets" if lag is not None else "")
    )


def describe_bytes(metrics: ReadMetrics) -> str:
    """The bytes and where they came from, fallbacks when there were any."""
    text = f"{_mib(metrics.remote_fetch_bytes)} from storage, {_mib(metrics.broker_fetch_bytes)} from brokers"
    if metrics.remote_fetch_fallbacks:
        text += f", {metrics.remote_fetch_fallbacks} splits fell back to brokers"
    return text


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def _lag(progress: StreamingQueryProgress) -> int | None:
    """Offsets between the batch's end and the log's end, over all sources that tell both."""
    lags = [
        sum(latest[partition] - end.get(partition, 0) for partition in latest)
        for source in progress.sources
        if (end := _offsets(source.endOffset)) is not None and (latest := _offsets(source.latestOffset)) is not None
    ]
    return sum(lags) if lags else None


def _offsets(text: str | Mapping[str, Any] | None) -> dict[Any, int] | None:
    if not text or text == "null":
        return None
    return offsets_from_dict(orjson.loads(text) if isinstance(text, str) else text)

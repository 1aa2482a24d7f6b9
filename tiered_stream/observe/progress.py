"""One line of progress for each micro-batch: rows, rows a second, bytes by where they came from, lag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tiered_stream.model import TopicPartition
from tiered_stream.observe.metrics import OBSERVATION, ReadMetrics, describe
from tiered_stream.options.offset_json import offsets_from_dict


def describe_progress(progress: StreamingQueryProgress, metrics: ReadMetrics) -> str:
    """What the terminal shows of a finished micro-batch; `metrics` is what it cost."""
    lag = _lag(progress)
    rows, rate = _rows(progress)
    return f"batch {progress.batchId}: {rows:,} rows, {rate:,.0f} rows/s, {describe(metrics)}" + (
        f", lag {lag:,} offsets" if lag is not None else ""
    )


def _rows(progress: StreamingQueryProgress) -> tuple[int, float]:
    """Rows, and rows a second: in the direct lane Spark sees only files, and the rows are observed."""
    observed = progress.observedMetrics.get(OBSERVATION)
    if observed is None:
        return progress.numInputRows, progress.processedRowsPerSecond
    rows = int(observed["records"] or 0)
    return rows, rows * 1000 / max(1, progress.durationMs.get("triggerExecution", 0))


def _lag(progress: StreamingQueryProgress) -> int | None:
    """Offsets between the batch's end and the log's end, over all sources that tell both."""
    lags = [
        sum(latest[partition] - end.get(partition, 0) for partition in latest)
        for source in progress.sources
        if (end := source_offsets(source.endOffset)) is not None
        and (latest := source_offsets(source.latestOffset)) is not None
    ]
    return sum(lags) if lags else None


def source_offsets(text: str | Mapping[str, Any] | None) -> dict[TopicPartition, int] | None:
    """The offsets that a source's progress tells; None where it tells none."""
    if not text or text == "null":
        return None
    return offsets_from_dict(orjson.loads(text) if isinstance(text, str) else text)

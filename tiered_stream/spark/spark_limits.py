"""Stream reader for a Spark that passes the start and a limit of each micro-batch, from version 4.2 on."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tiered_stream.spark.planned_stream import PlannedStream

_NO_LIMIT = 2**63 - 1


class StreamWithSparkLimits(PlannedStream, SupportsTriggerAvailableNow):
    """Stream reader to which Spark passes the start of each micro-batch, and whether a run is one of AvailableNow."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        # There is always a limit, so that Spark asks for all available data only if it ignores limits (`Trigger.Once`).
        limit = self.options.max_offsets_per_trigger
        return ReadMaxRows(_NO_LIMIT if limit is None else limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self.open().planner.prepare_for_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self.next_end(start, limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        latest = self.opened.planner.latest() if self.opened else None
        return self.offsets.to_dict(latest) if latest else None

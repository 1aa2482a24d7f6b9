"""Stream reader for a Spark that only asks for the latest offset, as versions 4.0 and 4.1 do.

Such a Spark passes neither the start of a micro-batch nor a limit, so this reader keeps the start itself. The start is
the end of the last planned micro-batch. After a restart, it is the latest offset in the checkpoint. Before any other
call, Spark passes this offset to `partitions`, as both ends of an empty range (Spark:
`PythonMicroBatchStream.setLatestSeenOffset`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiered_stream.errors import ConfigurationError
from tiered_stream.options.parsing import Options
from tiered_stream.spark.planned_stream import PlannedStream

if TYPE_CHECKING:
    from tiered_stream.model import Split

WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class StreamWithOwnLimits(PlannedStream):
    """Stream reader that applies the limits of a micro-batch in `latestOffset`.

    Such a Spark gives a run with `Trigger.AvailableNow` one micro-batch, up to the offsets that it gets first. So a
    query with limits ends after one limited micro-batch. `land` and the jobs run another trigger, with the option
    `remote.available.now`, and stop the query at its end.

    With the setting `WRAPPER`, such a Spark asks for the end of a run before it passes the checkpoint's offset. Then
    each run would be planned from the initial offsets. Spark asks once more before it writes the first end into the
    offset log (Spark: `AvailableNowDataStreamWrapper`). So calls in that order are refused.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._planned_end: dict[str, Any] | None = None
        self._is_asked = False
        """True from the first call of `latestOffset` to the first call of `partitions`."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_planned_end": None}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # noqa: N802 - Spark's name and arguments
        if self._is_asked:
            raise _wrapped()
        self._is_asked = self._planned_end is None
        start = self.initialOffset() if self._planned_end is None else self._planned_end
        return self.next_end(start, limited=True)

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> list[Split]:
        is_checkpoint = self._planned_end is None and start == end
        if is_checkpoint and self._is_asked:
            raise _wrapped()
        self._planned_end, self._is_asked = end, False
        return [] if is_checkpoint else super().splits(start, end)


def _wrapped() -> ConfigurationError:
    return ConfigurationError(
        f"{WRAPPER} is true: with it, this Spark plans each run from the start of the stream, whatever the checkpoint "
        "has. Set it to false. To read all that is there, run land or the job, or start the query again until nothing "
        "is new"
    )

"""Stream reader of the source, for the version of Spark that is installed.

A newer Spark (4.2) passes the start and a limit of each micro-batch (`StreamWithSparkLimits`). Another Spark only asks
for the latest offset (`StreamWithOwnLimits`). The abilities of Spark are looked up in its modules, not by its version:
platforms add features to older versions. Only a client of Spark Connect asks for the version, because the server has
other modules than the client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from tiered_stream.errors import ConfigurationError
from tiered_stream.observe.driver_log import offset_lag
from tiered_stream.options.offset_json import LastOffsets
from tiered_stream.options.parsing import Options
from tiered_stream.options.settings_files import naming_lines
from tiered_stream.process.heap_and_gc import collect_old_rarely
from tiered_stream.process.logs import await_reader, show_log
from tiered_stream.spark.split_partition import SplitPartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tiered_stream.broker.group_offsets import GroupCommitter
    from tiered_stream.locate.log_source import LogSource
    from tiered_stream.model import ReportAddress, Split
    from tiered_stream.observe.driver_log import BatchLog
    from tiered_stream.plan.broker_splits import BrokerSplitMarker
    from tiered_stream.plan.stream import StreamPlanner

HAS_READ_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
"""True if Spark (usually 4.2 or newer) passes the start and a limit of each micro-batch to a Python source.

Such a Spark also plans runs of `Trigger.AvailableNow` with several micro-batches.
"""

_FIRST_WITH_READ_LIMITS = 4, 2
_NO_LIMIT = 2**63 - 1
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
"""Spark's setting that wraps streams of `Trigger.AvailableNow`; `StreamWithOwnLimits` cannot plan a run with it."""


@dataclass(frozen=True)
class OpenedStream:
    """Objects in the driver's Python process that plan one streaming query.

    `source` looks up offsets and segments, and `planner` plans micro-batches. `left_to_brokers` marks splits that
    brokers must send although they are tiered. `batch_log` logs the cost of each micro-batch.
    """

    source: LogSource
    planner: StreamPlanner
    left_to_brokers: BrokerSplitMarker
    batch_log: BatchLog
    group: GroupCommitter | None
    """Object that commits the query's offsets to a consumer group (`kafka.consumer.commit.groupid`), or None."""


class PlannedStream(datasource.DataSourceStreamReader):
    """Base class of the stream readers for all versions of Spark: it plans and reads input partitions."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.opened: OpenedStream | None = None
        self.offsets = LastOffsets()

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}  # executors need no planner, and its connections cannot be pickled

    def open(self) -> OpenedStream:
        """Return the objects that plan the query; the first call connects to the brokers or to the archive."""
        if self.opened is None:
            from tiered_stream.locate.log_source import open_log_source
            from tiered_stream.observe.driver_log import BatchLog
            from tiered_stream.plan.broker_splits import BrokerSplitMarker
            from tiered_stream.plan.stream import StreamPlanner

            show_log()
            collect_old_rarely()
            source, group = open_log_source(self.options), None
            left_to_brokers = BrokerSplitMarker(self.options, source)
            planner = StreamPlanner(self.options, source.offset_reader, source.locator)
            if self.options.commit_group_id is not None:
                from tiered_stream.broker.group_offsets import open_group

                group = open_group(self.options.kafka, self.options.commit_group_id)
            log = BatchLog(loopback=self.options.reports_by_loopback)
            self.opened = OpenedStream(source, planner, left_to_brokers, log, group)
        return self.opened

    @contextmanager
    def _planning(self) -> Iterator[None]:
        """Add the lines of the settings file to errors that the `with` block raises.

        After an error, Spark ends this process. So the function waits until Spark has read the log lines before the
        error.
        """
        try:
            with naming_lines(self.options.settings_file):
                yield
        except Exception:
            await_reader()
            raise

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with self._planning():
            opened = self.open()
            initial = opened.planner.initial()
            if opened.group is not None:
                opened.group.begin(initial)
        return self.offsets.to_dict(initial)

    def next_end(self, start: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """Return the end offsets (exclusive) of the micro-batch that begins at the offsets `start`.

        Both are offset dictionaries, as Spark writes them to the checkpoint. If nothing is to be read, the result is
        `start`. If `limited` is true, the options `max…PerTrigger` and `minOffsetsPerTrigger` apply.
        """
        with self._planning():
            opened, done = self.open(), self.offsets.from_dict(start)
            end = opened.planner.next_end(done, limited=limited)
        is_finished = end is done and opened.planner.available_now
        if opened.group is not None:
            # Spark calls `commit` only when it plans the next batch, so never for the last batch of a run.
            opened.group.commit(done)
            if is_finished:
                opened.group.settle()
        if is_finished:
            opened.batch_log.finish()
        else:
            opened.batch_log.report()  # Spark asks for the next end when all tasks of the micro-batch before have ended
        return start if end is done else self.offsets.to_dict(end)

    @property
    def batch_log(self) -> tuple[ReportAddress, ...]:
        """Address and token of the planner's `BatchLog`, to which tasks send counters, as a tuple of one item.

        The tuple is empty before planning begins, or if no port could be opened.
        """
        return () if self.opened is None else self.opened.batch_log.report_to

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> list[Split]:
        """Return the splits of the micro-batch from offsets `start` (inclusive) to `end` (exclusive)."""
        from tiered_stream.plan.splits import splits_for

        def plan() -> list[Split]:
            return splits_for(ranges, self.options, opened.source.locator, opened.planner.topic_ids)

        with self._planning():
            opened = self.open()
            ranges = opened.planner.ranges(self.offsets.from_dict(start), self.offsets.from_dict(end))
            return list(opened.left_to_brokers.marked(plan(), plan))

    def logged(
        self, partitions: Sequence[datasource.InputPartition], end: dict[str, Any], *, one_report_each: bool = True
    ) -> Sequence[datasource.InputPartition]:
        """Return `partitions` unchanged, and register their micro-batch for its log line about the cost of reading.

        Args:
            partitions: input partitions of the micro-batch.
            end: end offsets of the micro-batch.
            one_report_each: True if each input partition is read by a task that sends one report of its cost. The line
                is then logged when all reports have arrived. If false, it is logged when the next micro-batch is
                planned.
        """
        opened = self.open()
        lag = offset_lag(self.offsets.from_dict(end), opened.planner.latest() or {})
        opened.batch_log.begin(len(partitions) if one_report_each else 0, lag, end)
        return partitions

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[datasource.InputPartition]:
        return self.logged([SplitPartition(split, self.batch_log) for split in self.splits(start, end)], end)

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.options)

    def stop(self) -> None:
        if self.opened is not None:
            self.opened.source.close()
            self.opened.batch_log.close()


class StreamWithOwnLimits(PlannedStream):
    """Stream reader for a Spark that only asks for the latest offset: it applies the limits of a micro-batch itself.

    Such a Spark passes neither the start of a micro-batch nor a limit, so this reader keeps the start. The start is the
    end of the last planned micro-batch. After a restart, it is the latest offset in the checkpoint. Before any other
    call, Spark passes this offset to `partitions`, as both ends of an empty range (Spark:
    `PythonMicroBatchStream.setLatestSeenOffset`).

    In a run with `Trigger.AvailableNow`, such a Spark runs one micro-batch, up to the first offsets that this reader
    returns. So a query with limits ends after one limited micro-batch. `land` and the jobs run another trigger, with
    the option `remote.available.now`, and stop the query at its end.

    With the setting `WRAPPER`, such a Spark asks for the end of a run before it passes the checkpoint's offset. Then
    each run would be planned from the initial offsets. Spark asks once more before it writes the first end into the
    offset log (Spark: `AvailableNowDataStreamWrapper`). If calls come in that order, this reader raises
    ConfigurationError.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._planned_end: dict[str, Any] | None = None
        self._is_asked = False
        """True from the first call of `latestOffset` to the first call of `partitions`."""

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


if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    class StreamWithSparkLimits(PlannedStream, SupportsTriggerAvailableNow):
        """Stream reader to which Spark passes the start of each micro-batch, and whether the run is `AvailableNow`."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
            # There is always a limit, so that Spark asks for all data only if it ignores limits (`Trigger.Once`).
            limit = self.options.max_offsets_per_trigger
            return ReadMaxRows(_NO_LIMIT if limit is None else limit)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
            self.open().planner.available_now = True

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
            return self.next_end(start, limited=not isinstance(limit, ReadAllAvailable))

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
            latest = self.opened.planner.latest() if self.opened else None
            return self.offsets.to_dict(latest) if latest else None

    _Base = StreamWithSparkLimits
else:
    _Base = StreamWithOwnLimits


def has_read_limits(spark: SparkSession) -> bool:
    """Return whether the Spark that runs the session's queries passes the start and a limit of each micro-batch.

    See `HAS_READ_LIMITS`.
    """
    from tiered_stream.spark.session import is_connect

    if not is_connect(spark):
        return HAS_READ_LIMITS
    version = re.match(r"(\d+)\.(\d+)", spark.version)
    return version is not None and tuple(map(int, version.groups())) >= _FIRST_WITH_READ_LIMITS


class StreamReader(_Base):
    """Spark's stream reader of one streaming query: plans micro-batches, and reads one input partition in a task."""

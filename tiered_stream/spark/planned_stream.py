"""Stream reader without the methods by which Spark asks for the end of a micro-batch, which differ between versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from tiered_stream.observe.offset_lag import offset_lag
from tiered_stream.options.command_settings import naming_lines
from tiered_stream.options.offset_json import LastOffsets
from tiered_stream.options.parsing import Options
from tiered_stream.process.heap_and_gc import collect_old_rarely
from tiered_stream.process.logs import await_reader, show_log
from tiered_stream.spark.split_partition import SplitPartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from tiered_stream.locate.log_source import LogSource
    from tiered_stream.model import ReportAddress, Split
    from tiered_stream.observe.driver_log import BatchLog
    from tiered_stream.plan.group_follower import GroupFollower
    from tiered_stream.plan.left_to_brokers import LeftToBrokers
    from tiered_stream.plan.stream import StreamPlanner


@dataclass(frozen=True)
class OpenedStream:
    """Objects in the driver's Python process that plan one streaming query."""

    source: LogSource
    planner: StreamPlanner
    left_to_brokers: LeftToBrokers
    batch_log: BatchLog
    group: GroupFollower | None
    """Follower that commits the query's offsets to a consumer group; None: the options name no group."""


class PlannedStream(datasource.DataSourceStreamReader):
    """Part of the stream reader that is the same for all versions of Spark: it plans and reads input partitions."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.opened: OpenedStream | None = None
        self.offsets = LastOffsets()

    def __getstate__(self) -> dict[str, Any]:
        # Executors need no planner, and its connections cannot be pickled.
        return {"options": self.options, "opened": None, "offsets": None}

    def open(self) -> OpenedStream:
        """Return the objects that plan the query; the first call connects to the brokers or to the archive."""
        if self.opened is None:
            from tiered_stream.locate.log_source import open_log_source
            from tiered_stream.observe.driver_log import BatchLog
            from tiered_stream.plan.left_to_brokers import LeftToBrokers
            from tiered_stream.plan.stream import StreamPlanner

            show_log()
            collect_old_rarely()
            source, group = open_log_source(self.options), None
            left_to_brokers = LeftToBrokers(self.options, source)
            planner = StreamPlanner(self.options, source.offset_reader, source.locator)
            if self.options.available_now:
                planner.prepare_for_available_now()
            if self.options.commit_group_id is not None:
                from tiered_stream.plan.group_follower import open_group

                group = open_group(self.options.kafka, self.options.commit_group_id)
            log = BatchLog(loopback=self.options.reports_by_loopback)
            self.opened = OpenedStream(source, planner, left_to_brokers, log, group)
        return self.opened

    @contextmanager
    def _planning(self) -> Iterator[None]:
        """Name lines of the settings in errors of the block, and let Spark read the log lines that explain an error.

        After an error, Spark ends this process.
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
        """Return the end offsets of the micro-batch from `start`.

        The planner applies the limits itself, including `minOffsetsPerTrigger`.
        """
        with self._planning():
            opened, done = self.open(), self.offsets.from_dict(start)
            end = opened.planner.next_end(done, limited=limited)
        is_finished = end is done and opened.planner.available_now
        if opened.group is not None:
            # Spark calls `commit` only when it plans the next batch, so never for the last batch of a run.
            opened.group.follow(done)
            if is_finished:
                opened.group.settle()
        if is_finished:
            opened.batch_log.finish()
        else:
            opened.batch_log.report()  # Spark asks for the next end when all tasks of the micro-batch before have ended
        return start if end is done else self.offsets.to_dict(end)

    @property
    def batch_log(self) -> tuple[ReportAddress, ...]:
        """Address of the planner's `BatchLog`, to which tasks send counters, in a tuple.

        The tuple is empty before planning begins, and without a port.
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
        """Return `partitions`, the input partitions of the micro-batch up to `end`, and prepare the line about it.

        Args:
            one_report_each: each input partition is read by a task that sends one report of its cost for it. Then the
                line is logged when all reports have arrived. If false, it is logged when the next one is planned.
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

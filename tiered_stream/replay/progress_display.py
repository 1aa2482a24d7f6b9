"""Display of the progress of a running replay: a bar on a terminal, or else one line per minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tiered_stream.model import PartitionOffsets, TopicPartition
from tiered_stream.observe.metrics import ReadMetrics
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.observe.progress import source_offsets
from tiered_stream.replay.replay_plan import ReplayPlan

log = logging.getLogger(__name__)

Follow = Callable[[StreamingQuery, ReplayPlan, MetricsReceiver], None]
"""Function that waits until a query ends, and shows its progress meanwhile; it raises the error that ends the query."""

_SECONDS_BETWEEN_LOOKS = 1
_SECONDS_BETWEEN_LINES = 60.0


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """Progress of a replay at one time. `str` formats it as a line for people.

    `offsets` and `partitions` are the numbers of offsets and of partitions in the whole plan. `done` and
    `partitions_done` are how many of them are read, by this run and by earlier runs. `metrics` are the counters of this
    run, and `seconds` is this run's duration so far. `seconds_left` is estimated by the rate since tasks first reported
    records, so that Spark's start does not count. It is None if there is no rate yet.
    """

    offsets: int
    done: int
    partitions: int
    partitions_done: int
    metrics: ReadMetrics
    seconds: float
    seconds_left: float | None

    def __str__(self) -> str:
        read = self.metrics.remote_fetch_bytes + self.metrics.broker_fetch_bytes
        seconds = max(self.seconds, 0.001)
        return (
            f"{self.done:,} of {self.offsets:,} offsets, {self.partitions_done} of {self.partitions} partitions done, "
            f"{self.metrics.records / seconds:,.0f} records/s, {read / (1 << 20) / seconds:,.1f} MiB/s, "
            f"{_time_left(self.seconds_left)}"
        )


def _time_left(seconds: float | None) -> str:
    if seconds is None:
        return "time left unknown"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min left" if hours else f"{minutes} min {rest} s left" if minutes else f"{rest} s left"


class ProgressTracker:
    """Calculator of a replay's progress, from Spark's finished micro-batches and the tasks' counters.

    Offsets of the micro-batch that runs now are estimated: each record that its tasks have read counts as one offset.
    """

    def __init__(self, plan: ReplayPlan, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._clock = clock
        self._start = clock()
        self._first_report: tuple[float, int] | None = None
        """Time at which tasks first reported records, and the number of offsets that were done then."""
        self._ends: dict[TopicPartition, int] = {partition: offsets.start for partition, offsets in plan.ranges.items()}
        self._records_before = 0  # records that were read when the last micro-batch ended

    def batch_ended(self, end: PartitionOffsets, metrics: ReadMetrics) -> None:
        """Note that a micro-batch is finished. A repeated call for the same micro-batch changes nothing.

        Args:
            end: the micro-batch's end offsets (exclusive), by partition.
            metrics: counters of this run up to the end of the micro-batch.
        """
        if any(self._ends.get(partition) != offset for partition, offset in end.items()):
            self._ends.update(end)
            self._records_before = metrics.records

    def progress(self, metrics: ReadMetrics) -> ReplayProgress:
        """Return the current progress; `metrics` are this run's counters so far."""
        passed, total = self._passed(self._ends), self._plan.offsets
        under_way = min(max(0, metrics.records - self._records_before), total - passed)
        done = [partition for partition, offsets in self._plan.ranges.items() if self._ends[partition] >= offsets.end]
        now = self._clock()
        left = self._seconds_left(now, passed + under_way, metrics)
        return ReplayProgress(
            total, passed + under_way, len(self._plan.ranges), len(done), metrics, now - self._start, left
        )

    def _seconds_left(self, now: float, done: int, metrics: ReadMetrics) -> float | None:
        left = self._plan.offsets - done
        if not left:
            return 0.0
        if self._first_report is None and metrics.records:
            self._first_report = now, done
        since, before = self._first_report or (now, done)
        return left * (now - since) / (done - before) if done > before else None

    def _passed(self, ends: PartitionOffsets) -> int:
        """Return the number of the plan's offsets that are below `ends`, which has an offset by partition."""
        ranges = self._plan.ranges
        common = ends.keys() & ranges.keys()
        return sum(min(ends[partition], ranges[partition].end) - ranges[partition].start for partition in common)


def follower(console: Console, clock: Callable[[], float] = time.monotonic) -> Follow:
    """Return a function that waits until a query ends, and shows the query's progress on the console meanwhile.

    On Ctrl-C or another error, the returned function stops the query and raises the error again. `clock` returns
    seconds.
    """

    def follow(query: StreamingQuery, plan: ReplayPlan, receiver: MetricsReceiver) -> None:
        tracker = ProgressTracker(plan, clock)
        with _display(console, plan.offsets, clock) as show:
            try:
                while not query.awaitTermination(_SECONDS_BETWEEN_LOOKS):
                    show(_progress(tracker, query, receiver))
            except BaseException:
                try:
                    query.stop()
                except (Py4JError, PySparkException, OSError) as error:
                    log.info("the query could not be stopped, its driver is gone: %s", error)
                raise
            show(_progress(tracker, query, receiver))

    return follow


@contextmanager
def _display(console: Console, offsets: int, clock: Callable[[], float]) -> Iterator[Callable[[ReplayProgress], None]]:
    if console.is_terminal:
        with Progress(BarColumn(), TextColumn("{task.description}"), console=console) as bar:
            task = bar.add_task("", total=max(1, offsets))
            yield lambda progress: bar.update(task, completed=progress.done, description=str(progress))
        return
    last_line_at = clock()

    def show(progress: ReplayProgress) -> None:
        nonlocal last_line_at
        if clock() - last_line_at >= _SECONDS_BETWEEN_LINES:
            console.print(str(progress), markup=False)
            last_line_at = clock()

    yield show


def _progress(tracker: ProgressTracker, query: StreamingQuery, receiver: MetricsReceiver) -> ReplayProgress:
    metrics, progress = receiver.total(), query.lastProgress
    for source in (progress.sources if progress else [])[:1]:
        end = source_offsets(source.endOffset)
        if progress is not None and end is not None:
            # Tasks of the next micro-batch may have reported already, so their counters are subtracted.
            by_then = metrics.since(receiver.later_than((str(progress.id), progress.batchId)))
            tracker.batch_ended(end, by_then)
    return tracker.progress(metrics)

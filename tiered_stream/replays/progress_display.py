"""Display of the progress of a running replay: a bar on a terminal, or else one line per minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tiered_stream.model import PartitionOffsets, TopicPartition
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.observe.progress import source_offsets
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.replays.replay_plan import ReplayPlan

Follow = Callable[[StreamingQuery, ReplayPlan, MetricsReceiver], None]
"""Function that waits until a query ends, and shows its progress meanwhile; it raises the error that ends the query."""

_SECONDS_BETWEEN_LOOKS = 1
_SECONDS_BETWEEN_LINES = 60.0


class ProgressTracker:
    """Calculator of a replay's progress, from Spark's finished micro-batches and the tasks' counters.

    Offsets of the micro-batch that runs now are estimated: each record that its tasks have read counts as one offset.
    """

    def __init__(self, plan: ReplayPlan, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._clock = clock
        self._start = clock()
        self._ends: dict[TopicPartition, int] = {partition: offsets.start for partition, offsets in plan.ranges.items()}
        self._records_before = 0  # records that were read when the last micro-batch ended

    def batch_ended(self, end: PartitionOffsets, metrics: ReadMetrics) -> None:
        """Record that a micro-batch has finished.

        Args:
            end: the micro-batch's end offsets (exclusive), by partition.
            metrics: read counters of the micro-batch's tasks, and of earlier tasks whose counters no earlier call had.
        """
        self._ends.update(end)
        self._records_before += metrics.records

    def progress(self, metrics: ReadMetrics) -> tuple[int, str]:
        """Return the number of offsets that all runs of the replay have read, and a line of text about the progress.

        `metrics` are the read counters of this run so far.
        """
        ranges, total = self._plan.ranges, self._plan.offsets
        passed = sum(min(self._ends[partition], offsets.end) - offsets.start for partition, offsets in ranges.items())
        done = passed + min(max(0, metrics.records - self._records_before), total - passed)
        partitions = sum(self._ends[partition] >= offsets.end for partition, offsets in ranges.items())
        read = metrics.remote_fetch_bytes + metrics.broker_fetch_bytes
        seconds = max(self._clock() - self._start, 0.001)
        return done, (
            f"{done:,} of {total:,} offsets, {partitions} of {len(ranges)} partitions done, "
            f"{metrics.records / seconds:,.0f} records/s, {read / (1 << 20) / seconds:,.1f} MiB/s"
        )


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
                    show(*_progress(tracker, query, receiver))
            except BaseException:
                with suppress(Py4JError, PySparkException, OSError):  # the driver may be gone
                    query.stop()
                raise
            show(*_progress(tracker, query, receiver))

    return follow


@contextmanager
def _display(console: Console, offsets: int, clock: Callable[[], float]) -> Iterator[Callable[[int, str], None]]:
    if console.is_terminal:
        columns = BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("", total=max(1, offsets))
            yield lambda done, line: bar.update(task, completed=done, description=line)
        return
    last_line_at = clock()

    def show(_: int, line: str) -> None:
        nonlocal last_line_at
        if clock() - last_line_at >= _SECONDS_BETWEEN_LINES:
            console.print(line, markup=False)
            last_line_at = clock()

    yield show


def _progress(tracker: ProgressTracker, query: StreamingQuery, receiver: MetricsReceiver) -> tuple[int, str]:
    metrics, progress = receiver.total(), query.lastProgress
    for source in (progress.sources if progress else [])[:1]:
        end = source_offsets(source.endOffset)
        if progress is not None and end is not None:
            # Tasks of the next micro-batch may have reported already, and their counters do not count yet.
            tracker.batch_ended(end, receiver.take_before((str(progress.id), progress.batchId + 1)))
    return tracker.progress(metrics)

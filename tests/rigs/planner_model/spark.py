"""A query of Spark without Spark: its offset log, its commit log, its sink, and its calls of a stream reader.

The calls are those of `MicroBatchExecution` and `PythonMicroBatchStream`: offsets go through JSON, a first batch has no
start in the log, and the newest offset of the log is shown to a reader before any other call. The sink takes each
micro-batch once, as Delta does by its application transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.rigs.planner_model.world import World
from tiered_stream.broker.group_offsets import GroupCommitter, GroupOffsets
from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import PartitionOffsets, TopicPartition
from tiered_stream.observe.driver_log import BatchLog
from tiered_stream.options.offset_json import offsets_from_dict
from tiered_stream.options.parsing import Options
from tiered_stream.plan.broker_splits import BrokerSplitMarker
from tiered_stream.plan.stream import StreamPlanner
from tiered_stream.spark.stream_reader import OpenedStream, StreamWithOwnLimits, StreamWithSparkLimits

Reader = StreamWithOwnLimits | StreamWithSparkLimits
Row = tuple[TopicPartition, int]


_MOST = 1000
"""Triggers after which a query has surely read all there is."""


class Died(BaseException):
    """The driver's death."""


class _NoLog:
    """A `BatchLog` that nobody reports to."""

    report_to = ()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class _Group:
    """A `GroupOffsets` that commits at once."""

    def __init__(self, world: World, group: str) -> None:
        self.world, self.group = world, group

    def start_commit(self, offsets: PartitionOffsets) -> Future[None]:
        self.world.groups.setdefault(self.group, {}).update(offsets)
        done: Future[None] = Future()
        done.set_result(None)
        return done


def open_reader(kind: type[Reader], options: Options, world: World) -> Reader:
    """A new process with a reader, over the world in place of brokers."""
    reader = kind(options)
    source = LogSource(world, world.tier())
    planner = StreamPlanner(options, source.offset_reader, source.locator, clock=lambda: world.now_ms, sleep=_not)
    group = options.commit_group_id and GroupCommitter(cast(GroupOffsets, _Group(world, options.commit_group_id)))
    left, log = BrokerSplitMarker(options, source), cast(BatchLog, _NoLog())
    reader.opened = OpenedStream(source, planner, left, log, group or None)
    return reader


def _not(_: float) -> None:
    pass


@dataclass
class Query:
    """The checkpoint and the table of one query; they outlive its runs.

    `reached` is called at each point at which a driver may die, with the point's name. `logged` is called when a
    micro-batch's offsets are about to be written, with the start that its reader was given.
    """

    reached: Callable[[str], None]
    logged: Callable[[int, PartitionOffsets], None]
    offset_log: dict[int, str] = field(default_factory=dict)
    commit_log: set[int] = field(default_factory=set)
    table: dict[int, list[Row]] = field(default_factory=dict)

    def run(self, reader: Reader, trigger: str, triggers: int | None) -> None:
        """Run the query up to `triggers` times (`availableNow`, `once` or an interval); None: until nothing is new."""
        limits = isinstance(reader, StreamWithSparkLimits)
        if isinstance(reader, StreamWithSparkLimits) and trigger == "availableNow":
            reader.prepareForTriggerAvailableNow()
        batch = max(self.offset_log, default=0)
        planned, start = self.offset_log.get(batch), self.offset_log.get(batch - 1)
        if planned is not None:
            reader.partitions(json.loads(planned), json.loads(planned))  # PythonMicroBatchStream.setLatestSeenOffset
            if batch in self.commit_log:
                planned, start, batch = None, planned, batch + 1
        single = trigger == "once" or (trigger == "availableNow" and not limits)
        for _ in range(1 if single else triggers or _MOST):
            end, planned = planned or self._next(reader, start, batch, all_at_once=trigger == "once"), None
            if end is not None:
                self._batch(reader, batch, start, end)
                start, batch = end, batch + 1
            elif trigger == "availableNow" or triggers is None:
                return
            self.reached("between triggers")

    def _next(self, reader: Reader, start: str | None, batch: int, *, all_at_once: bool) -> str | None:
        """Plan and log the next micro-batch. None: nothing is new (`MicroBatchExecution.constructNextBatch`)."""
        self.reached("before the end is planned")
        if isinstance(reader, StreamWithSparkLimits):
            limit = ReadAllAvailable() if all_at_once else reader.getDefaultReadLimit()
            end = json.dumps(reader.latestOffset(_form(reader, start), limit))
            reader.reportLatestOffset()
        else:
            end = json.dumps(reader.latestOffset())
        if end == start:
            return None
        first = offsets_from_dict(_form(reader, start))
        self.reached("before the offset log")
        self.logged(batch, first)
        self.offset_log[batch] = end
        self.reached("after the offset log")
        return end

    def _batch(self, reader: Reader, batch: int, start: str | None, end: str) -> None:
        partitions: Any = reader.partitions(_form(reader, start), json.loads(end))
        self.reached("before the table")
        rows = [
            (part.split.topic_partition, at)
            for part in partitions
            for at in range(part.split.offsets.start, part.split.offsets.end)
        ]
        self.table.setdefault(batch, rows)
        self.reached("before the commit log")
        self.commit_log.add(batch)

    def ends(self, batches: set[int] | None = None) -> dict[TopicPartition, int]:
        """The end of the last of `batches` in the offset log; None: of all."""
        last = max(self.offset_log.keys() if batches is None else batches, default=None)
        return {} if last is None else offsets_from_dict(json.loads(self.offset_log[last]))


def _form(reader: Reader, start: str | None) -> dict[str, Any]:
    return dict(json.loads(json.dumps(reader.initialOffset()) if start is None else start))

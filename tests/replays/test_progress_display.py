from __future__ import annotations

from dataclasses import asdict
from io import StringIO
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import orjson
import pytest
from rich.console import Console

from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.observe.metrics_receiver import MetricsReceiver
from tiered_stream.observe.read_metrics import ReadMetrics
from tiered_stream.options.positions import TimeRange
from tiered_stream.replays.progress_display import ProgressTracker, follower
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PLAN = ReplayPlan(
    "mend",
    ReplayArguments(("subscribe", "t"), "0", None, "table x"),
    TimeRange(0),
    {T0: OffsetRange(100, 300), T1: OffsetRange(0, 200)},
    {"t": UUID(int=1)},
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_standing_counts_micro_batches_that_ended_and_what_was_read_since() -> None:
    clock = Clock()
    tracker = ProgressTracker(PLAN, clock)
    clock.now = 10.0
    tracker.batch_ended({T0: 200, T1: 200}, ReadMetrics(records=250))
    progress = tracker.progress(ReadMetrics(records=300, remote_fetch_bytes=10 << 20))
    assert progress == (350, "350 of 400 offsets, 1 of 2 partitions done, 30 records/s, 1.0 MiB/s")
    assert tracker.progress(ReadMetrics(records=9999))[0] == 400


class Query:
    """A query that is asked so often before it ends, each time a while later."""

    def __init__(self, clock: Clock, looks: int, seconds: float, end: type[BaseException] | None = None) -> None:
        self.clock, self.looks, self.seconds, self.end = clock, looks, seconds, end
        self.stopped = False
        self.lastProgress: Any = None

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        self.clock.now += self.seconds
        self.looks -= 1
        if self.looks < 0 and self.end is not None:
            raise self.end
        return self.looks < 0

    def stop(self) -> None:
        self.stopped = True


def test_what_the_next_micro_batch_has_read_counts_though_the_last_is_looked_at_late() -> None:
    query_id, console = UUID(int=9), StringIO()
    query = Query(Clock(), 1, 100.0)
    ends = SimpleNamespace(startOffset={"t": {"0": 100, "1": 0}}, endOffset={"t": {"0": 200, "1": 0}})
    query.lastProgress = SimpleNamespace(id=query_id, batchId=1, sources=[ends])
    with MetricsReceiver() as receiver:
        for batch, records in ((1, 100), (2, 30)):
            report = asdict(ReadMetrics(records=records)) | {"micro_batch": [str(query_id), batch], "part": ""}
            receiver._take(receiver.report_to[0].token + orjson.dumps(report))
        shown = Console(file=console, force_terminal=False, width=200)
        follower(shown, query.clock)(query, PLAN, receiver)  # type: ignore[arg-type]
    assert console.getvalue().startswith("130 of 400 offsets")


def followed(query: Query, terminal: bool) -> str:
    out = StringIO()
    console = Console(file=out, force_terminal=terminal, width=200, highlight=False)
    with MetricsReceiver() as receiver:
        follower(console, query.clock)(query, PLAN, receiver)  # type: ignore[arg-type]
    return out.getvalue()


def test_without_a_terminal_there_is_a_line_a_minute() -> None:
    assert len(followed(Query(Clock(), 130, 1.0), terminal=False).splitlines()) == 2


def test_a_terminal_has_a_bar() -> None:
    assert "of 400 offsets" in followed(Query(Clock(), 3, 1.0), terminal=True)


@pytest.mark.parametrize("end", [KeyboardInterrupt, RuntimeError])
def test_what_interrupts_stops_the_query(end: type[BaseException]) -> None:
    query = Query(Clock(), 3, 1.0, end)
    with pytest.raises(end):
        followed(query, terminal=False)
    assert query.stopped

"""What a trigger costs a planner of very many partitions: core seconds of its process, by a cluster that is made up.

Of 500 topics of 20 partitions: nothing is new, or each topic has a new record, or each partition, without and with a
limit that leaves half of them for later; of 50, nothing is.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.gateway.planning import made_up_cluster
from tests.rigs.bench.figures import Row
from tests.rigs.bench.rig import Rig
from tests.rigs.bench.turns import Claim, Contender, allowance, rows_of
from tests.rigs.scale.made_up_topics import Indexes
from tiered_stream.model import RemoteLogSegment
from tiered_stream.options.parsing import parse_options
from tiered_stream.spark.stream_reader import StreamReader
from tiered_stream.storage.fetcher import IndexType

PARTITIONS = 20
"""Of each topic."""
NOTHING, SOME, ALL = "nothing new", "one partition of each topic has news", "all have news"
LIMITED = "all have news, half of which a limit leaves"
_FIRST = "first micro-batch"


@dataclass(frozen=True)
class _Trigger:
    """Of so many topics, of which so many partitions each have news; `may_take` are core seconds, `aim` their part.

    `limit`: the most offsets of a micro-batch.
    """

    topics: int
    name: str
    growing: int = 0
    may_take: float | None = None
    aim: float = 2
    limit: int | None = None
    start: str = "earliest"

    @property
    def partitions(self) -> int:
        return self.topics * PARTITIONS


_TRIGGERS = (
    _Trigger(50, NOTHING, may_take=0.04, aim=2.7),
    _Trigger(500, NOTHING, may_take=0.15),
    _Trigger(500, SOME, growing=1),
    _Trigger(500, ALL, growing=PARTITIONS),
)


def measure(rig: Rig, runs: int) -> Iterator[Row]:
    """A row for each; the first micro-batch, of all that is tiered, is told beside."""
    for trigger in _TRIGGERS:
        with _planning(trigger) as planner:
            yield _row(trigger, planner, runs)
    free = replace(_TRIGGERS[-1], start="latest")
    limited = replace(free, name=LIMITED, limit=free.partitions // 2)
    with _planning(free) as without, _planning(limited) as with_limit:
        contenders = {each.name: Contender(of.trigger, 1) for each, of in ((free, without), (limited, with_limit))}
        yield from rows_of([Claim(f"P {free.partitions:,} partitions", LIMITED, ALL, 1 / 1.5, 1)], contenders, runs)


@contextmanager
def _planning(trigger: _Trigger) -> Iterator[_Planner]:
    made_up = made_up_cluster(PARTITIONS, segments=1, topics=trigger.topics, growing=trigger.growing)
    with made_up as (servers, _):
        given = {
            "kafka.bootstrap.servers": servers, "subscribePattern": "made-up.*", "startingOffsets": trigger.start,
            "kafka.remote.storage.fetcher.class": f"{__name__}.{Zeros.__name__}",
            "remote.log.locator": "metadata-topic",
        }  # fmt: skip
        planner = _Planner(given | ({"maxOffsetsPerTrigger": str(trigger.limit)} if trigger.limit else {}))
        try:
            yield planner
        finally:
            planner.reader.stop()


def _row(trigger: _Trigger, planner: _Planner, runs: int) -> Row:
    most, name, partitions = trigger.may_take, trigger.name, trigger.partitions
    ours = Contender(planner.trigger, partitions)
    ours.tell(**{_FIRST: planner.trigger()})
    against = "a first micro-batch" if most is None else f"{most:g} s"
    claim = Claim(f"P {partitions:,} partitions", name, against, *((None, None) if most is None else (1, trigger.aim)))
    other = allowance(most or ours.more[_FIRST], partitions)
    (row,) = rows_of([claim], {name: ours, against: other}, runs)
    return row


class Zeros(Indexes):
    """The made-up segments' storage, of which a query asks for a byte before it is planned."""

    def fetch_indexes(self, segment: RemoteLogSegment, types: Collection[IndexType]) -> dict[IndexType, bytes]:
        return dict.fromkeys(types, b"")


class _Planner:
    """As Spark calls it, from one trigger to the next."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.reader = StreamReader(parse_options(dict(given), streaming=True))
        self._at: dict[str, Any] = self.reader.initialOffset()

    def trigger(self) -> float:
        """The core seconds of one."""
        began = time.process_time()
        end = self.reader.latestOffset(self._at, self.reader.getDefaultReadLimit())
        if end != self._at:
            self.reader.partitions(self._at, end)
            self.reader.commit(end)
            self._at = end
        return time.process_time() - began

"""`remote.prefer=local`: the tier gives what lies before the broker's own log, and no more."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import pytest

from tests.plan.made_up_tier import MadeUpTier, TieredLog
from tiered_stream.broker.list_offsets import BrokerOffsetReader
from tiered_stream.locate.log_source import not_local
from tiered_stream.model import OffsetRange, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TIERED = {T0: [TieredLog(0, 50), TieredLog(50, 100)], T1: [TieredLog(0, 100)]}


class LocalLogs(BrokerOffsetReader):
    """Where local logs begin; it leaves out every other question, and the broker."""

    def __init__(self, begin: dict[TopicPartition, int | None]) -> None:
        self._begin = begin

    def earliest_local(
        self, partitions: Collection[TopicPartition], patience_ms: int | None = None
    ) -> dict[TopicPartition, int | None]:
        return {partition: self._begin[partition] for partition in partitions}


def preferring(begin: dict[TopicPartition, int | None]) -> MadeUpTier:
    tier = MadeUpTier(TIERED)
    tier.limit = partial(not_local, LocalLogs(begin), None)
    return tier


@pytest.mark.parametrize(
    ("begin", "wanted", "expected"),
    [
        (50, (10, 120), [(10, 50)]),
        (70, (10, 120), [(10, 50), (50, 70)]),
        (200, (10, 120), [(10, 50), (50, 100)]),
        (0, (10, 120), []),
        (10, (10, 120), []),
        (30, (40, 120), []),
        (None, (10, 120), []),
    ],
    ids=[
        "local from a segment's end",
        "local from inside a segment",
        "nothing wanted is local",
        "everything is local",
        "local from the start on",
        "local from before the start on",
        "the broker cannot say",
    ],
)
def test_what_the_broker_has_is_left_to_it(
    begin: int | None, wanted: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    found = preferring({T0: begin}).locate({T0: OffsetRange(*wanted)}).get(T0, ())
    assert [location.offsets for location in found] == [OffsetRange(*each) for each in expected]


def test_each_partition_has_its_own_local_log() -> None:
    found = preferring({T0: 20, T1: 90}).locate({T0: OffsetRange(0, 100), T1: OffsetRange(0, 100)})
    assert [[each.offsets.end for each in found[partition]] for partition in (T0, T1)] == [[20], [90]]

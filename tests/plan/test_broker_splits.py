from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.plan.in_memory_offsets import InMemoryOffsets, Log
from tests.plan.made_up_tier import MADE_UP_ID, MadeUpTier, TieredLog
from tiered_stream.errors import BrokerUnavailableError, ConfigurationError
from tiered_stream.locate.log_source import LogSource, WhyBrokers
from tiered_stream.model import OffsetRange, Split, TopicPartition
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.plan.batch import plan_batch
from tiered_stream.plan.broker_splits import BrokerSplitMarker
from tiered_stream.plan.pruning import Numbers, Pruning
from tiered_stream.plan.splits import splits_for

T0, T1 = (TopicPartition("t", number) for number in range(2))
NO_STORAGE = WhyBrokers("no_storage", "no remote.storage.uri says where tiered segments are")
NOTHING = MadeUpTier({})
BASE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "remote.storage.uri": "file:///tier",
        "remote.storage.layout": "local"}  # fmt: skip


class TieredOffsets(InMemoryOffsets):
    """Offsets of brokers that have tiered the partitions up to `tiered`."""

    def __init__(self, tiered: dict[TopicPartition, int]) -> None:
        super().__init__({"t": [Log(0, 100), Log(0, 100)]})
        self.tiered, self.asked = tiered, 0

    def tiered_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += 1
        return {partition: end for partition, end in self.tiered.items() if partition in partitions}


def options(**given: str) -> Options:
    return parse_options({**BASE, **given}, streaming=False)


def reasons(splits: list[Split]) -> dict[TopicPartition, str]:
    return {split.topic_partition: split.why_brokers for split in splits}


def test_tiered_offsets_that_brokers_must_send_are_marked_with_the_reason() -> None:
    source = LogSource(TieredOffsets({T0: 60}), None, NO_STORAGE)
    assert reasons(plan_batch(options(), source)) == {T0: "no_storage", T1: ""}
    source = LogSource(TieredOffsets({T0: 60}), NOTHING)
    assert reasons(plan_batch(options(), source)) == {T0: "not_located", T1: ""}


def test_splits_of_a_query_with_pushed_filters_are_marked_too() -> None:
    source = LogSource(TieredOffsets({T0: 60, T1: 60}), NOTHING)
    assert reasons(plan_batch(options(), source, Pruning(partitions=Numbers.of([1])))) == {T1: "not_located"}


def test_a_gap_is_not_marked_if_filters_leave_out_the_segments_that_were_located() -> None:
    offsets = TieredOffsets({T0: 60, T1: 60})
    offsets.ids["t"] = MADE_UP_ID
    source = LogSource(offsets, MadeUpTier({T0: [TieredLog(0, 30, max_timestamp=1)]}))
    pruning = Pruning(partitions=Numbers.of([0]), timestamps=Numbers.between(10**13))
    assert reasons(plan_batch(options(**{"remote.fallback": "fail"}), source, pruning)) == {T0: ""}


def test_a_query_that_reads_only_the_tail_is_not_marked() -> None:
    starting = '{"t":{"0":60,"1":60}}'
    source = LogSource(TieredOffsets({T0: 60}), None, NO_STORAGE)
    assert set(reasons(plan_batch(options(startingOffsets=starting), source)).values()) == {""}


def test_brokers_are_not_asked_if_something_comes_from_storage() -> None:
    offsets = TieredOffsets({T0: 60, T1: 60})
    offsets.ids["t"] = MADE_UP_ID
    splits = plan_batch(options(), LogSource(offsets, MadeUpTier({T0: [TieredLog(0, 60)]})))
    assert not any(split.why_brokers for split in splits) and offsets.asked == 0


@pytest.mark.parametrize("given", [{"remote.log.locator": "none"}, {"remote.prefer": "local"}])
def test_brokers_that_were_asked_for_are_no_fault(given: dict[str, str]) -> None:
    locator = None if "remote.log.locator" in given else NOTHING
    splits = plan_batch(options(**given, **{"remote.fallback": "fail"}), LogSource(TieredOffsets({T0: 60}), locator))
    assert not any(split.why_brokers for split in splits)


def test_each_micro_batch_is_marked_until_something_comes_from_storage() -> None:
    parsed, offsets = options(), TieredOffsets({T0: 90})
    tier: dict[str, MadeUpTier] = {"is": NOTHING}
    left = BrokerSplitMarker(parsed, LogSource(offsets, NOTHING))

    def marked(start: int) -> list[str]:
        def plan() -> list[Split]:
            return splits_for(plan_ranges(start), parsed, tier["is"], {})

        return [split.why_brokers for split in left.marked(plan(), plan)]

    assert [marked(0), marked(10), marked(90)] == [["not_located"], ["not_located"], [""]]
    tier["is"] = MadeUpTier({T0: [TieredLog(0, 60)]})
    assert marked(20) == [""]
    tier["is"] = NOTHING
    assert marked(30) == [""] and offsets.asked == 1


def plan_ranges(start: int) -> dict[TopicPartition, OffsetRange]:
    return {T0: OffsetRange(start, start + 10)}


def test_segments_that_become_tiered_while_the_first_batch_is_planned_are_read_from_storage() -> None:
    parsed = options(**{"remote.fallback": "fail"})
    left = BrokerSplitMarker(parsed, LogSource(TieredOffsets({T0: 60}), NOTHING))
    tier = MadeUpTier({T0: [TieredLog(0, 60)]})
    splits = left.marked(
        splits_for(plan_ranges(0), parsed, NOTHING, {}), lambda: splits_for(plan_ranges(0), parsed, tier, {})
    )
    assert [len(split.locations) for split in splits] == [1]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (LogSource(TieredOffsets({}), None, NO_STORAGE), r"no remote\.storage\.uri says"),
        (LogSource(TieredOffsets({T1: 7}), NOTHING), "offsets from 0 on of t-1 are tiered, but no segment"),
    ],
)
@pytest.mark.parametrize("pruning", [None, Pruning()], ids=["no filter", "pushed filters"])
def test_a_query_that_may_not_fall_back_fails_at_its_start(
    source: LogSource, text: str, pruning: Pruning | None
) -> None:
    with pytest.raises(ConfigurationError, match=rf"remote\.fallback=fail: .*{text}.*`tiered-stream doctor`"):
        plan_batch(options(**{"remote.fallback": "fail"}), source, pruning)


def test_brokers_that_do_not_say_what_is_tiered_cost_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = TieredOffsets({})

    def silent(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        raise BrokerUnavailableError("no leader")

    monkeypatch.setattr(offsets, "tiered_ends", silent)
    assert reasons(plan_batch(options(), LogSource(offsets, NOTHING))) == {T0: "", T1: ""}

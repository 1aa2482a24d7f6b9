from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.model import OffsetRange, TopicPartition, is_topic_name
from tiered_stream.options.parsing import Options, parse_options
from tiered_stream.options.positions import AtOffsets, TimeRange
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan, check_name

ARGUMENTS = ReplayArguments(("subscribe", "orders"), "-3h", None, "table s3a://lake/orders")
ORDERS = UUID(int=7)
PLAN = ReplayPlan(
    "mend",
    ARGUMENTS,
    TimeRange(5000, 9000),
    {TopicPartition("orders", 0): OffsetRange(3, 8), TopicPartition("orders", 10): OffsetRange(4, 4)},
    {"orders": ORDERS},
)
CLUSTER = {"kafka.bootstrap.servers": "broker:9092", "includeHeaders": "true"}

offset_ranges = st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)).map(sorted).map(lambda pair: OffsetRange(*pair))
partitions = st.builds(
    TopicPartition, st.from_regex("[a-z._-]{1,9}", fullmatch=True).filter(is_topic_name), st.integers(0, 10**4)
)
plans = st.builds(
    ReplayPlan,
    st.from_regex("[A-Za-z0-9_-]{1,9}", fullmatch=True),
    st.builds(
        ReplayArguments,
        st.tuples(st.sampled_from(("subscribe", "assign")), st.text()),
        st.text(),
        st.none() | st.text(),
        st.text(),
        st.booleans(),
        st.booleans(),
    ),
    st.integers(0, 10**13).flatmap(lambda at: st.just(TimeRange(at)) | st.just(TimeRange(at, at + 1))),
    st.dictionaries(partitions, offset_ranges, max_size=5),
    st.dictionaries(st.text(), st.uuids(), max_size=3),
)


@given(plans)
def test_a_plan_is_read_as_it_was_written(plan: ReplayPlan) -> None:
    assert ReplayPlan.from_json(plan.to_json()) == plan


@given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(orjson.dumps))
def test_what_is_no_plan_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptDataError, match="replay's plan"):
        ReplayPlan.from_json(text)


@pytest.mark.parametrize("name", ["version", "name", "arguments", "times", "startOffsets", "endOffsets", "topicIds"])
def test_a_plan_with_a_part_that_is_missing_or_odd_is_refused(name: str) -> None:
    whole = orjson.loads(PLAN.to_json())
    for odd in ({each: whole[each] for each in whole if each != name}, {**whole, name: {"x": {"y": None}}}):
        with pytest.raises((CorruptDataError, ConfigurationError)):
            ReplayPlan.from_json(orjson.dumps(odd))


def test_a_name_is_made_from_the_arguments_alone() -> None:
    assert ARGUMENTS.default_name() == replace(ARGUMENTS).default_name()
    others = [
        replace(ARGUMENTS, reads=("subscribePattern", "orders")),
        replace(ARGUMENTS, from_time="-4h"),
        replace(ARGUMENTS, to_time="-1h"),
        replace(ARGUMENTS, target="table other"),
        replace(ARGUMENTS, exact=True),
        replace(ARGUMENTS, replace=True),
    ]
    names = {each.default_name() for each in (ARGUMENTS, *others)}
    assert len(names) == len(others) + 1 and all(check_name(name) == name for name in names)


def test_arguments_say_in_what_they_differ() -> None:
    assert ARGUMENTS.difference(ARGUMENTS) is None
    assert replace(ARGUMENTS, from_time="-4h").difference(ARGUMENTS) == "from was -3h and is -4h"
    assert replace(ARGUMENTS, to_time="-1h").difference(ARGUMENTS) == "to was not given and is -1h"
    assert replace(ARGUMENTS, exact=True).difference(ARGUMENTS) == "exact was not given and is given"
    other = replace(ARGUMENTS, reads=("subscribe", "a,b")).difference(ARGUMENTS)
    assert other == "reads was subscribe=orders and is subscribe=a,b"


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "ä", "x" * 101])
def test_a_name_that_could_be_no_folders_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="--name"):
        check_name(name)


def options_of(plan: ReplayPlan) -> Options:
    given = {**CLUSTER, "SubscribePattern": "ord.*", "startingTimestamp": "5000", "endingTimestamp": "9000"}
    return parse_options(plan.stream_options(given), streaming=True)


def test_a_query_of_the_plan_reads_its_ranges_and_nothing_else() -> None:
    options = options_of(PLAN)
    assert set(options.subscription.assigned) == PLAN.ranges.keys() and options.include_headers
    assert options.starting == AtOffsets({each: offsets.start for each, offsets in PLAN.ranges.items()})
    assert options.ending == AtOffsets({each: offsets.end for each, offsets in PLAN.ranges.items()})
    assert options.topic_ids == {"orders": ORDERS}
    assert options.times is None
    assert PLAN.offsets == 5 and PLAN.transaction_id == "replay-mend"


def test_a_replay_takes_over_neither_the_query_s_consumer_group_nor_its_end() -> None:
    given = {**CLUSTER, "kafka.consumer.commit.groupid": "of-the-query", "boundedStreaming": "true"}
    options = parse_options(PLAN.stream_options(given), streaming=True)
    assert options.commit_group_id is None
    assert not options.bounded_streaming


def test_an_exact_plan_reads_its_times_alone() -> None:
    exact = replace(PLAN, arguments=replace(ARGUMENTS, exact=True))
    assert options_of(exact).times == TimeRange(5000, 9000)
    assert options_of(replace(exact, times=TimeRange(5))).times == TimeRange(5)

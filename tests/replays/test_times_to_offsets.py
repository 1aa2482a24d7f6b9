"""Times to offsets, and the rows between them, against Kafka's own consumer on the real stack."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import tasks
from tests.archives import arrow_rows
from tests.depth import examples
from tests.replays.topics import CREATE_TIME, DELETED_FROM, EMPTY, FIRST_KEPT, TOPICS, ReplayedTopics
from tests.rigs.stack.rows import Row
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream.locate.log_source import open_log_source
from tiered_stream.model import TopicPartition
from tiered_stream.options.parsing import parse_options
from tiered_stream.options.positions import TimeRange
from tiered_stream.read.split_reader import read_split
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan
from tiered_stream.replays.times_to_offsets import resolve

pytestmark = pytest.mark.stack

ON_ONE_STACK = settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)


def plan(stack: TieredStack, times: TimeRange, exact: bool = False) -> ReplayPlan:
    reads = {"subscribe": ",".join(TOPICS)}
    options = parse_options({**stack.options(), **reads}, streaming=True)
    with closing(open_log_source(options)) as tier:
        ranges, topic_ids = resolve(options, tier, times, exact=exact)
    arguments = ReplayArguments(("subscribe", reads["subscribe"]), "", None, "", exact)
    return ReplayPlan("test", arguments, times, ranges, topic_ids)


def replayed(stack: TieredStack, planned: ReplayPlan) -> dict[str, list[Row]]:
    """What the tasks of a query of the plan give."""
    given = planned.stream_options({**stack.options(), "includeHeaders": "true"})
    given["endingOffsets"] = given.pop("remote.stream.ending.offsets")
    options = parse_options(given, streaming=False)
    rows: dict[str, list[Row]] = {topic: [] for topic in TOPICS}
    for split in tasks.plan(options):
        for batch in read_split(split, options):
            rows[split.topic_partition.topic].extend(arrow_rows(batch))
    return {topic: sorted(found) for topic, found in rows.items()}


@st.composite
def chosen_times(draw: st.DrawFn) -> tuple[int, int, int | None]:
    """Two places in the list of all timestamps, and how far beside them; or no end."""
    places = st.integers(0, 10_000)
    return draw(places), draw(places), draw(st.sampled_from([-1, 0, 1, 5_000_000, -5_000_000, None]))


def time_range(topics: ReplayedTopics, places: tuple[int, int, int | None]) -> TimeRange:
    times = topics.times()
    first, second, beside = places
    at = [times[place % len(times)] for place in (first, second)]
    start = max(0, min(at) + (beside or 0))
    return TimeRange(start, None if beside is None else max(start + 1, max(at) + beside))


@ON_ONE_STACK
@given(chosen_times())
def test_offsets_are_those_of_kafkas_own_lookup_and_rows_those_of_a_consumer(
    stack: TieredStack, topics: ReplayedTopics, places: tuple[int, int, int | None]
) -> None:
    times = time_range(topics, places)
    planned = plan(stack, times)
    ends = topics.ends()
    starts = topics.offsets_for_time(times.from_ms)
    until = {} if times.to_ms is None else topics.offsets_for_time(times.to_ms)
    for partition, end in ends.items():
        stop = until.get(partition)
        expected_end = end if stop is None else min(stop, end)
        start = starts[partition]
        found = planned.ranges[partition]
        assert (found.start, found.end) == (expected_end if start is None else min(start, expected_end), expected_end)
    expected = {
        topic: [row for row in rows if row.offset in planned.ranges[TopicPartition(topic, row.partition)]]
        for topic, rows in topics.rows.items()
    }
    assert replayed(stack, planned) == expected


@ON_ONE_STACK
@given(chosen_times())
def test_an_exact_replay_is_a_filter_over_the_whole_topic(
    stack: TieredStack, topics: ReplayedTopics, places: tuple[int, int, int | None]
) -> None:
    times = time_range(topics, places)
    end = 2**63 if times.to_ms is None else times.to_ms
    expected = {
        topic: [row for row in rows if times.from_ms <= row.timestamp_ms < end] for topic, rows in topics.rows.items()
    }
    assert replayed(stack, plan(stack, times, exact=True)) == expected


def test_the_topics_have_what_makes_a_replay_hard(stack: TieredStack, topics: ReplayedTopics) -> None:
    starts, ends = topics.starts(), topics.ends()
    assert ends[TopicPartition(CREATE_TIME, EMPTY)] == 0
    assert starts[TopicPartition(CREATE_TIME, DELETED_FROM)] == FIRST_KEPT
    for topic, rows in topics.rows.items():
        of_time = [row.timestamp_ms for row in rows if row.partition == 0]
        assert (of_time == sorted(of_time)) is ("append" in topic)
    whole = plan(stack, TimeRange(0))
    middle = topics.times()[len(topics.times()) // 2]
    between = plan(stack, TimeRange(0, middle))
    exact = plan(stack, TimeRange(0, middle), exact=True)
    assert replayed(stack, whole) == topics.rows
    assert replayed(stack, between) != replayed(stack, exact)

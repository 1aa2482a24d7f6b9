from __future__ import annotations

from dataclasses import replace

import pytest

from tests.plan.in_memory_offsets import InMemoryOffsets, Log
from tiered_stream.errors import ConfigurationError, DataLossError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.parsing import parse_options
from tiered_stream.plan.offset_lookup import OffsetLookup
from tiered_stream.plan.starting import InitialOffsets, batch_ranges, fitted_initial_offsets, initial_offsets

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
BASE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t", "fetchOffset.retryIntervalMs": "0"}
TIMES = {offset: offset * 10 for offset in range(2, 8)}
"""Offset 2 was written at 20 ms, …, offset 7 at 70 ms."""


STRATEGY_LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


def logs() -> InMemoryOffsets:
    return InMemoryOffsets({"t": [Log(2, 8, TIMES), Log(0, 4, {0: 15, 1: 25, 2: 25, 3: 35}), Log()]})


def initial(reader: InMemoryOffsets, **given: str) -> InitialOffsets:
    options = parse_options({**BASE, **given}, streaming=True)
    return initial_offsets(options, OffsetLookup.of(options, reader))


def ranges(reader: InMemoryOffsets, **given: str) -> dict[TopicPartition, tuple[int, int]]:
    options = parse_options({**BASE, **given}, streaming=False)
    found = batch_ranges(options, OffsetLookup.of(options, reader))
    return {partition: (each.start, each.end) for partition, each in found.items()}


# Streams


@pytest.mark.contract(
    "1.5 timestamps", "1.5 timestamps -1 and -2", "1.5 no match at the start", "2.3", "2.4", "2.5", "2.6"
)
@pytest.mark.parametrize(
    ("starting", "offsets", "given", "at_end"),
    [
        ({}, (8, 4, 0), (), (T0, T1, T2)),
        ({"startingOffsets": "latest"}, (8, 4, 0), (), (T0, T1, T2)),
        ({"startingOffsets": "earliest"}, (2, 0, 0), (), ()),
        ({"startingOffsets": '{"t":{"0":-2,"1":-1,"2":0}}'}, (2, 4, 0), (T2,), (T1,)),
        ({"startingOffsets": '{"t":{"0":5,"1":1,"2":0}}'}, (5, 1, 0), (T0, T1, T2), ()),
        ({"startingOffsets": '{"t":{"0":99,"1":-2,"2":-2}}'}, (99, 0, 0), (T0,), ()),
        ({"startingTimestamp": "25", "startingOffsetsByTimestampStrategy": "latest"}, (3, 1, 0), (), (T2,)),
        ({"startingOffsetsByTimestamp": '{"t":{"0":30,"1":99,"2":0}}', **STRATEGY_LATEST}, (3, 4, 0), (), (T1, T2)),
        ({"startingTimestamp": "-1"}, (8, 4, 0), (), (T0, T1, T2)),
        ({"startingTimestamp": "-2"}, (2, 0, 0), (), ()),
        ({"startingOffsetsByTimestamp": '{"t":{"0":31,"1":35,"2":-2}}'}, (4, 3, 0), (), ()),
        ({"startingOffsets": '{"t":"earliest"}'}, (2, 0, 0), (), ()),
        ({"startingOffsets": '{"t":"Latest","other":"earliest"}'}, (8, 4, 0), (), (T0, T1, T2)),
        ({"startingTimestamp": "1970-01-01T00:00:00.025Z", **STRATEGY_LATEST}, (3, 1, 0), (), (T2,)),
    ],
)
def test_a_stream_s_first_offsets(
    starting: dict[str, str],
    offsets: tuple[int, ...],
    given: tuple[TopicPartition, ...],
    at_end: tuple[TopicPartition, ...],
) -> None:
    by_partition = dict(zip((T0, T1, T2), offsets, strict=True))
    assert initial(logs(), **starting) == InitialOffsets(by_partition, frozenset(given), frozenset(at_end))


@pytest.mark.parametrize(
    ("starting", "offsets"),
    [
        ({"startingOffsets": '{"t":{"0":5,"3":1}}'}, (5, 4, 0)),
        ({"startingOffsetsByTimestamp": '{"t":{"0":31,"1":99,"3":1}}'}, (4, 4, 0)),
        ({"startingTimestamp": "41"}, (5, 4, 0)),
    ],
)
def test_positions_that_do_not_fit_can_be_made_to(starting: dict[str, str], offsets: tuple[int, ...]) -> None:
    options = parse_options({**BASE, **starting}, streaming=True)
    found = fitted_initial_offsets(options, OffsetLookup.of(options, logs()))
    assert found.offsets == dict(zip((T0, T1, T2), offsets, strict=True))
    assert found.at_end == {T1, T2}


@pytest.mark.parametrize(
    ("ago", "offsets"),
    [("-1s", (4, 3, 0)), ("-1w", (2, 0, 0))],
    ids=["counted from when the query is planned", "before 1970"],
)
def test_a_relative_start(ago: str, offsets: tuple[int, ...]) -> None:
    options = parse_options({**BASE, "startingTimestamp": ago, **STRATEGY_LATEST}, streaming=True)
    lookup = replace(OffsetLookup.of(options, logs()), now_ms=lambda: 1035)
    by_partition = dict(zip((T0, T1, T2), offsets, strict=True))
    assert initial_offsets(options, lookup) == InitialOffsets(by_partition, frozenset(), frozenset([T2]))


def test_a_query_takes_over_from_a_consumer_group() -> None:
    reader = logs()
    reader.groups["app"] = {T0: 5, T1: 4, T2: 0}
    taken_over = InitialOffsets({T0: 5, T1: 4, T2: 0}, frozenset(), frozenset())
    assert initial(reader, startingOffsets=" Group:app ") == taken_over
    assert ranges(reader, startingOffsets="group:app") == {T0: (5, 8), T1: (4, 4), T2: (0, 0)}


@pytest.mark.parametrize("strategy", [{}, {"startingOffsetsByGroupStrategy": "error"}])
@pytest.mark.parametrize("streaming", [True, False])
def test_partitions_without_a_commit_of_the_group_are_named(strategy: dict[str, str], streaming: bool) -> None:
    reader = logs()
    reader.groups["app"] = {T1: 4}
    with pytest.raises(ConfigurationError, match=r"'app' .*t-0, t-2: .*GroupStrategy"):
        (initial if streaming else ranges)(reader, startingOffsets="group:app", **strategy)


@pytest.mark.parametrize(("strategy", "rest"), [("earliest", 2), ("Latest", 8)])
def test_partitions_without_a_commit_start_where_the_strategy_says(strategy: str, rest: int) -> None:
    reader = logs()
    reader.groups["app"] = {T1: 1, T2: 0}
    found = initial(reader, startingOffsets="group:app", startingOffsetsByGroupStrategy=strategy)
    assert found.offsets == {T0: rest, T1: 1, T2: 0}


def test_what_a_group_has_not_read_and_retention_has_deleted_is_data_loss() -> None:
    reader = logs()
    reader.groups["app"] = {T0: 1, T1: 0, T2: 0}
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE.*offsets 1 to 8 of t-0"):
        ranges(reader, startingOffsets="group:app")


@pytest.mark.contract("1.5 no match at the start", "2.6", "2.7")
@pytest.mark.parametrize("strategy", [{}, {"startingOffsetsByTimestampStrategy": "error"}])
@pytest.mark.parametrize(
    "timestamps", [{"startingTimestamp": "30"}, {"startingOffsetsByTimestamp": '{"t":{"0":30,"1":30,"2":0}}'}]
)
def test_a_timestamp_without_a_match_fails_and_an_empty_partition_never_matches(
    strategy: dict[str, str], timestamps: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError, match=r" t-2: .*startingOffsetsByTimestampStrategy"):
        initial(logs(), **strategy, **timestamps)


@pytest.mark.contract("1.5 all partitions", "2.93")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": '{"t":{"0":1}}'}, r"KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED\].*not named: t-1, t-2"),
        (
            {"startingOffsets": '{"t":{"0":1,"1":1,"2":1,"3":1}}'},
            r"KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED\].*named but not read: t-3",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":1,"1":1}}'},
            r"KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED\] the starting.*not named: t-2",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":1,"1":1,"2":1,"3":1}}'},
            r"KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED\].*named but not read: t-3",
        ),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_a_position_must_name_the_assigned_partitions(given: dict[str, str], said: str, streaming: bool) -> None:
    with pytest.raises(ConfigurationError, match=said):
        (initial if streaming else ranges)(logs(), **given)


@pytest.mark.contract("1.4 no partitions")
def test_a_pattern_without_a_match_starts_nowhere_and_reads_nothing() -> None:
    options = parse_options({"kafka.bootstrap.servers": "b:9092", "subscribePattern": "none"}, streaming=False)
    lookup = OffsetLookup.of(options, logs())
    assert initial_offsets(options, lookup) == InitialOffsets({}, frozenset(), frozenset())
    assert batch_ranges(options, lookup) == {}


# Batch queries


@pytest.mark.contract(
    "1.5 timestamps",
    "1.5 no match at the end",
    "2.58",
    "2.59",
    "2.61",
    "2.62",
    "2.63",
    "2.64",
    "2.65",
    "2.68",
    "2.91",
    "2.92",
)
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [(2, 8), (0, 4), (0, 0)]),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, [(2, 8), (0, 4), (0, 0)]),
        (
            {"startingOffsets": '{"t":{"0":-2,"1":1,"2":0}}', "endingOffsets": '{"t":{"0":5,"1":-1,"2":0}}'},
            [(2, 5), (1, 4), (0, 0)],
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":30,"1":16,"2":-2}}',
                "endingOffsetsByTimestamp": '{"t":{"0":50,"1":26,"2":0}}',
            },
            [(3, 5), (1, 3), (0, 0)],
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":30,"1":16,"2":-2}}',
                "endingOffsets": '{"t":{"0":6,"1":-1,"2":-1}}',
            },
            [(3, 6), (1, 4), (0, 0)],
        ),
        (
            {"startingOffsets": '{"t":{"0":3,"1":0,"2":0}}', "endingOffsetsByTimestamp": '{"t":{"0":50,"1":26,"2":0}}'},
            [(3, 5), (0, 3), (0, 0)],
        ),
        ({"startingOffsetsByTimestamp": '{"t":{"0":30,"1":16,"2":-2}}'}, [(3, 8), (1, 4), (0, 0)]),
        ({"endingOffsetsByTimestamp": '{"t":{"0":50,"1":26,"2":0}}'}, [(2, 5), (0, 3), (0, 0)]),
        (
            {"startingTimestamp": "25", "startingOffsetsByTimestampStrategy": "latest", "endingTimestamp": "35"},
            [(3, 4), (1, 3), (0, 0)],
        ),
        ({"endingTimestamp": "9999"}, [(2, 8), (0, 4), (0, 0)]),
    ],
    ids=[
        "the defaults",
        "earliest to latest",
        "maps with earliest and latest in them",
        "timestamps to timestamps",
        "timestamps to offsets",
        "offsets to timestamps",
        "timestamps to latest",
        "earliest to timestamps",
        "one timestamp to another",
        "an ending timestamp without a match is the end",
    ],
)
def test_what_a_batch_query_reads(given: dict[str, str], expected: list[tuple[int, int]]) -> None:
    assert ranges(logs(), **given) == dict(zip((T0, T1, T2), expected, strict=True))


@pytest.mark.contract("1.5 late binding", "2.57", "2.70")
def test_a_second_run_sees_new_rows_and_a_new_log_start() -> None:
    reader = logs()
    assert ranges(reader)[T1] == (0, 4)
    reader.log(T1).earliest, reader.log(T1).latest = 3, 6
    assert ranges(reader)[T1] == (3, 6)


@pytest.mark.contract("1.5 start beyond the end", "2.76")
@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": '{"t":{"0":6,"1":0,"2":0}}', "endingTimestamp": "50"},
        {"startingOffsets": '{"t":{"0":9,"1":0,"2":0}}'},
        {"endingOffsets": '{"t":{"0":1,"1":0,"2":0}}'},
        {"startingTimestamp": "60", "endingTimestamp": "30", "startingOffsetsByTimestampStrategy": "latest"},
    ],
    ids=["against a timestamp", "against latest", "earliest beyond the end", "timestamps the wrong way round"],
)
@pytest.mark.parametrize("policy", ["true", "false"])
def test_a_start_that_resolves_beyond_its_end_is_refused(given: dict[str, str], policy: str) -> None:
    with pytest.raises(ConfigurationError, match=r"RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\] t-0"):
        ranges(logs(), **given, failOnDataLoss=policy)


@pytest.mark.contract("1.6 range below the log start", "1.6 range beyond the log end")
@pytest.mark.parametrize(
    ("given", "cut"),
    [
        ({"startingOffsets": '{"t":{"0":0,"1":0,"2":0}}'}, (2, 8)),
        ({"endingOffsets": '{"t":{"0":99,"1":-1,"2":-1}}'}, (2, 8)),
    ],
    ids=["below the log start", "beyond the log end"],
)
def test_offsets_out_of_the_log_fail_or_are_cut(given: dict[str, str], cut: tuple[int, int]) -> None:
    with pytest.raises(DataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE\].*t-0"):
        ranges(logs(), **given)
    assert ranges(logs(), **given, failOnDataLoss="false")[T0] == cut


def test_an_end_before_concurrent_writes_is_no_loss() -> None:
    reader = logs()
    matched = reader.for_timestamps

    def while_rows_arrive(timestamps: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        reader.log(T0).latest += 1
        reader.log(T0).timestamps = {**TIMES, 8: 80}
        return matched(timestamps)

    reader.for_timestamps = while_rows_arrive  # type: ignore[method-assign]
    options = parse_options({**BASE, "endingTimestamp": "75"}, streaming=False)
    assert batch_ranges(options, OffsetLookup.of(options, reader))[T0] == OffsetRange(2, 8)

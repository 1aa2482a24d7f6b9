"""Which offsets are compared: what the options say, what the table holds, what the logs still have."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.delta.archive import LONG, options
from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.verification.scope import NO_END, Scope, look_up_scope, narrowed

PARTITION = TopicPartition(LONG, 0)
END = 18_687


def given(**more: str) -> dict[str, str]:
    settings = options(LONG, more)
    if "startingOffsets" not in more:
        del settings["startingOffsets"]
    return settings


def compared(scope: Scope, table: OffsetRange | None) -> OffsetRange:
    return scope.compared({} if table is None else {PARTITION: table})[PARTITION]


def test_the_table_says_where_it_begins_and_ends() -> None:
    scope = look_up_scope(given(), None)
    assert scope.logs == {PARTITION: OffsetRange(0, END)}
    assert scope.needs_table
    assert compared(scope, OffsetRange(5, 900)) == OffsetRange(5, 900)
    assert compared(scope, OffsetRange(5, END + 10)) == OffsetRange(5, END)
    assert len(compared(scope, OffsetRange(END + 5, END + 10))) == 0
    assert len(compared(scope, None)) == 0


@pytest.mark.parametrize("latest", [{"startingOffsets": "latest"}, {"startingoffsets": " LATEST "}])
def test_a_stream_that_began_at_the_end_says_nothing_of_its_start(latest: Mapping[str, str]) -> None:
    settings = {**given(), **latest}
    assert not look_up_scope(settings, None).has_start


def test_what_lies_between_starting_and_ending_options_must_be_there() -> None:
    start = f'{{"{LONG}":{{"0":7}}}}'
    scope = look_up_scope(given(startingOffsets=start, maxOffsetsPerTrigger="5", failOnDataLoss="true"), None)
    assert compared(scope, OffsetRange(20, 900)) == OffsetRange(7, 900)
    assert compared(scope, None) == OffsetRange(7, END)
    both = look_up_scope(given(startingOffsets="earliest", endingOffsets="latest"), None)
    assert not both.needs_table
    assert compared(both, None) == OffsetRange(0, END)


def test_ranges_go_before_options_and_end_with_the_log() -> None:
    ranges = {PARTITION: OffsetRange(10, END + 50)}
    scope = look_up_scope(given(startingTimestamp="1", subscribe="another"), ranges)
    assert not scope.needs_table
    assert scope.table_bounds() == {PARTITION: OffsetRange(10, END)}
    assert compared(scope, None) == OffsetRange(10, END)


def test_a_range_of_a_partition_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=f"{LONG}-7"):
        look_up_scope(given(), {TopicPartition(LONG, 7): OffsetRange(0, 1)})


@pytest.mark.parametrize(("archive", "end"), [(True, 100), (False, NO_END)])
def test_beyond_the_end_of_a_log_nothing_may_be_in_the_table_but_an_archive_may_end_early(
    archive: bool, end: int
) -> None:
    log = {PARTITION: OffsetRange(40, 100)}
    scope = Scope(log, log, has_start=False, has_end=False, assigned=False, archive=archive)
    assert scope.table_bounds() == {PARTITION: OffsetRange(40, end)}


def test_narrowed_options_read_the_ranges_and_nothing_else() -> None:
    ranges = {TopicPartition("b", 1): OffsetRange(3, 9), TopicPartition("a", 0): OffsetRange(0, 0)}
    settings = {
        "SUBSCRIBE": "a", "startingtimestamp": "5", "endingOffsets": "latest", "failondataloss": "false",
        "maxOffsetsPerTrigger": "9", "kafka.bootstrap.servers": "b:1",
    }  # fmt: skip
    assert narrowed(settings, ranges) == {
        "kafka.bootstrap.servers": "b:1",
        "assign": '{"a":[0],"b":[1]}',
        "startingOffsets": '{"a":{"0":0},"b":{"1":3}}',
        "endingOffsets": '{"a":{"0":0},"b":{"1":9}}',
    }

from __future__ import annotations

import pytest

from tiered_stream.errors import ConfigurationError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.given_options import GivenOptions
from tiered_stream.options.offset_json import (
    offsets_from_dict,
    offsets_to_dict,
    offsets_to_json,
    parse_partition_timestamps,
    parse_partitions,
    parse_specific_offsets,
)
from tiered_stream.options.remote_options import ENDING_OFFSETS
from tiered_stream.options.spark_options import ASSIGN, STARTING_OFFSETS_BY_TIMESTAMP

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.contract("1.4 offset JSON", "1.4 forms of JSON", "2.97")
@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ('{"t":{"0":6}}', {T0: 6}),
        (' { "t" : { "0" : 6 , "1" : -1 } } ', {T0: 6, T1: -1}),
        ('{"t":{"0":-2},"Ünï":{"0":9223372036854775807}}', {T0: -2, TopicPartition("Ünï", 0): 2**63 - 1}),
        ('{"t":{"0":1.9,"1":-1.9}}', {T0: 1, T1: -1}),
        ('{"t":{"0":1,"0":2}}', {T0: 2}),
        ('{"t":{"0":1},"t":{"1":2}}', {T1: 2}),
        ('{"t":{}}', {}),
        ("{}", {}),
        ('{"t":null}', {}),
        ('{"t":{"0":null}}', {T0: 0}),
        ('{"t":{"0":1e2,"+1":-0.5}}', {T0: 100, T1: 0}),
        ('{"t":{"00":7,"\u0661":8}}', {T0: 7, T1: 8}),
    ],
)
def test_offset_json_is_read_as_spark_reads_it(text: str, offsets: dict[TopicPartition, int]) -> None:
    assert parse_specific_offsets(text) == (offsets, {})


@pytest.mark.contract("1.4 forms of JSON")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "earliest-ish",
        '{"t":{"0":"6"}}',
        "{'t':{'0':6}}",
        '{"t":{"0":true}}',
        '{"t":{" 0":6}}',
        '{"t":{"1_0":6}}',
        "null",
        '{"t":{"0":6}}{"u":{"0":7}}',
        '{"t":[0]}',
        '{"t":6}',
        "[]",
        '{"t":{"zero":6}}',
        '{"t":{"-1":6}}',
        '{"t":{"2147483648":6}}',
        '{"t":{"0":9223372036854775808}}',
        '{"t":{"0":1e300}}',
        '{"t":{"0":-3}}',
        '{"t":{"0":6}',
        '{"t":{"²":6}}',
        "[" * 5000,
    ],
)
def test_malformed_offset_json_names_the_option_and_shows_the_form(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r'remote\.stream\.ending\.offsets: .*"topicB":\{"0":23') as raised:
        GivenOptions({ENDING_OFFSETS.name: text}).read(ENDING_OFFSETS)
    assert len(str(raised.value)) < 600


def test_timestamps_by_partition_are_read() -> None:
    timestamps = parse_partition_timestamps('{"t":{"0":1718000000000,"1":-5}}')
    assert timestamps == {T0: 1718000000000, T1: -5}


def test_a_malformed_timestamp_map_says_that_it_wants_milliseconds() -> None:
    with pytest.raises(ConfigurationError, match=r"option startingOffsetsByTimestamp: .*milliseconds"):
        GivenOptions({STARTING_OFFSETS_BY_TIMESTAMP.name: '{"t":{"0":"2024-06-10"}}'}).read(
            STARTING_OFFSETS_BY_TIMESTAMP
        )


@pytest.mark.contract("1.2 assign", "1.4 forms of JSON", "2.97")
@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ('{"t":[0,1]}', (T0, T1)),
        ('{"t":[1,0,1]}', (T1, T0)),
        ('{"t":[0.7],"u":[5]}', (T0, TopicPartition("u", 5))),
        ('{"t":[null,-1]}', (T0, TopicPartition("t", -1))),
        ('{"t":[],"u":null}', ()),
        ("{}", ()),
    ],
)
def test_assigned_partitions_are_read(text: str, partitions: tuple[TopicPartition, ...]) -> None:
    assert parse_partitions(text) == partitions


@pytest.mark.contract("1.4 forms of JSON")
@pytest.mark.parametrize(
    "text", ["", "t", "null", '{"t":["0"]}', '{"t":{"0":1}}', '{"t":[2147483648]}', '{"t":[4294967296]}', '{"t":[0]}x']
)
def test_a_malformed_assign_names_the_option_and_shows_the_form(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r'option assign: .*\{"topicA":\[0,1\]'):
        GivenOptions({ASSIGN.name: text}).read(ASSIGN)


@pytest.mark.contract("1.4 offset JSON", "2.97")
def test_offset_json_is_written_without_spaces_in_numeric_order() -> None:
    offsets = {TopicPartition("t", 10): 1, TopicPartition("t", 9): 2, TopicPartition("s", 0): 3}
    assert offsets_to_json(offsets) == '{"s":{"0":3},"t":{"9":2,"10":1}}'
    assert parse_specific_offsets(offsets_to_json(offsets)) == (offsets, {})
    assert offsets_from_dict(offsets_to_dict(offsets)) == offsets


def test_an_offset_range_refuses_an_end_before_its_start() -> None:
    with pytest.raises(ValueError, match="5.* 4"):
        OffsetRange(5, 4)


def test_the_intersection_of_disjoint_ranges_is_empty() -> None:
    assert OffsetRange(0, 5).intersect(OffsetRange(3, 9)) == OffsetRange(3, 5)
    assert len(OffsetRange(0, 5).intersect(OffsetRange(7, 9))) == 0


@pytest.mark.parametrize(
    "offsets", [None, 7, "t", [], {"t": 7}, {"t": None}, {"t": {"x": 1}}, {"t": {"-1": 1}}, {"t": {"0": -1}},
                {"t": {"0": "1"}}, {"t": {"0": 1.5}}, {"t": {"0": True}}, {"t": {"0": 2**63}}, {"t": {"٣": 1}}]
)  # fmt: skip
def test_offsets_of_a_checkpoint_that_was_altered_are_refused(offsets: object) -> None:
    with pytest.raises(ConfigurationError, match="the checkpoint's offsets"):
        offsets_from_dict(offsets)  # type: ignore[arg-type]

"""Records that the compiled scan reads, next to the same records in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.locate.segments import named_partitions
from tests.rigs.stack.batches import record_batch
from tests.rigs.stack.rows import Record
from tests.tier.metadata import delete_record, segment_record, update_record
from tiered_stream.locate.metadata_topic.remote_log_metadata import RemoteLogSegmentState, TopicIdPartition
from tiered_stream.locate.metadata_topic.segment_table import TopicState, apply_record, apply_rows
from tiered_stream.locate.segment_columns import Segments
from tiered_stream.model import LeaderEpoch, RemoteLogSegment, TopicPartition
from tiered_stream.records.value_scan import scan_values
from tiered_stream.records.values import read_values

NAME, TOPIC_ID = "orders", UUID(int=99 << 64 | 7)
PARTITION = TopicPartition(NAME, 3)
HERE, WHERE = TopicIdPartition(TOPIC_ID, PARTITION), TopicPartition("__remote_log_metadata", 0)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
SEGMENT = RemoteLogSegment(PARTITION, TOPIC_ID, UUID(int=3), 5, 9000, 77, 7, (LeaderEpoch(1, 5),))
LARGEST = RemoteLogSegment(
    TopicPartition(NAME, (1 << 31) - 1), TOPIC_ID, UUID(int=(1 << 128) - 1), (1 << 62) - 2, (1 << 62) - 1,
    (1 << 31) - 1, (1 << 63) - 1, (LeaderEpoch((1 << 31) - 2, 0), LeaderEpoch((1 << 31) - 1, (1 << 63) - 1)), True,
)  # fmt: skip
BEYOND = replace(LARGEST, end_offset=(1 << 63) - 2, max_timestamp=-(1 << 63), segment_id=UUID(int=1 << 127))
SMALLEST = replace(SEGMENT, base_offset=0, end_offset=0, size=0, max_timestamp=-1, leader_epochs=(LeaderEpoch(0, 0),))
MANY_EPOCHS = replace(SEGMENT, leader_epochs=tuple(LeaderEpoch(epoch, 5 + epoch) for epoch in range(126)))
CUSTOM = [None, b"", b"\0", b"\0plugin\0" * 10, b"x" * 126, b"x" * 127, b"x" * 16_382, b"x" * 16_383, b"\xff" * 70_000]


def log(values: Sequence[bytes]) -> bytes:
    return b"".join(record_batch([Record(None, each)], base_offset=at) for at, each in enumerate(values))


def told(values: Sequence[bytes], *, compiled: bool, position: int = 0) -> tuple[TopicState, int]:
    """What the values tell of the topic, and how many of them were rows of the compiled scan."""
    topics, rows = {TOPIC_ID.bytes: TopicState(position, NAME)}, 0
    for _, read in scanned(values) if compiled else read_values(log(values)):
        for each in read:
            if isinstance(each, tuple):
                apply_record(topics, WHERE, each[0], each[1] or b"")
            else:
                rows += len(each.offsets)
                apply_rows(topics, each, 0, len(values))
    return topics[TOPIC_ID.bytes], rows


def scanned(values: Sequence[bytes]) -> Iterator[tuple[int, Any]]:
    return scan_values(log(values), {TOPIC_ID.bytes: NAME})


def said(topic: TopicState) -> list[Any]:
    """All that a state says."""
    named = sorted(named_partitions(topic.table))
    return [
        (each, str(topic.fault_of(each)), sorted(topic.table.tracked(each), key=str), topic.table.lone_updates(each))
        for each in (*named, HERE)
    ]


@pytest.mark.parametrize("segment", [SEGMENT, SMALLEST, LARGEST, BEYOND, MANY_EPOCHS])
def test_values_at_the_bounds_of_the_columns_come_back(segment: RemoteLogSegment) -> None:
    assert [*Segments.of([segment] * 2)] == [segment] * 2
    values = [segment_record(segment), update_record(segment)]
    topic, rows = told(values, compiled=True)
    here = TopicIdPartition(TOPIC_ID, segment.topic_partition)
    assert [*topic.table.segments(here)] == [segment] and rows == (1 if segment is BEYOND else 2)
    assert said(topic) == said(told(values, compiled=False)[0])


@pytest.mark.parametrize("custom", CUSTOM)
def test_custom_metadata_of_any_length_comes_back(custom: bytes | None) -> None:
    others = [replace(SEGMENT, segment_id=UUID(int=number), custom_metadata=b"other") for number in (1, 2)]
    mine = replace(SEGMENT, custom_metadata=custom)
    values = [segment_record(each) for each in (others[0], SEGMENT, others[1])]
    values += [update_record(each) for each in (others[1], mine, others[0])]
    topic, rows = told(values, compiled=True)
    assert sorted(topic.table.segments(HERE), key=lambda each: each.segment_id) == [*others, mine]
    assert rows == (6 if len(custom or b"") < 16_383 else 5)
    assert [*told([segment_record(mine, FINISHED)], compiled=True)[0].table.segments(HERE)] == [mine]


@pytest.mark.parametrize("kind", ["segment", "segment of two epochs", "update"])
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_usual_record_with_any_changed_byte_is_read_as_in_plain_python(kind: str, is_empty: bool) -> None:
    segment = replace(
        SEGMENT, transaction_index_empty=is_empty, custom_metadata=b"custom" if kind == "update" else None
    )
    if kind == "segment of two epochs":
        segment = replace(segment, leader_epochs=(LeaderEpoch(1, 5), LeaderEpoch(4, 6)))
    usual = update_record(segment) if kind == "update" else segment_record(segment)
    values = [usual, usual[:-1], usual + b"\0"]
    values += [
        usual[:at] + bytes((byte,)) + usual[at + 1 :] for at in range(len(usual)) for byte in (0, 1, 3, 127, 255)
    ]
    assert told(values[:1], compiled=True)[1] == 1
    for value in values:
        both = [segment_record(segment), value] if kind == "update" else [value]
        assert said(told(both, compiled=True)[0]) == said(told(both, compiled=False)[0]), value


def test_a_record_with_the_topics_id_and_another_name_tells_nothing_of_the_topic() -> None:
    other = replace(SEGMENT, topic_partition=PARTITION._replace(topic="others"), leader_epochs=(LeaderEpoch(9, 5),))
    values = [segment_record(SEGMENT, FINISHED), segment_record(other, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)]
    for compiled in (True, False):
        assert [*told(values, compiled=compiled)[0].table.segments(HERE)] == [SEGMENT]


@pytest.mark.parametrize(("size", "is_row"), [(126, True), (127, False)])
def test_a_long_name_is_compared_whole(size: int, is_row: bool) -> None:
    """A name of 127 bytes begins with the name of 126 bytes, which belongs to no topic that is read."""
    record = segment_record(replace(SEGMENT, topic_partition=TopicPartition("n" * 126, 3)), FINISHED)
    ((_, read),) = scan_values(log([record]), {TOPIC_ID.bytes: "n" * size})
    assert [not isinstance(each, tuple) for each in read] == [is_row]


def test_rows_and_odd_records_are_applied_in_their_order() -> None:
    long = replace(SEGMENT, custom_metadata=bytes(20_000))
    usual, odd = update_record(replace(SEGMENT, custom_metadata=b"usual")), update_record(long)
    for values, last in (([usual, odd], long.custom_metadata), ([odd, usual], b"usual")):
        topic, rows = told([segment_record(SEGMENT), *values], compiled=True)
        assert [each.custom_metadata for each in topic.table.segments(HERE)] == [last] and rows == 2
    assert not told([segment_record(SEGMENT, FINISHED), delete_record(HERE), usual], compiled=True)[0].table.tracked(
        HERE
    )


def test_an_end_offset_of_an_update_is_read_in_plain_python() -> None:
    update = update_record(replace(SEGMENT, custom_metadata=b"custom"), version=1, end_offset=99)
    topic, rows = told([update], compiled=True)
    (alone,) = topic.table.lone_updates(HERE)
    assert (alone.segment_id, alone.end_offset, alone.custom_metadata) == (UUID(int=3), 99, b"custom") and rows == 0


def test_records_below_a_topics_position_are_left_out() -> None:
    values = [segment_record(replace(SEGMENT, segment_id=UUID(int=number)), FINISHED) for number in range(1, 11)]
    topic, rows = told(values, compiled=True, position=4)
    assert {each.segment_id.int for each in topic.table.segments(HERE)} == set(range(5, 11)) and rows == 10


def test_more_values_than_one_scan_lists_are_all_read() -> None:
    count = 20_000
    whose = [replace(SEGMENT, segment_id=UUID(int=number), base_offset=number, end_offset=number) for number in (1, 2)]
    templates = [record_batch([Record(None, segment_record(each, FINISHED))]) for each in whose]
    data = b"".join(templates * (count // 2))
    found = [len(each.offsets) for _, read in scan_values(data, {TOPIC_ID.bytes: NAME}) for each in _rows(read)]
    assert count - 1 <= sum(found) <= count and max(found) == 1 << 14


def _rows(read: Iterator[Any]) -> Iterator[Any]:
    return (each for each in read if not isinstance(each, tuple))

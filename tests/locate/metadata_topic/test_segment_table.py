"""What the metadata records add up to."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from uuid import UUID

import pytest

from tests.golden import NAMES, golden
from tests.locate.golden_locator import golden_table
from tests.locate.log_model import TOPIC_ID
from tests.locate.segments import PARTITION, segment
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    PartitionDelete,
    RemoteLogMetadata,
    RemoteLogSegmentState,
    SegmentMetadata,
    SegmentMetadataUpdate,
    TopicIdPartition,
)
from tiered_stream.locate.metadata_topic.segment_table import SegmentTable
from tiered_stream.records.flexible_versions import Reader

HERE = TopicIdPartition(TOPIC_ID, PARTITION)
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED

FIRST = replace(segment(1, 0, 100), topic_id=TOPIC_ID)


def table(*states: RemoteLogSegmentState) -> SegmentTable:
    """A table that was told of `FIRST`, whose copy started, and then of each state."""
    made = SegmentTable()
    made.apply(SegmentMetadata(HERE, FIRST, STARTED))
    for state in states:
        made.apply(SegmentMetadataUpdate(HERE, FIRST.segment_id, state, b"custom"))
    return made


def test_a_segment_counts_from_the_end_of_its_copy_to_the_start_of_its_deletion() -> None:
    assert [*table().segments(HERE)] == []
    assert [*table(FINISHED).segments(HERE)] == [replace(FIRST, custom_metadata=b"custom")]
    assert [*table(FINISHED, DELETING).segments(HERE)] == []
    assert [*table(FINISHED, DELETING, DELETED).segments(HERE)] == []
    assert [*table(DELETING, DELETED).segments(HERE)] == []


def test_a_deleted_segment_does_not_come_back() -> None:
    assert [*table(FINISHED, DELETING, FINISHED).segments(HERE)] == []


def test_a_repeated_start_does_not_hide_a_finished_segment() -> None:
    told_again = table(FINISHED)
    told_again.apply(SegmentMetadata(HERE, FIRST, STARTED))
    assert len(told_again.segments(HERE)) == 1


def test_an_update_of_an_unknown_segment_says_nothing() -> None:
    made = SegmentTable()
    made.apply(SegmentMetadataUpdate(HERE, FIRST.segment_id, FINISHED, None))
    assert [*made.segments(HERE)] == []


def update(number: int, end_offset: int | None, state: RemoteLogSegmentState = FINISHED) -> SegmentMetadataUpdate:
    return SegmentMetadataUpdate(HERE, UUID(int=number), state, b"custom", end_offset)


def kept(made: SegmentTable) -> SegmentTable:
    again = SegmentTable()
    for topic_id in {partition.topic_id for partition in made.partitions()}:
        again.unpack(Reader(made.packed(topic_id)), topic_id.bytes)
    return again


def told_of(*records: RemoteLogMetadata) -> SegmentTable:
    made = SegmentTable()
    for each in records:
        made.apply(each)
    return made


def test_an_update_alone_says_that_a_segment_is_there_and_which_it_follows() -> None:
    made = told_of(update(3, 299), SegmentMetadata(HERE, segment(1, 0, 100), FINISHED), update(2, 199), update(4, None))
    assert [(each.segment.segment_id.int, each.end_before) for each in made.lone_updates(HERE)] == [
        (4, None),
        (2, 99),
        (3, 199),
    ]
    assert told_of(update(2, 199)).lone_updates(HERE)[0].end_before is None
    assert made.lone_updates(HERE._replace(topic_id=UUID(int=9))) == ()


def test_an_update_alone_is_none_any_more_when_more_is_said() -> None:
    for state in (DELETING, DELETED):
        assert not told_of(update(1, 99), update(1, 99, state)).lone_updates(HERE)
        assert not told_of(update(1, 99, state)).lone_updates(HERE)
    made = told_of(update(1, 99), SegmentMetadata(HERE, FIRST, STARTED))
    assert [*made.segments(HERE)] == [replace(FIRST, custom_metadata=b"custom")] and not made.lone_updates(HERE)
    assert not table(DELETING, FINISHED).lone_updates(HERE)
    assert not told_of(update(1, 99), PartitionDelete(HERE)).lone_updates(HERE)


def test_a_summary_keeps_updates_that_are_alone() -> None:
    made = told_of(update(1, 99), update(2, None), SegmentMetadata(HERE, segment(3, 200, 300), FINISHED))
    again = kept(made)
    assert again.lone_updates(HERE) == made.lone_updates(HERE) and [*again.segments(HERE)] == [*made.segments(HERE)]


def test_a_deleted_partition_has_no_segments_whatever_is_said_later() -> None:
    made = table(FINISHED)
    made.apply(PartitionDelete(HERE))
    made.apply(SegmentMetadata(HERE, segment(2, 100, 200), FINISHED))
    assert [*made.segments(HERE)] == []


@pytest.mark.parametrize("states", [(), (FINISHED,), (FINISHED, DELETING), (DELETING, DELETED)])
def test_a_summary_of_a_table_adds_up_to_the_same(states: tuple[RemoteLogSegmentState, ...]) -> None:
    first = table(*states)
    first.apply(SegmentMetadata(HERE, segment(2, 100, 200), FINISHED))
    first.apply(PartitionDelete(HERE._replace(topic_partition=PARTITION._replace(partition=9))))
    again = kept(first)
    assert {each: again.tracked(each) for each in again.partitions()} == {
        each: first.tracked(each) for each in first.partitions()
    }
    assert again.packed(TOPIC_ID) == first.packed(TOPIC_ID)


@pytest.mark.parametrize("name", NAMES)
def test_the_golden_topic_adds_up_to_the_segments_in_the_bucket(name: str) -> None:
    told = {(str(each.topic_partition), each.base_offset) for listed in golden_table(name).values() for each in listed}
    there = {
        (f"{path.parts[-3][:-23]}-{path.parts[-2]}", int(path.name[:20])) for path in golden(name).bucket.rglob("*.log")
    }
    assert told == there


def test_what_is_being_copied_or_deleted_is_tracked_until_it_is_gone() -> None:
    def state(*states: RemoteLogSegmentState) -> list[RemoteLogSegmentState]:
        return [at for _, at in table(*states).tracked(HERE)]

    assert state() == [STARTED]
    assert state(FINISHED) == state(FINISHED, STARTED) == [FINISHED]
    assert state(FINISHED, DELETING) == state(DELETING) == state(FINISHED, DELETING, FINISHED) == [DELETING]
    assert state(DELETING, DELETED) == state(FINISHED, DELETED) == []


def test_a_table_is_read_while_another_thread_applies_records() -> None:
    """A segment that is copied once is always tracked, and a reader never meets a change."""
    made, ended = SegmentTable(), threading.Event()
    made.apply(SegmentMetadata(HERE, segment(1, 0, 100), FINISHED))
    again = replace(segment(1, 0, 100), custom_metadata=b"again")
    alone = [SegmentMetadataUpdate(HERE, UUID(int=number), FINISHED, None, number) for number in range(100, 400)]
    gone = [replace(each, state=DELETED) for each in alone]

    def write() -> None:
        while not ended.is_set():
            for record in (
                SegmentMetadata(HERE, again, DELETING),
                SegmentMetadata(HERE, again, FINISHED),
                *alone,
                *gone,
            ):
                made.apply(record)

    writer = threading.Thread(target=write)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    writer.start()
    try:
        for _ in range(300):
            assert any(tracked.segment_id == again.segment_id for tracked, _ in made.tracked(HERE))
            made.lone_updates(HERE)
            made.packed(TOPIC_ID)
    finally:
        ended.set()
        writer.join()
        sys.setswitchinterval(interval)

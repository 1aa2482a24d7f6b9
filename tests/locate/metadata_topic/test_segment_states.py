"""What metadata records add up to: the table next to a model with one object for each segment, as Kafka's cache has."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from itertools import chain, product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import NAMES, golden
from tests.locate.golden_locator import golden_table
from tests.locate.segments import PARTITION, named_partitions, segment
from tests.tier.metadata import decoded_update
from tests.tier.segments import TOPIC_ID
from tiered_stream.errors import CorruptDataError
from tiered_stream.locate.metadata_topic import segment_table
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    PartitionDelete,
    RemoteLogMetadata,
    RemoteLogSegmentState,
    SegmentMetadata,
    TopicIdPartition,
)
from tiered_stream.locate.metadata_topic.segment_table import SegmentTable
from tiered_stream.locate.segment_columns import Segments
from tiered_stream.model import RemoteLogSegment
from tiered_stream.records.flexible_versions import Reader

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
HERE, _ = PARTITIONS = [TopicIdPartition(TOPIC_ID, PARTITION._replace(partition=number)) for number in range(2)]


class Model:
    """State of one partition."""

    def __init__(self) -> None:
        self.known: dict[UUID, tuple[RemoteLogSegment, RemoteLogSegmentState]] = {}
        self.alone: dict[UUID, SegmentMetadata] = {}
        self.deleted = False

    def apply(self, record: RemoteLogMetadata) -> None:
        if isinstance(record, PartitionDelete):
            self.__init__()  # type: ignore[misc]
            self.deleted = True
        elif not self.deleted and record.is_update:
            self._update(record)
        elif not self.deleted:
            self._move(record.segment, record.state)

    def _update(self, update: SegmentMetadata) -> None:
        segment_id = update.segment.segment_id
        segment, at = self.known.get(segment_id, (None, None))
        if segment is not None and at is not DELETING:
            self._move(replace(segment, custom_metadata=update.segment.custom_metadata), update.state)
        elif update.state is not FINISHED:
            if update.state is DELETED:
                self.known.pop(segment_id, None)
            self.alone.pop(segment_id, None)
        elif segment is None:
            self.alone[segment_id] = update

    def _move(self, segment: RemoteLogSegment, target: RemoteLogSegmentState) -> None:
        alone = self.alone.pop(segment.segment_id, None)
        if target is STARTED:
            if alone is not None:
                segment, target = replace(segment, custom_metadata=alone.segment.custom_metadata), alone.state
            elif self.known.get(segment.segment_id, (None, None))[1] is FINISHED:
                return
        self.known.pop(segment.segment_id, None)
        if target is not DELETED:
            self.known[segment.segment_id] = segment, target


NUMBERS, STATES = st.integers(1, 3), st.sampled_from(RemoteLogSegmentState)
CUSTOM = st.sampled_from([None, b"", b"\0a", b"longer"])


@st.composite
def records(draw: st.DrawFn) -> RemoteLogMetadata:
    """Of few segments, whose ids occur in both partitions."""
    partition, number = draw(st.sampled_from(PARTITIONS)), draw(NUMBERS)
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return PartitionDelete(partition)
    if kind < 5:
        epochs = draw(st.sampled_from([((0, 0),), ((0, 0), (3, 7))]))
        made = segment(number, draw(st.integers(0, 5)), 10 * number, epochs)
        made = replace(made, topic_partition=partition.topic_partition, custom_metadata=draw(CUSTOM))
        return SegmentMetadata(partition, made, draw(STATES))
    end = draw(st.sampled_from([-1, 10 * number]))
    return decoded_update(partition, UUID(int=number), draw(STATES), draw(CUSTOM), end)


def told_of(*records: RemoteLogMetadata) -> SegmentTable:
    table = SegmentTable()
    for record in records:
        table.apply(record)
    return table


def kept(table: SegmentTable) -> SegmentTable:
    again = SegmentTable()
    again.unpack(Reader(table.packed(TOPIC_ID)), TOPIC_ID.bytes)
    return again


def agrees(table: SegmentTable, models: dict[TopicIdPartition, Model]) -> None:
    for partition, model in models.items():
        tracked = {each.segment_id: (each, state) for each, state in table.tracked(partition)}
        assert tracked == model.known
        finished = {each.segment_id: each for each in table.segments(partition)}
        assert finished == {key: each for key, (each, state) in model.known.items() if state is FINISHED}
        alone = {each.segment_id: each for each in table.lone_updates(partition)}
        assert {key: (each.custom_metadata, each.end_offset) for key, each in alone.items()} == {
            key: (each.segment.custom_metadata, each.segment.end_offset) for key, each in model.alone.items()
        }


FIRST = segment(1, 0, 100)


def update(number: int, end_offset: int, state: RemoteLogSegmentState = FINISHED) -> SegmentMetadata:
    return decoded_update(HERE, UUID(int=number), state, b"custom", end_offset)


def test_up_to_three_records_of_a_segment_in_any_order_lead_to_the_models_state() -> None:
    kinds = [PartitionDelete(HERE), *(make(state) for state in RemoteLogSegmentState for make in (
        lambda state: SegmentMetadata(HERE, FIRST, state), lambda state: update(1, 99, state)
    ))]  # fmt: skip
    for history in chain.from_iterable(product(kinds, repeat=length) for length in range(1, 4)):
        model = Model()
        for record in history:
            model.apply(record)
        agrees(told_of(*history), {HERE: model})


@given(st.lists(st.tuples(records(), st.integers(0, 5)), max_size=25))
def test_records_in_any_order_lead_to_the_models_state(history: list[tuple[RemoteLogMetadata, int]]) -> None:
    """Now and then the table is asked for its segments, or kept, before the rest is applied."""
    table, models = SegmentTable(), {partition: Model() for partition in PARTITIONS}
    for record, then in history:
        table.apply(record)
        models[record.partition].apply(record)
        if then == 0:
            agrees(table, models)
        elif then == 1:
            table = kept(table)
    agrees(table, models)
    agrees(kept(table), models)


@given(st.lists(records(), max_size=25))
def test_rows_that_are_applied_early_lead_to_the_same_state(history: list[RemoteLogMetadata]) -> None:
    early, late = SegmentTable(), SegmentTable()
    for record in history:
        early.apply(record)
        early.segments(record.partition)
        late.apply(record)
    for partition in PARTITIONS:
        assert set(early.tracked(partition)) == set(late.tracked(partition))
        assert early.lone_updates(partition) == late.lone_updates(partition)


def test_the_segments_are_the_same_object_until_a_record_of_their_partition_comes() -> None:
    table = told_of(*(SegmentMetadata(partition, segment(1, 0, 100), FINISHED) for partition in PARTITIONS))
    first, second = (table.segments(partition) for partition in PARTITIONS)
    assert table.segments(PARTITIONS[0]) is first
    table.apply(SegmentMetadata(PARTITIONS[1], segment(2, 100, 200), FINISHED))
    assert table.segments(PARTITIONS[0]) is first and table.segments(PARTITIONS[1]) is not second


def test_rows_do_not_wait_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_table, "_MIN_SETTLED", 100)
    table = SegmentTable()
    for number in range(1, 10_000):
        for state in (FINISHED, DELETED):
            table.apply(SegmentMetadata(PARTITIONS[0], segment(1 + number % 50, 0, 100), state))
        assert table._count <= 100
    assert not table.tracked(PARTITIONS[0])


def test_many_records_of_one_segment_are_applied_one_after_the_other() -> None:
    table = SegmentTable()
    for number in range(1, 1001):
        table.apply(SegmentMetadata(PARTITIONS[0], segment(1, 0, number), STARTED))
    table.apply(decoded_update(PARTITIONS[0], UUID(int=1), FINISHED, b"last"))
    (found,) = table.segments(PARTITIONS[0])
    assert (found.end_offset, found.custom_metadata) == (999, b"last")


@given(st.lists(records(), min_size=1, max_size=12), st.data())
def test_a_kept_table_that_was_altered_is_refused_or_is_a_table(
    history: list[RemoteLogMetadata], data: st.DataObject
) -> None:
    table = told_of(*history)
    whole, found = bytearray(table.packed(TOPIC_ID)), SegmentTable()
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found.unpack(Reader(bytes(whole[: data.draw(st.integers(len(whole) // 2, len(whole)))])), TOPIC_ID.bytes)
    except CorruptDataError:
        assert not named_partitions(found)
        return
    for partition in named_partitions(found):
        for each in found.segments(partition):
            assert 0 <= each.base_offset <= each.end_offset and each.leader_epochs
    assert kept(found).packed(TOPIC_ID) == found.packed(TOPIC_ID)


def test_columns_keep_no_memory_of_rows_that_are_left_out() -> None:
    segments = [replace(segment(number, 0, 9, ((0, 0), (1, 1))), custom_metadata=b"x" * 9) for number in range(1, 101)]
    found = Segments.of(segments)[10:12]
    assert list(found) == segments[10:12] and len(found.data) == 2 * (2 * 13 + 9)
    assert found.rows.base is None and found.data.base is None


def test_an_update_alone_says_that_a_segment_is_there_and_which_it_follows() -> None:
    made = told_of(update(3, 299), SegmentMetadata(HERE, FIRST, FINISHED), update(2, 199), update(4, -1))
    assert [(each.segment_id.int, each.base_offset) for each in made.lone_updates(HERE)] == [
        (4, -1),
        (2, 100),
        (3, 200),
    ]
    assert told_of(update(2, 199)).lone_updates(HERE)[0].base_offset == -1
    assert made.lone_updates(HERE._replace(topic_id=UUID(int=9))) == ()


@pytest.mark.parametrize("name", NAMES)
def test_the_golden_topic_adds_up_to_the_segments_in_the_bucket(name: str) -> None:
    told = {(str(each.topic_partition), each.base_offset) for listed in golden_table(name).values() for each in listed}
    there = {
        (f"{path.parts[-3][:-23]}-{path.parts[-2]}", int(path.name[:20])) for path in golden(name).bucket.rglob("*.log")
    }
    assert told == there


def test_a_table_is_read_while_another_thread_applies_records() -> None:
    """A segment that is copied once is always tracked, and a reader never meets a change."""
    made, ended = told_of(SegmentMetadata(HERE, FIRST, FINISHED)), threading.Event()
    again = replace(FIRST, custom_metadata=b"again")
    alone = [decoded_update(HERE, UUID(int=number), FINISHED, None, number) for number in range(100, 400)]
    gone = [replace(each, state=DELETED) for each in alone]

    def write() -> None:
        while not ended.is_set():
            states = [SegmentMetadata(HERE, again, state) for state in (DELETING, FINISHED)]
            for record in (*states, *alone, *gone):
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

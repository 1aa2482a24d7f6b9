"""Which topics a record of the metadata topic concerns."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import NAMES, golden
from tests.locate.metadata_topic.scripted_tier import segment_record
from tests.locate.segments import named_partitions
from tiered_stream.locate.metadata_topic.remote_log_metadata import partition_of, topic_id_of
from tiered_stream.locate.metadata_topic.segment_table import TopicState, apply_record
from tiered_stream.model import TopicPartition, is_topic_name

WHERE = TopicPartition("__remote_log_metadata", 0)
TOPIC_IDS = [UUID(int=number << 64 | 0xABC) for number in range(1, 2_001)]


class Searched(bytes):
    """A value that counts how often it was searched."""

    searches = 0

    def __contains__(self, wanted: Any) -> bool:
        self.searches += 1
        return super().__contains__(wanted)


@pytest.mark.parametrize("topic_id", [TOPIC_IDS[700], UUID(int=77)], ids=["wanted", "another's"])
def test_a_record_is_not_searched_for_each_of_many_topics(topic_id: UUID) -> None:
    topics = {each.bytes: TopicState(0) for each in TOPIC_IDS}
    value = Searched(segment_record("orders", topic_id, 0))
    apply_record(topics, WHERE, 0, value)
    assert value.searches == 0
    assert [each for each, told in topics.items() if named_partitions(told.table)] == [topic_id.bytes] * (
        topic_id in TOPIC_IDS
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_id_of_a_whole_record_is_read_where_it_stands(name: str) -> None:
    for _, _, value in golden(name).remote_log_metadata():
        named = partition_of(value)
        assert named is not None and topic_id_of(value) == named.topic_id.bytes


@given(st.data())
def test_a_record_whose_id_is_read_names_that_topic_or_no_legal_one(data: st.DataObject) -> None:
    value = bytearray(segment_record("orders", TOPIC_IDS[0], 0))
    for _ in range(data.draw(st.integers(0, 3))):
        value[data.draw(st.integers(0, 40))] = data.draw(st.integers(0, 255))
    whole = bytes(value[: data.draw(st.integers(0, len(value)))])
    named, found = partition_of(whole), topic_id_of(whole)
    if named is None and found is not None:
        assert not is_topic_name(whole[4 : 3 + whole[3]].decode())
    else:
        assert found in (None, named and named.topic_id.bytes)

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from tests.broker.responses import fetch_response, fetched_partition
from tests.broker.scripted import TOPIC_ID, FetchRequest, MetadataRequest, ScriptedClient, led, metadata
from tiered_stream.broker.location_fetch import LocationTerms, locate_segments
from tiered_stream.broker.record_fetch import fetch_first_batches
from tiered_stream.broker.wire.location_messages import FetchTopic, LocatedPartition, LocationFetchResponse
from tiered_stream.errors import OffsetOutOfRangeError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel

COMMITTED = IsolationLevel.READ_COMMITTED
OFFSETS = {TopicPartition("t", number): 10 * number for number in range(3)}


def answer(sizes: dict[int, int], errors: dict[int, int] | None = None) -> Any:
    """A broker that has a batch of so many bytes in each partition, and gives it where it is allowed to be so large."""

    def partition(asked: Any) -> Any:
        size = sizes[asked.partition]
        records = b"x" * size if size <= asked.partition_max_bytes else b""
        return fetched_partition(asked.partition, 100, records, error_code=(errors or {}).get(asked.partition, 0))

    def give(node_id: int, message: Any) -> Any:
        if isinstance(message, MetadataRequest):
            return metadata(partitions=3)
        return fetch_response({TOPIC_ID: [partition(asked) for topic in message.topics for asked in topic.partitions]})

    return give


def test_one_fetch_to_a_leader_asks_for_all_of_its_partitions() -> None:
    """Nothing comes of a batch that is larger than allowed."""
    client = ScriptedClient(answer({0: 5, 1: 2000, 2: 7}))
    told = fetch_first_batches(client, OFFSETS, 1000, COMMITTED)
    assert [len(told.found[each].records) for each in OFFSETS] == [5, 0, 7]
    ((_, request),) = client.asked(FetchRequest)
    asked = {each.partition: each.fetch_offset for topic in request.topics for each in topic.partitions}
    assert asked == {0: 0, 1: 10, 2: 20} and request.isolation_level == 1


def test_as_many_are_asked_for_at_once_as_one_answer_may_hold() -> None:
    client = ScriptedClient(answer({0: 5, 1: 6, 2: 7}))
    assert len(fetch_first_batches(client, OFFSETS, 8 << 20, COMMITTED).found) == 3
    sizes = [sum(len(topic.partitions) for topic in request.topics) for _, request in client.asked(FetchRequest)]
    assert sizes == [2, 1]


def test_what_one_partition_lacks_is_its_own_fault() -> None:
    client = ScriptedClient(answer({0: 5, 1: 6, 2: 7}, errors={1: 1}))
    told = fetch_first_batches(client, OFFSETS, 1000, COMMITTED)
    assert told.found.keys() == {TopicPartition("t", 0), TopicPartition("t", 2)}
    assert isinstance(told.faults[TopicPartition("t", 1)], OffsetOutOfRangeError)


@pytest.mark.parametrize("ask", ["batches", "locations"])
def test_an_error_of_a_whole_answer_is_that_node_s_alone_and_is_tried_again_where_it_may_pass(ask: str) -> None:
    """REQUEST_TIMED_OUT from one of two leaders; the other's partition has its answer already."""
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    timed_out = iter([True])
    give = answer({0: 5, 1: 6})

    def of_two(node_id: int, message: Any) -> Any:
        if isinstance(message, MetadataRequest):
            return led(1, 2)
        refused = node_id == 2 and next(timed_out, False)
        if ask == "batches":
            if refused:
                return FetchResponse(error_code=7)
            return give(node_id, message)
        if refused:
            return LocationFetchResponse(0, 7, 0, [])
        located = [LocatedPartition(each.partition, 0, 9, 9, 0) for each in message.topics[0].partitions]
        return LocationFetchResponse(0, 0, 0, [FetchTopic(TOPIC_ID, located)])

    client = ScriptedClient(of_two)
    if ask == "batches":
        told: Any = fetch_first_batches(client, {first: 0, second: 0}, 1000, COMMITTED)
    else:
        ranges = dict.fromkeys((first, second), OffsetRange(0, 9))
        told = locate_segments(client, ranges, LocationTerms(COMMITTED))
    assert told.found.keys() == {first, second} and not told.faults
    asked = [node for node, message in client.requests if not isinstance(message, MetadataRequest)]
    assert sorted(asked) == [1, 2, 2]

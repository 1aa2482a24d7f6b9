from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from tests.broker.scripted import MetadataRequest, ScriptedClient, metadata
from tiered_stream.broker.group_offsets import GroupOffsets
from tiered_stream.errors import BrokerAuthorizationError, BrokerError, CorruptDataError
from tiered_stream.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_COORDINATOR, UNKNOWN_MEMBER_ID, GROUP_AUTHORIZATION_FAILED = 16, 25, 30


class Coordinator:
    """Broker 2 keeps the group's offsets; `errors` are the answers to the next commits and fetches, 0 in the end."""

    def __init__(self, *errors: int, offsets: dict[int, int] | None = None) -> None:
        self.errors = list(errors)
        self.offsets = offsets or {}

    def client(self) -> ScriptedClient:
        return ScriptedClient(self.answer)

    def answer(self, node_id: int, message: Any) -> Any:
        match message:
            case MetadataRequest():
                return metadata(partitions=2)
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(node_id=2)
            case OffsetCommitRequest():
                assert node_id == 2
                return self._committed(message, self.errors.pop(0) if self.errors else 0)
            case OffsetFetchRequest():
                assert node_id == 2
                return self._fetched(message, self.errors.pop(0) if self.errors else 0)
        raise AssertionError(message)

    def _committed(self, message: Any, error_code: int) -> Any:
        topic = OffsetCommitResponse.OffsetCommitResponseTopic
        partition = topic.OffsetCommitResponsePartition
        asked = [each for topic in message.topics for each in topic.partitions]
        if not error_code:
            self.offsets |= {each.partition_index: each.committed_offset for each in asked}
        answers = [partition(partition_index=each.partition_index, error_code=error_code) for each in asked]
        return OffsetCommitResponse(topics=[topic(name="t", partitions=answers)])

    def _fetched(self, message: Any, error_code: int) -> Any:
        topic = OffsetFetchResponse.OffsetFetchResponseTopic
        partition = topic.OffsetFetchResponsePartition
        answers = [
            partition(partition_index=each, committed_offset=self.offsets.get(each, -1))
            for asked in message.topics
            for each in asked.partition_indexes
            if each in self.offsets or each < 2
        ]
        return OffsetFetchResponse(topics=[topic(name="t", partitions=answers)], error_code=error_code)


def test_offsets_are_committed_without_joining_the_group() -> None:
    coordinator = Coordinator()
    with coordinator.client() as client:
        GroupOffsets(client, "g").start_commit({T0: 5, T1: 0}).result()
        ((_, asked),) = client.asked(OffsetCommitRequest)
    assert (asked.group_id, asked.generation_id_or_member_epoch, asked.member_id) == ("g", -1, "")
    assert coordinator.offsets == {0: 5, 1: 0}


def test_what_a_group_has_committed_is_told_by_partition() -> None:
    with Coordinator(offsets={1: 7}).client() as client:
        assert GroupOffsets(client, "g").committed([T0, T1]) == {T0: None, T1: 7}
        assert GroupOffsets(client, "g").committed([]) == {}


def test_a_coordinator_that_moves_is_looked_for_again() -> None:
    coordinator = Coordinator(NOT_COORDINATOR, 0, NOT_COORDINATOR)
    with coordinator.client() as client:
        group = GroupOffsets(client, "g")
        group.start_commit({T0: 5}).result()
        assert group.committed([T0]) == {T0: 5}
        assert len(client.asked(FindCoordinatorRequest)) == 4


@pytest.mark.parametrize(
    ("error_code", "kind", "said"),
    [
        (UNKNOWN_MEMBER_ID, BrokerError, "UNKNOWN_MEMBER_ID"),
        (GROUP_AUTHORIZATION_FAILED, BrokerAuthorizationError, "grant READ on the group"),
    ],
)
def test_a_refusal_is_an_error_that_names_the_group(error_code: int, kind: type[Exception], said: str) -> None:
    with Coordinator(error_code, error_code).client() as client:
        group = GroupOffsets(client, "g")
        with pytest.raises(kind, match=f"consumer group 'g': .*{said}"):
            group.start_commit({T0: 5}).result()
        with pytest.raises(kind, match=f"consumer group 'g': .*{said}"):
            group.committed([T0])


def test_an_answer_that_leaves_a_partition_out_is_not_believed() -> None:
    with Coordinator().client() as client, pytest.raises(CorruptDataError, match="consumer group 'g'"):
        GroupOffsets(client, "g").committed([TopicPartition("t", 9)])

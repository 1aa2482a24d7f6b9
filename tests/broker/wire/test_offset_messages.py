"""Our codec for ListOffsets against kafka-python's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import ListOffsetsRequest as KafkaPythonsRequest
from kafka.protocol.consumer import ListOffsetsResponse
from kafka.protocol.frame import KafkaBytes

from tiered_stream.broker.list_offsets import (
    FIRST_FLEXIBLE,
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tiered_stream.records.flexible_versions import Reader

VERSIONS = range(FIRST_FLEXIBLE, ListOffsetsRequest.max_version + 1)
INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text(max_size=300)

wanted = st.lists(
    st.builds(ListOffsetsTopic, NAMES, st.lists(st.builds(ListOffsetsPartition, INT32, INT32, INT64), max_size=200)),
    max_size=4,
)
listed = st.lists(
    st.builds(
        ListOffsetsTopicResponse,
        NAMES,
        st.lists(
            st.builds(ListOffsetsPartitionResponse, INT32, st.integers(-(1 << 15), 99), INT64, INT64, INT32),
            max_size=200,
        ),
    ),
    max_size=4,
)


def request(topics: list[ListOffsetsTopic] | None = None) -> ListOffsetsRequest:
    return ListOffsetsRequest(isolation_level=1, topics=topics or [], timeout_ms=30_000)


def test_all_versions_that_kafka_python_knows_are_spoken() -> None:
    assert KafkaPythonsRequest.max_version == ListOffsetsRequest.max_version
    assert [each for each in VERSIONS if not KafkaPythonsRequest.flexible_version_q(each)] == []


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=wanted)
def test_a_request_is_what_kafka_python_writes(version: int, topics: list[ListOffsetsTopic]) -> None:
    kind = KafkaPythonsRequest.ListOffsetsTopic
    theirs = KafkaPythonsRequest(
        replica_id=-1, isolation_level=1, timeout_ms=30_000,
        topics=[
            kind(name=topic.name, partitions=[kind.ListOffsetsPartition(**each._asdict()) for each in topic.partitions])
            for topic in topics
        ],
    )  # fmt: skip
    assert request(topics).encode_body(version) == bytes(theirs.encode(version=version))


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=listed)
def test_an_answer_is_what_kafka_python_writes(version: int, topics: list[ListOffsetsTopicResponse]) -> None:
    answer = answer_of(topics, version)
    assert request().decode_response(Reader(answer)) == ListedOffsets(7, topics)


def answer_of(topics: list[ListOffsetsTopicResponse], version: int) -> bytes:
    kind = ListOffsetsResponse.ListOffsetsTopicResponse
    partition = kind.ListOffsetsPartitionResponse
    answer = ListOffsetsResponse(
        throttle_time_ms=7,
        topics=[
            kind(name=topic.name, partitions=[partition(**each._asdict()) for each in topic.partitions])
            for topic in topics
        ],
    )
    return bytes(answer.encode(version=version))


def test_an_answer_is_read_behind_its_header() -> None:
    asked = request([ListOffsetsTopic("t", [ListOffsetsPartition(0, 5, -1)])])
    asked.API_VERSION = 9
    asked.with_header(3, "us")
    header: Any = asked.header
    whole = KafkaBytes((3).to_bytes(4, "big") + b"\0" + answer_of([ListOffsetsTopicResponse("t", [])], 9))
    assert header.parse_header(whole).correlation_id == 3
    assert header.decode(whole) == ListedOffsets(7, [ListOffsetsTopicResponse("t", [])])


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_an_error(content: bytes) -> None:
    try:
        found = request().decode_response(Reader(content))
    except ValueError:
        return
    assert sum(len(topic.partitions) for topic in found.topics) <= len(content)

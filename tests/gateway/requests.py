"""Requests and responses as bytes, made and read with kafka-python's messages."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest

from tiered_stream.broker.wire.location_messages import (
    FetchPartition,
    FetchTopic,
    LocatedPartition,
    LocationFetchRequest,
    LocationFetchResponse,
    RemoteLogSegmentLocation,
    encode_segment,
)
from tiered_stream.gateway.protocol.frames import request_head
from tiered_stream.gateway.protocol.location_requests import LocationRequest, location_request
from tiered_stream.model import STORAGE_FORMAT
from tiered_stream.records.flexible_versions import Reader, compact_array

TOPIC_ID = UUID(int=9)


def request(message: Any, version: int, correlation_id: int = 1, client_id: str | None = "client") -> bytes:
    """A request's content."""
    message.API_VERSION = version
    message.with_header(correlation_id, client_id)
    return bytes(message.encode(version=version, header=True))


def response(message: Any, version: int, correlation_id: int = 1) -> bytes:
    """A response's content."""
    message._header = message.header_class(correlation_id=correlation_id)
    message._version = version
    return bytes(message.encode(header=True))


def read(kind: Any, content: bytes, version: int) -> Any:
    return kind.decode(content, version=version, header=True)


def encode_segments(segments: Iterable[RemoteLogSegmentLocation]) -> bytes:
    """The value of tagged field 1248."""
    return compact_array(list(map(encode_segment, segments)))


def metadata_request(correlation_id: int = 1, version: int = 12) -> bytes:
    return request(MetadataRequest(topics=None), version, correlation_id)


def metadata_response(brokers: Mapping[int, tuple[str, int]], version: int = 12, correlation_id: int = 1) -> bytes:
    kind = MetadataResponse.MetadataResponseBroker
    found = [kind(node_id=node, host=host, port=port, rack=None) for node, (host, port) in brokers.items()]
    message = MetadataResponse(throttle_time_ms=0, brokers=found, cluster_id="c", controller_id=1, topics=[])
    return response(message, version, correlation_id)


def api_versions_response(
    versions: Mapping[int, tuple[int, int]], version: int, correlation_id: int = 1, error_code: int = 0
) -> bytes:
    kind = ApiVersionsResponse.ApiVersion
    keys = [kind(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items()]
    feature = ApiVersionsResponse.SupportedFeatureKey(name="metadata.version", min_version=1, max_version=30)
    features = {"supported_features": [feature]} if version >= 3 else {}
    message = ApiVersionsResponse(error_code=error_code, api_keys=keys, throttle_time_ms=0, **features)
    return response(message, version, correlation_id)


def produce_request(acks: int, version: int, transactional_id: str | None = None, correlation_id: int = 1) -> bytes:
    message = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=[])
    return request(message, version, correlation_id)


def location_fetch(
    wanted: Mapping[int, tuple[int, int]],
    version: int = 15,
    correlation_id: int = 1,
    *,
    topic_id: UUID = TOPIC_ID,
    leader_epoch: int = 3,
    **others: Any,
) -> bytes:
    """A Fetch that asks where offsets are, by partition."""
    partitions = [FetchPartition(number, leader_epoch, start, end) for number, (start, end) in wanted.items()]
    fields = {
        "isolation_level": 1, "remote_log_segment_location_requested": True,
        "supported_storage_format_versions": [STORAGE_FORMAT], "max_remote_log_segments": 100,
        "topics": [FetchTopic(topic_id, partitions)],
    }  # fmt: skip
    message = LocationFetchRequest(**{**fields, **others})
    message.API_VERSION = version
    message.with_header(correlation_id, "client")
    return message.encode(framed=True, header=True)[4:]


def fetch_response(
    partitions: Mapping[int, Mapping[str, Any]],
    version: int = 15,
    correlation_id: int = 1,
    error_code: int = 0,
    *,
    topic_id: UUID = TOPIC_ID,
) -> bytes:
    """What a broker answers, by partition; what is not given says that all is well, in a log of 10 to 1,000."""
    topic = FetchResponse.FetchableTopicResponse
    plain = {
        "error_code": 0, "high_watermark": 1000, "last_stable_offset": 900, "log_start_offset": 10,
        "aborted_transactions": [], "preferred_read_replica": -1, "records": b"some",
    }  # fmt: skip
    answers = [
        topic.PartitionData(partition_index=number, **{**plain, **fields}) for number, fields in partitions.items()
    ]
    message = FetchResponse(
        throttle_time_ms=0, error_code=error_code, session_id=0,
        responses=[topic(topic_id=topic_id, partitions=answers)],
    )  # fmt: skip
    return response(message, version, correlation_id)


def receive(connection: socket.socket) -> bytes:
    """The next frame's content. Raises EOFError when the other side hangs up."""
    return _receive(connection, int.from_bytes(_receive(connection, 4), "big"))


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def read_located(content: bytes) -> LocatedPartition:
    """The one partition of a response with locations."""
    body = Reader(content, 4)
    body.tags()
    (topic,) = LocationFetchResponse.decode_body(body).responses
    (partition,) = topic.partitions
    return partition


def asked(content: bytes) -> LocationRequest:
    request = location_request(request_head(content), content)
    assert request is not None
    return request

"""A client whose brokers are a function: for moving leaders, replicas and bad answers, which one real broker lacks.

What it leaves out: the wire. Requests are not encoded, every version is spoken, no time passes in the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest

from tests.broker.responses import DescribedTopic, fetch_response, fetched_partition, metadata_response
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.list_offsets import ListOffsetsRequest
from tiered_stream.errors import BrokerUnavailableError

TOPIC_ID = UUID(int=7)
BROKERS = {node: ("scripted", node) for node in (1, 2)}


class ScriptedClient(BrokerClient):
    """Brokers 1 and 2 with the topic `t`.

    `answer(node_id, message)` gives a response, or None for a connection that broke; `requests` keeps what was asked.
    """

    def __init__(self, answer: Callable[[int, Any], Any], properties: Mapping[str, str] | None = None) -> None:
        quick = {"bootstrap.servers": "scripted:1", "default.api.timeout.ms": "2000", "retry.backoff.ms": "1"}
        super().__init__({**quick, **(properties or {})})
        self._answer = answer
        self.requests: list[tuple[int, Any]] = []

    async def request(self, node_id: int, message: Any, deadline: Deadline) -> Any:
        self.requests.append((node_id, message))
        response = self._answer(node_id, message)
        if response is None:
            raise BrokerUnavailableError(f"broker {node_id}: the connection was closed")
        return response

    def asked(self, kind: type[Any]) -> list[tuple[int, Any]]:
        """The requests of one kind, with the node that each went to."""
        return [(node_id, message) for node_id, message in self.requests if isinstance(message, kind)]


def answering(answer: Callable[[int, Any], Any], found: Callable[[], Any] | None = None) -> Callable[[int, Any], Any]:
    """Brokers that answer requests for metadata by `found`, which has the topic by default, and others by `answer`."""
    return lambda node_id, message: (
        (found or metadata)() if isinstance(message, MetadataRequest) else answer(node_id, message)
    )


def metadata(
    leader: int = 1, *, error_code: int = 0, topic_id: UUID = TOPIC_ID, epoch: int = 5, partitions: int = 1
) -> Any:
    leaders = [] if error_code else [leader] * partitions
    return led(*leaders, error_code=error_code, topic_id=topic_id, epoch=epoch)


def led(*leaders: int, error_code: int = 0, topic_id: UUID = TOPIC_ID, epoch: int = 5) -> Any:
    """Metadata of the topic with a leader for each partition."""
    return metadata_response({"t": DescribedTopic(topic_id, leaders, error_code, epoch)}, BROKERS)


def fetched(
    records: bytes = b"", *, error_code: int = 0, end: int = 100, read_replica: int = -1, topic_id: UUID = TOPIC_ID
) -> Any:
    partition = fetched_partition(0, end, records, error_code=error_code, read_replica=read_replica)
    return fetch_response({topic_id: [partition]})


def offsets(offset: int, *, error_code: int = 0, partition: int = 0) -> Any:
    kind = ListOffsetsResponse.ListOffsetsTopicResponse
    answer = kind.ListOffsetsPartitionResponse(partition_index=partition, error_code=error_code, offset=offset)
    return ListOffsetsResponse(topics=[kind(name="t", partitions=[answer])])


__all__ = [
    "FetchRequest",
    "ListOffsetsRequest",
    "MetadataRequest",
    "ScriptedClient",
    "answering",
    "fetched",
    "led",
    "metadata",
    "offsets",
]

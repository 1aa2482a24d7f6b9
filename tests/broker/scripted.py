"""A client whose brokers are a function: for moving leaders, replicas and bad answers, which one real broker lacks.

What it leaves out: the wire. Requests are not encoded, every version is spoken, no time passes in the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.connections import Deadline
from tiered_stream.broker.wire.offset_messages import ListOffsetsRequest
from tiered_stream.errors import BrokerUnavailableError

TOPIC_ID = UUID(int=7)


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


def metadata(
    leader: int = 1, *, error_code: int = 0, topic_id: UUID = TOPIC_ID, epoch: int = 5, partitions: int = 1
) -> Any:
    topic = MetadataResponse.MetadataResponseTopic
    broker = MetadataResponse.MetadataResponseBroker
    described = [
        topic.MetadataResponsePartition(
            version=12,
            error_code=0,
            partition_index=number,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[1, 2],
            isr_nodes=[1, 2],
            offline_replicas=[],
        )
        for number in range(partitions)
    ]
    return MetadataResponse(
        version=12,
        throttle_time_ms=0,
        brokers=[broker(version=12, node_id=node, host="scripted", port=node, rack=None) for node in (1, 2)],
        cluster_id="c",
        controller_id=1,
        topics=[
            topic(
                version=12,
                error_code=error_code,
                name="t",
                topic_id=topic_id,
                is_internal=False,
                partitions=[] if error_code else described,
            )
        ],
    )


def fetched(
    records: bytes = b"", *, error_code: int = 0, end: int = 100, read_replica: int = -1, topic_id: UUID = TOPIC_ID
) -> Any:
    topic = FetchResponse.FetchableTopicResponse
    partition = topic.PartitionData(
        version=17,
        partition_index=0,
        error_code=error_code,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=read_replica,
        records=records,
    )
    return FetchResponse(
        version=17,
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[topic(version=17, topic_id=topic_id, partitions=[partition])],
    )


def offsets(offset: int, *, error_code: int = 0, partition: int = 0) -> Any:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    answer = topic.ListOffsetsPartitionResponse(
        version=7, partition_index=partition, error_code=error_code, timestamp=-1, offset=offset, leader_epoch=5
    )
    return ListOffsetsResponse(version=7, throttle_time_ms=0, topics=[topic(version=7, name="t", partitions=[answer])])


__all__ = [
    "FetchRequest",
    "ListOffsetsRequest",
    "MetadataRequest",
    "ScriptedClient",
    "fetched",
    "metadata",
    "offsets",
]

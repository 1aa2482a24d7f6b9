"""Single requests to a broker that kafka-python's clients do not offer."""

from __future__ import annotations

from typing import Any

from kafka.errors import for_code
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import MetadataRequest

from tests.rigs.stack.processes import Closing

NODE = 1


class BrokerConnection(Closing):
    """Connection that sends kafka-python's request objects and waits for each response. It is not thread-safe."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._net = NetworkSelector()
        self._manager = KafkaConnectionManager(self._net, bootstrap_servers=bootstrap_servers)
        self._manager.bootstrap(timeout_ms=30_000)

    def request(self, message: ApiMessage, node_id: int = NODE) -> Any:
        """Return the broker's response, in the newest version that both sides and the message's own bounds allow."""
        return self._manager.run(self._manager.send, message, node_id)

    def partitions(self, topic: str, node_id: int = NODE) -> list[Any]:
        """Return the topic's partitions as a broker describes them."""
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        (found,) = self.request(asked, node_id).topics
        return list(found.partitions)

    def leader(self, topic: str, partition: int) -> int:
        """The node id of the broker that leads the partition now; -1 where none does."""
        found = (each.leader_id for each in self.partitions(topic) if each.partition_index == partition)
        return next(found, -1)

    def close(self) -> None:
        self._manager.close()
        self._net.close()


def check(error_code: int, what: str) -> None:
    """Raise kafka-python's exception for an error code other than 0."""
    if error_code:
        raise for_code(error_code)(what)

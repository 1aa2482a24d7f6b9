"""What we use of kafka-python beyond its public interface: its network layer, and how a connection treats a request.

Nothing of it is patched. `tests/broker/test_kafka_python.py` names each attribute that we rely on and fails when a
release changes one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any, ClassVar

from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.frame import KafkaBytes

from tiered_stream.broker.flexible_versions import NO_TAGS, Reader

__all__ = ["KafkaConnectionManager", "NetworkSelector", "OwnRequest"]

_HEAD = Struct(">hhi")  # API key, version, correlation id
_TEXT_LENGTH = Struct(">h")
_CORRELATION_ID_BYTES = 4


class OwnRequest(ABC):
    """A request with a codec of our own, which kafka-python's connections send like any other.

    They choose the version (`BrokerVersionData.api_version`), ask for the bytes (`KafkaProtocol.send_request`), and let
    the request's header say how its response is read (`KafkaProtocol.receive_bytes`). Flexible versions only.
    """

    API_KEY: ClassVar[int]
    name: ClassVar[str]
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    _min_version: ClassVar[None] = None
    _max_version: ClassVar[None] = None
    API_VERSION: int | None = None
    header: _Header | None = None

    @abstractmethod
    def encode_body(self, version: int) -> bytes:
        """What follows the header."""

    @abstractmethod
    def decode_response(self, body: Reader) -> Any:
        """The response, of which `body` begins behind the header; has a `throttle_time_ms`.

        Raises:
            ValueError: the bytes are no such response.
        """

    def with_header(self, correlation_id: int, client_id: str) -> None:
        self.header = _Header(self, correlation_id, client_id.encode())

    def encode(self, framed: bool, header: bool) -> bytes:
        """The whole request, its size before it; the connections ask for nothing else."""
        assert framed
        assert header
        known, version = self.header, self.API_VERSION
        assert known is not None, "`with_header` comes first"
        assert version is not None, "the connection has chosen it"
        head = _HEAD.pack(self.API_KEY, version, known.correlation_id) + _TEXT_LENGTH.pack(len(known.client_id))
        content = head + known.client_id + NO_TAGS + self.encode_body(version)
        return len(content).to_bytes(4, "big") + content

    def expect_response(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class _Header:
    """In place of kafka-python's `RequestHeader`, and of the response class and header that it takes from there."""

    request: OwnRequest
    correlation_id: int
    client_id: bytes

    def get_response_class(self) -> _Header:
        return self

    def parse_header(self, buffer: KafkaBytes) -> _Header:
        """That of the response."""
        return replace(self, correlation_id=int.from_bytes(buffer.read(_CORRELATION_ID_BYTES), "big", signed=True))

    def decode(self, buffer: KafkaBytes) -> Any:
        """The response, from its header's tagged fields on."""
        body = Reader(buffer.read())
        body.tags()
        return self.request.decode_response(body)

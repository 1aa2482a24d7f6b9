"""Use of kafka-python's network layer and connections beyond its public interface.

kafka-python has two decoders of a message: code that it generates from the message's schema, which it uses itself, and
an interpreter of the schema. The generated code takes time that grows with the square of the length of an overlong
varint. It also copies the rest of the message for each section of tagged fields: a response of 600 KB took half a
minute. Our connections decode responses with the interpreter, which has neither problem.

We change kafka-python in three places. A new connection gets the class `_Connection`, with the protocol
`InterpretingProtocol` and the socket read `_receive`. For the whole process, our mechanisms for SCRAM, AWS_MSK_IAM
(`aws_login`) and GSSAPI (`kerberos`) are registered in place of kafka-python's mechanisms. A SCRAM login gets the class
`_ScramClient`.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from ssl import SSLWantReadError, SSLWantWriteError
from struct import Struct
from typing import Any, ClassVar

from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.msk import AwsMskIamClient, SaslMechanismAwsMskIam
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.sasl.scram import SaslMechanismScram, ScramClient
from kafka.net.selector import NetworkSelector
from kafka.protocol.api_key import ApiKey
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse
from kafka.protocol.parser import KafkaProtocol

from tiered_stream.process.caches import SingleFlightCache
from tiered_stream.records.flexible_versions import NO_TAGS, Reader

__all__ = [
    "AbstractTokenProvider",
    "ApiKey",
    "AwsMskIamClient",
    "ConnectionManager",
    "NetworkSelector",
    "OwnRequest",
    "SaslMechanismAwsMskIam",
    "SaslMechanismGSSAPI",
    "register_sasl_mechanism",
]

_HEAD = Struct(">hhi")  # API key, version, correlation id
_TEXT_LENGTH = Struct(">h")
_CORRELATION_ID_BYTES = 4
_LARGE = 64 << 10
"""Minimum size in bytes of a message's field, or of a socket read, that is not copied. A TLS record is smaller."""
_CACHE_BYTES = 4 << 20

ResponseCache = SingleFlightCache[tuple[int, bytes], tuple[int, Any]]
"""Cache of decoded responses, by version and encoded bytes.

A value is a pair: the number of encoded bytes, and the decoded response.
"""


def _response_cache() -> ResponseCache:
    return SingleFlightCache(_CACHE_BYTES, size_of=itemgetter(0))


FEWEST_SCRAM_ITERATIONS = 4096
"""Minimum number of SCRAM iterations for which a login sends its proof of the password to the broker.

(Kafka: `ScramMechanism.minIterations`.)
"""


class OwnRequest(ABC):
    """Base of requests that we encode and decode ourselves, and that kafka-python's connections send like their own.

    kafka-python's connections choose the version (`BrokerVersionData.api_version`), ask the request for its bytes
    (`KafkaProtocol.send_request`), and decode the response by the request's header (`KafkaProtocol.receive_bytes`).
    Only flexible versions (KIP-482) are supported.
    """

    API_KEY: ClassVar[int]
    name: ClassVar[str]
    min_version: int
    max_version: int
    _min_version: ClassVar[None] = None
    _max_version: ClassVar[None] = None
    API_VERSION: int | None = None
    header: _Header | None = None

    @abstractmethod
    def encode_body(self, version: int) -> bytes:
        """Return the encoded request body: the bytes that follow the header."""

    @abstractmethod
    def decode_response(self, body: Reader) -> Any:
        """Decode the response's body, which starts after the header. The result has an attribute `throttle_time_ms`.

        Raises:
            ValueError: the bytes are not a response to this request.
        """

    def with_header(self, correlation_id: int, client_id: str) -> None:
        self.header = _Header(self, correlation_id, client_id.encode())

    def encode(self, framed: bool, header: bool) -> bytes:
        """Return the whole request: size, header and body. Connections always pass true for both arguments."""
        assert framed
        assert header
        ours, version = self.header, self.API_VERSION
        assert ours is not None, "`with_header` comes first"
        assert version is not None, "the connection has chosen it"
        head = _HEAD.pack(self.API_KEY, version, ours.correlation_id) + _TEXT_LENGTH.pack(len(ours.client_id))
        content = head + ours.client_id + NO_TAGS + self.encode_body(version)
        return len(content).to_bytes(4, "big") + content

    def expect_response(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class _Header:
    """Header of an `OwnRequest`.

    kafka-python asks a request's header for the class that decodes the response, and asks that class for the response's
    header. An object of this class is used as request header, as that class, and as response header.
    """

    request: OwnRequest
    correlation_id: int
    client_id: bytes

    def get_response_class(self) -> _Header:
        return self

    def parse_header(self, buffer: KafkaBytes) -> _Header:
        """Read the response's correlation id, and return a copy of this header with that id."""
        return replace(self, correlation_id=int.from_bytes(buffer.read(_CORRELATION_ID_BYTES), "big", signed=True))

    def decode(self, buffer: KafkaBytes) -> Any:
        """Decode the response, starting at the tagged fields of its header."""
        body = Reader(buffer.read())
        body.tags()
        return self.request.decode_response(body)


class ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]
    """Connection manager whose connections decode responses in bounded time, and share one cache of responses."""

    def __init__(self, net: Any, **config: Any) -> None:
        super().__init__(net, **config)
        self._responses = _response_cache()

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        connection = super().get_connection(node_id, **options)
        connection.__class__ = _Connection  # the manager has no setting for the class; nothing was sent yet
        connection.responses = self._responses
        return connection

    def is_open(self, node_id: Any) -> bool:
        """Return whether there is a connection to the node that is set up, login included."""
        connection = self._conns.get(node_id)
        return connection is not None and connection.connected

    def connecting(self) -> list[Any]:
        """Return the ids of the nodes whose connections are not set up yet. May be called on any thread."""
        return [node_id for node_id, connection in self._conns.copy().items() if not connection.connected]


class _Connection(KafkaConnection):  # type: ignore[misc]
    responses: ResponseCache

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        config = self.config
        self.parser = InterpretingProtocol(
            self.responses,
            client_id=config["client_id"],
            receive_message_max_bytes=config["receive_message_max_bytes"],
        )
        transport._sock_recv = partial(_receive, transport._sock, self.parser)


def _receive(connection: socket.socket, protocol: InterpretingProtocol) -> tuple[bytes, Any]:
    """Read from a connection's socket, and return bytes for the connection's protocol, and an error or None.

    This function replaces the read of kafka-python's transport. The bytes are empty if nothing has arrived, or after an
    error. Most of a large response is received straight into the protocol's buffer, and is not among the returned
    bytes.

    kafka-python's own read takes 4 KiB at a time and copies the bytes three times. It also drops bytes that arrive
    together with the end of the connection. A broker that refuses a login sends the reason and closes the connection at
    once, so the reason could be lost.
    """
    try:
        while len(room := protocol.room()) >= _LARGE and (size := connection.recv_into(room)):
            protocol.fill(size)
        data = connection.recv(_LARGE)
    except (BlockingIOError, InterruptedError, SSLWantReadError, SSLWantWriteError):
        return b"", None
    except OSError as error:
        return b"", KafkaConnectionError(error)
    return data, None if data else KafkaConnectionError("socket disconnected")


class InterpretingProtocol(KafkaProtocol):  # type: ignore[misc]
    """Protocol of a connection, which decodes responses with kafka-python's interpreter, and caches Metadata responses.

    Decoding the Metadata of a thousand partitions takes 10 ms. While no leader moves, the bytes stay the same, and the
    response that was decoded before is returned. Callers must not change it. ListOffsets responses change all the time,
    so `list_offsets` decodes them.

    The protocols of a client's connections share the cache `responses`, because any broker may send the same Metadata.
    A decoded response takes ten times the memory of its bytes.
    """

    def __init__(self, responses: ResponseCache | None = None, **config: Any) -> None:
        super().__init__(**config)
        self._responses = _response_cache() if responses is None else responses

    def room(self) -> memoryview:
        """Return the part of the buffer for the missing bytes of the response being received, except the last byte.

        The result is empty if no response is being received.
        """
        return memoryview(self._rbuffer)[self._rbuffer.tell() : -1] if self._receiving else memoryview(b"")

    def fill(self, size: int) -> None:
        """Mark the first `size` bytes of the buffer that `room` returned as received."""
        self._rbuffer.seek(self._rbuffer.tell() + size)

    def send_request(self, request: Any, correlation_id: int | None = None) -> int:
        in_flight = len(self.in_flight_requests)
        correlation_id = super().send_request(request, correlation_id)
        if len(self.in_flight_requests) > in_flight and hasattr(request.header, "request_api_key"):
            self.in_flight_requests[-1] = _InterpretedHeader(
                request.header, correlation_id, request.API_VERSION, self._responses
            )
        return int(correlation_id)


@dataclass(frozen=True, slots=True)
class _InterpretedHeader:
    """Header of a kafka-python request whose response is decoded with the interpreter, not with generated code.

    kafka-python asks a request's header for the class that decodes the response. An object of this class is used as
    header and as that class.
    """

    header: Any
    correlation_id: int
    api_version: int
    responses: ResponseCache

    def get_response_class(self) -> _InterpretedHeader:
        return self

    def parse_header(self, buffer: KafkaBytes) -> Any:
        """Read and return the response's header."""
        return self.header.get_response_class().parse_header(buffer)

    def decode(self, buffer: KafkaBytes) -> Any:
        """Decode the response's body. A Metadata response may come from the cache, and must not be changed."""
        kind, version = self.header.get_response_class()[None], self.api_version
        content = memoryview(buffer).toreadonly()[buffer.tell() :]
        if kind is ApiVersionsResponse and bytes(content[:2]) != b"\0\0":  # brokers send an error in version 0
            version = 0
        if kind is not MetadataResponse:
            return self._decoded(kind, content, version)
        key = version, bytes(content)
        return self.responses.get(key, lambda: (len(content), self._decoded(kind, content, version)))[1]

    def _decoded(self, kind: Any, content: memoryview, version: int) -> Any:
        flexible = kind.flexible_version_q(version)
        try:
            return kind._struct.decode(
                _Content(content), version=version, compact=flexible, tagged=flexible, data_class=kind
            )
        except Exception as error:  # with malformed bytes, the decoders may raise any exception
            raise ValueError(f"{type(error).__name__}: {error}") from error


class _Content:
    """Input of kafka-python's decoders. A field of 64 KiB or more (only records are that large) is not copied."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def read(self, size: int) -> bytes | memoryview:
        field = self._data[self._position : self._position + size]
        self._position += len(field)
        return field if size >= _LARGE else bytes(field)


def api_name(api_key: int) -> str:
    """Return the API's name and number for messages, or only the number if kafka-python does not know the API."""
    try:
        return f"{ApiKey(api_key).name} (API {api_key})"
    except ValueError:
        return f"API {api_key}"


class _ScramClient(ScramClient):  # type: ignore[misc]
    """State of one SCRAM login, which refuses a low number of iterations as Kafka's client does (`ScramMechanism`).

    With few iterations, whoever receives the proof of the password could quickly find the password by trial.
    """

    def create_salted_password(self, salt: bytes, iterations: int) -> None:
        if iterations < FEWEST_SCRAM_ITERATIONS:
            raise SaslAuthenticationFailedError(
                f"it asks for {iterations} iterations of SCRAM, and Kafka's clients send no proof of a password for "
                f"fewer than {FEWEST_SCRAM_ITERATIONS:,}. Check that this address is the broker's. If it is, set the "
                "user's password there with more iterations (kafka-configs.sh --add-config)"
            )
        super().create_salted_password(salt, iterations)


class _Scram(SaslMechanismScram):  # type: ignore[misc]
    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._scram_client.__class__ = _ScramClient


for scram in ScramClient.MECHANISMS:
    register_sasl_mechanism(scram, _Scram, overwrite=True)

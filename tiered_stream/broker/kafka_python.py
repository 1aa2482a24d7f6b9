"""What we use of kafka-python beyond its public interface: its network layer, and how a connection treats a request.

Its generated decoders take a time that grows with the square of an overlong varint, and copy the rest of the message
for each section of tagged fields: 600 KB took half a minute. Our connections read answers with its plain decoders,
which do neither.

Nothing of it is patched. `tests/broker/test_kafka_python.py` names each attribute that we rely on and fails when a
release changes one.
"""

from __future__ import annotations

import concurrent.futures
import socket
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from ssl import SSLWantReadError, SSLWantWriteError
from struct import Struct
from typing import Any, ClassVar

from kafka.errors import KafkaConnectionError
from kafka.future import Future as KafkaFuture
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.abc import SaslMechanism
from kafka.net.sasl.msk import AwsMskIamClient, SaslMechanismAwsMskIam
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.protocol.api_key import ApiKey
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse
from kafka.protocol.parser import KafkaProtocol

from tiered_stream.broker.flexible_versions import NO_TAGS, Reader
from tiered_stream.single_flight import SingleFlightCache

__all__ = [
    "AbstractHostLogin",
    "AbstractTokenProvider",
    "ConnectionManager",
    "NetworkSelector",
    "OwnRequest",
    "msk_iam_message",
]

_HEAD = Struct(">hhi")  # API key, version, correlation id
_TEXT_LENGTH = Struct(">h")
_CORRELATION_ID_BYTES = 4
_LARGE = 64 << 10
"""Bytes that are worth not to be copied; a TLS record is smaller."""
_MOST_KEPT_BYTES = 4 << 20

Said = SingleFlightCache[tuple[int, bytes], tuple[int, Any]]
"""Answers that may be given again, by their version and bytes: how many these are, and what they say."""


class OwnRequest(ABC):
    """A request with a codec of our own, which kafka-python's connections send like any other.

    They choose the version (`BrokerVersionData.api_version`), ask for the bytes (`KafkaProtocol.send_request`), and let
    the request's header say how its response is read (`KafkaProtocol.receive_bytes`). Flexible versions only.
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


class ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]
    """One whose connections read answers in bounded time."""

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        connection = super().get_connection(node_id, **options)
        connection.__class__ = _Connection  # the manager lets nobody choose it; nothing was sent yet
        return connection

    def is_open(self, node_id: Any) -> bool:
        """Whether there is a connection that needs no login any more."""
        connection = self._conns.get(node_id)
        return connection is not None and connection.connected

    async def settled(self, work: concurrent.futures.Future[Any], timeout_ms: int) -> Any:
        """The result of what another thread is at; on the network thread. Raises KafkaTimeoutError, or as the work."""
        ours = KafkaFuture()

        async def settle() -> None:
            error = work.exception()
            if error is None:
                ours.success(work.result())
            else:
                ours.failure(error)

        def tell(_: concurrent.futures.Future[Any]) -> None:
            with suppress(RuntimeError):  # the network thread has ended: nobody waits
                self.call_soon(settle)

        work.add_done_callback(tell)
        return await self.wait_for(ours, timeout_ms)


class _Connection(KafkaConnection):  # type: ignore[misc]
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        config = self.config
        self.parser = PlainProtocol(
            client_id=config["client_id"], receive_message_max_bytes=config["receive_message_max_bytes"]
        )
        transport._sock_recv = partial(_receive, transport._sock, self.parser)


def _receive(connection: socket.socket, protocol: PlainProtocol) -> tuple[bytes, Any]:
    """Some bytes that came, or an error; in place of a transport's own way, for two reasons.

    Most of a large answer goes straight to where it belongs, and is not among the bytes that are told: that way reads 4
    KiB at a time, and they are copied three times until they are there. And it drops bytes that come together with the
    connection's end. A broker that refuses a login answers and closes: the reason would be lost whenever this side is
    the slower one.
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


class PlainProtocol(KafkaProtocol):  # type: ignore[misc]
    """Reads answers with the plain decoders.

    To decode what a broker says of a thousand partitions takes 10 ms, and while no leader moves it says the same, byte
    for byte: then what was decoded is given again. Nobody may change it. The ends of logs move all the time: those are
    decoded by `listed_offsets`.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._said: Said = SingleFlightCache(_MOST_KEPT_BYTES, size_of=itemgetter(0))

    def room(self) -> memoryview:
        """Where the bytes belong that are still to come of the answer that has begun, but for the last."""
        return memoryview(self._rbuffer)[self._rbuffer.tell() : -1] if self._receiving else memoryview(b"")

    def fill(self, size: int) -> None:
        """So many bytes are there now."""
        self._rbuffer.seek(self._rbuffer.tell() + size)

    def send_request(self, request: Any, correlation_id: int | None = None) -> int:
        asked = len(self.in_flight_requests)
        correlation_id = super().send_request(request, correlation_id)
        if len(self.in_flight_requests) > asked and hasattr(request.header, "request_api_key"):
            self.in_flight_requests[-1] = _PlainHeader(request.header, correlation_id, request.API_VERSION, self._said)
        return int(correlation_id)


@dataclass(frozen=True, slots=True)
class _PlainHeader:
    """In place of a request's header and of its response's class."""

    header: Any
    correlation_id: int
    api_version: int
    said: Said

    def get_response_class(self) -> _PlainHeader:
        return self

    def parse_header(self, buffer: KafkaBytes) -> Any:
        """That of the response."""
        return self.header.get_response_class().parse_header(buffer)

    def decode(self, buffer: KafkaBytes) -> Any:
        """The response.

        Raises:
            ValueError: the bytes are no such response.
        """
        kind, version = self.header.get_response_class()[None], self.api_version
        content = memoryview(buffer).toreadonly()[buffer.tell() :]
        if kind is ApiVersionsResponse and bytes(content[:2]) != b"\0\0":  # an error comes in version 0
            version = 0
        if kind is not MetadataResponse:
            return self._decoded(kind, content, version)
        known = version, bytes(content)
        return self.said.get(known, lambda: (len(content), self._decoded(kind, content, version)))[1]

    def _decoded(self, kind: Any, content: memoryview, version: int) -> Any:
        flexible = kind.flexible_version_q(version)
        try:
            return kind._struct.decode(
                _Content(content), version=version, compact=flexible, tagged=flexible, data_class=kind
            )
        except Exception as error:  # the decoders raise whatever a wrong byte leads to
            raise ValueError(f"{type(error).__name__}: {error}") from error


class _Content:
    """What the plain decoders read an answer from: large fields, which records alone are, stay where they came."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def read(self, size: int) -> bytes | memoryview:
        field = self._data[self._position : self._position + size]
        self._position += len(field)
        return field if size >= _LARGE else bytes(field)


def api_name(api_key: int) -> str:
    """Kafka's name of the API, or its number where kafka-python does not know it."""
    try:
        return f"{ApiKey(api_key).name} (API {api_key})"
    except ValueError:
        return f"API {api_key}"


class AbstractHostLogin(ABC):
    """What logs in by AWS_MSK_IAM, in place of a token provider: the message depends on the broker's host."""

    @abstractmethod
    def message(self, host: str) -> bytes:
        """Return the login's only message. Must not wait. What it raises ends the login."""


class _MskIam(SaslMechanism):  # type: ignore[misc]
    """kafka-python's own asks AWS for credentials on the network thread, for each connection."""

    def __init__(self, login: AbstractHostLogin, host: str) -> None:
        self._login, self._host = login, host
        self._done = self._authenticated = False

    def auth_bytes(self) -> bytes:
        return self._login.message(self._host)

    def receive(self, auth_bytes: bytes) -> None:
        self._done, self._authenticated = True, auth_bytes != b""

    def is_done(self) -> bool:
        return self._done

    def is_authenticated(self) -> bool:
        return self._authenticated


def msk_iam_message(host: str, region: str, access_key: str, secret_key: str, token: str | None) -> bytes:
    """Sign a login at `host` as of now. The message has the session token in it, but not the secret key."""
    return bytes(AwsMskIamClient(host, access_key, secret_key, region, token).first_message())


def _msk_iam_mechanism(**config: Any) -> SaslMechanism:
    """Ours for our connections; clients of the user's own in this process keep kafka-python's."""
    login = config.get("sasl_oauth_token_provider")
    return _MskIam(login, config["host"]) if isinstance(login, AbstractHostLogin) else SaslMechanismAwsMskIam(**config)


register_sasl_mechanism("AWS_MSK_IAM", _msk_iam_mechanism, overwrite=True)

"""The gateway's addresses for brokers, and their insertion into brokers' responses. No I/O.

The mapping of brokers to gateway ports stays the same across restarts. Only the addresses in a response are replaced;
all other bytes are passed on unchanged. In Metadata the brokers precede the topics, which are not read. So the cost
does not depend on the number of partitions. Kafka defines the fields of each version in
`clients/src/main/resources/common/message/*Response.json`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from struct import Struct

from tiered_stream.broker.wire.kafka_python import ApiKey
from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway.protocol.frames import CORRELATION_ID_BYTES
from tiered_stream.records.flexible_versions import Reader, uvarint


@dataclass(frozen=True, slots=True)
class Address:
    """Network address: a host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


Advertise = Callable[[int, Address], Address]
"""Function from a broker's node id and own address to the gateway's address that clients use for the broker."""


class Endpoints:
    """Registry of brokers and their gateway ports. Thread-safe.

    The broker with node id n has the port `first_port + n % ports` on the gateway's host `advertised_host`.
    """

    def __init__(self, advertised_host: str, first_port: int, ports: int) -> None:
        self._host = advertised_host
        self._first_port = first_port
        self._ports = ports
        self._lock = threading.Lock()
        self._brokers: dict[int, tuple[int, Address]] = {}
        """Node id and own address of each known broker, by its gateway port."""

    def learn(self, node_id: int, broker: Address) -> Address:
        """Remember a broker's own address, and return the gateway's address that clients use for the broker.

        Raises:
            ConfigurationError: another broker that is remembered has the same gateway port.
        """
        port = self._port(node_id)
        with self._lock:
            holder, _ = self._brokers.setdefault(port, (node_id, broker))
            if holder != node_id:
                raise ConfigurationError(
                    f"gateway.broker.ports: brokers {holder} and {node_id} would share port {port}; "
                    "make the range longer"
                )
            self._brokers[port] = node_id, broker
        return Address(self._host, port)

    def keep(self, node_ids: Collection[int]) -> None:
        """Forget all brokers except `node_ids`, and free the ports of the forgotten brokers."""
        with self._lock:
            self._brokers = {port: broker for port, broker in self._brokers.items() if broker[0] in node_ids}

    def broker(self, node_id: int) -> Address:
        """Return a broker's own address, which the last call of `learn` for this broker has remembered.

        Raises:
            ConnectionRefusedError: the broker is not known any more.
        """
        holder, address = self._brokers.get(self._port(node_id), (None, None))
        if holder != node_id or address is None:
            raise ConnectionRefusedError(f"broker {node_id} has gone")
        return address

    def nodes(self) -> dict[int, int]:
        """Return the gateway's port of each known broker, by node id."""
        return {node_id: port for port, (node_id, _) in list(self._brokers.items())}

    def _port(self, node_id: int) -> int:
        return self._first_port + node_id % self._ports


_INT16, _INT32 = Struct(">h"), Struct(">i")


class _AddressReplacer:
    """Cursor that moves through a broker's response, and replaces the brokers' addresses by the gateway's."""

    def __init__(self, reader: Reader, flexible: bool, advertise: Advertise) -> None:
        self.reader = reader
        self.flexible = flexible
        self._advertise = advertise
        self._pieces: list[bytes] = []
        self._copied = 0

    def text(self) -> None:
        """Skip a string, which may be null."""
        self.reader.skip(self._length())

    def array(self, item: Callable[[], None]) -> None:
        """Read an array by calling `item` for each item; a null array has no items."""
        for _ in range(self.reader.uvarint() - 1 if self.flexible else self.int32()):
            item()

    def int32(self) -> int:
        return int(self.reader.unpack(_INT32)[0])

    def tags(self) -> None:
        if self.flexible:
            self.reader.tags()

    def address(self) -> None:
        """Read a node id, host and port, and replace host and port; a node id of -1 (no node) has no address."""
        node_id, start = self.int32(), self.reader.position
        host = self.reader.take(self._length(), "a host").decode()
        port = self.int32()
        if node_id < 0 or not host:
            return
        advertised = self._advertise(node_id, Address(host, port))
        encoded = advertised.host.encode()
        length = uvarint(len(encoded) + 1) if self.flexible else _INT16.pack(len(encoded))
        self._pieces += self.reader.data[self._copied : start], length + encoded + _INT32.pack(advertised.port)
        self._copied = self.reader.position

    def content(self) -> bytes:
        """Return the whole response with the replaced addresses."""
        return b"".join([*self._pieces, self.reader.data[self._copied :]])

    def _length(self) -> int:
        """Read the length of a string, in bytes; 0 for a null string."""
        return max(0, self.reader.uvarint() - 1 if self.flexible else int(self.reader.unpack(_INT16)[0]))


def _metadata(response: _AddressReplacer, version: int) -> None:
    def broker() -> None:
        response.address()
        if version >= 1:
            response.text()  # rack
        response.tags()

    response.reader.skip(4 * (version >= 3))  # throttle time
    response.array(broker)


def _find_coordinator(response: _AddressReplacer, version: int) -> None:
    def coordinator() -> None:
        response.text()  # key
        response.address()
        response.reader.skip(2)  # error code
        response.text()  # error message
        response.tags()

    response.reader.skip(4 * (version >= 1))  # throttle time
    if version >= 4:
        response.array(coordinator)
        return
    response.reader.skip(2)  # error code
    if version >= 1:
        response.text()  # error message
    response.address()


_LAYOUTS: dict[int, tuple[Callable[[_AddressReplacer, int], None], range, int]] = {
    ApiKey.Metadata: (_metadata, range(14), 9),
    ApiKey.FindCoordinator: (_find_coordinator, range(7), 3),
}
"""For each API: the function that reads a response, the versions with addresses, and the first flexible version."""

VERSIONS = {api_key: versions for api_key, (_, versions, _) in _LAYOUTS.items()}
"""Versions of responses whose addresses can be replaced, by API; the layout of newer versions is not known."""


def with_addresses(api_key: int, version: int, content: bytes, advertise: Advertise) -> bytes:
    """Return a broker's response with the gateway's addresses in place of the brokers'.

    Args:
        version: version of the response; `VERSIONS` must have it for the API.
        content: correlation id and body of the broker's response.
        advertise: maps a broker to the gateway's address for it.

    Raises:
        ValueError: the content is not a response of this API and version.
        ConfigurationError: `advertise` raised it, because two brokers would share a port.
    """
    replace_in, _, first_flexible = _LAYOUTS[api_key]
    response = _AddressReplacer(Reader(content, CORRELATION_ID_BYTES), version >= first_flexible, advertise)
    response.tags()
    replace_in(response, version)
    return response.content()

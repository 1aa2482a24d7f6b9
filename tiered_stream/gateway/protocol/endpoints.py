"""Mapping of brokers to gateway ports, which stays the same across restarts. No I/O."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tiered_stream.errors import ConfigurationError


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

    Broker n has port `first_port` + n modulo `ports`, on the host `advertised_host`.
    """

    def __init__(self, advertised_host: str, first_port: int, ports: int) -> None:
        self._host = advertised_host
        self._first_port = first_port
        self._ports = ports
        self._lock = threading.Lock()
        self._brokers: dict[int, Address] = {}
        self._node_at: dict[int, int] = {}

    def learn(self, node_id: int, broker: Address) -> Address:
        """Remember a broker's own address, and return the gateway's address that clients use for the broker.

        Raises:
            ConfigurationError: two brokers would share a port.
        """
        port = self._first_port + node_id % self._ports
        with self._lock:
            holder = self._node_at.setdefault(port, node_id)
            if holder != node_id:
                raise ConfigurationError(
                    f"gateway.broker.ports: brokers {holder} and {node_id} would share port {port}; "
                    "make the range longer"
                )
            self._brokers[node_id] = broker
        return Address(self._host, port)

    def keep(self, node_ids: Collection[int]) -> None:
        """Forget all brokers except these, and free the ports of the forgotten ones."""
        with self._lock:
            self._node_at = {port: node_id for port, node_id in self._node_at.items() if node_id in node_ids}
            self._brokers = {node_id: at for node_id, at in self._brokers.items() if node_id in node_ids}

    def broker(self, node_id: int) -> Address:
        """Return the last known own address of a broker.

        Raises:
            ConnectionRefusedError: the broker is not known any more.
        """
        known = self._brokers.get(node_id)
        if known is None:
            raise ConnectionRefusedError(f"broker {node_id} has gone")
        return known

    def nodes(self) -> dict[int, int]:
        """Return the gateway's port of each known broker, by node id."""
        return {node_id: port for port, node_id in list(self._node_at.items())}

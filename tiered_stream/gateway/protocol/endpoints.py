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

    The broker with node id n has port `first_port` + n modulo `ports` on the gateway's host `advertised_host`.
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
        """Return the own address of broker `node_id` that `learn` was given last.

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

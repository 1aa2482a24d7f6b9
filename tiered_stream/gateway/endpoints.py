"""Which of the gateway's ports stands for which broker: always the same one, also after a restart. No I/O."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tiered_stream.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


Advertise = Callable[[int, Address], Address]
"""From a broker's node id and own address to the address that clients are told."""


class Endpoints:
    """Brokers by node id: broker n has the port `first_port` + n modulo `ports`, on the host that clients are told.

    Serves many threads.
    """

    def __init__(self, advertised_host: str, first_port: int, ports: int) -> None:
        self._host = advertised_host
        self._first_port = first_port
        self._ports = ports
        self._lock = threading.Lock()
        self._brokers: dict[int, Address] = {}
        self._node_at: dict[int, int] = {}

    def learn(self, node_id: int, broker: Address) -> Address:
        """The address that clients are to use for a broker; remembers where the broker itself is.

        Raises:
            ConfigurationError: two brokers would have one port.
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
        """Forget all other brokers: they have gone, and their ports are free."""
        with self._lock:
            self._node_at = {port: node_id for port, node_id in self._node_at.items() if node_id in node_ids}
            self._brokers = {node_id: at for node_id, at in self._brokers.items() if node_id in node_ids}

    def broker(self, node_id: int) -> Address:
        """Where the broker was last known to be.

        Raises:
            ConnectionRefusedError: it has gone.
        """
        known = self._brokers.get(node_id)
        if known is None:
            raise ConnectionRefusedError(f"broker {node_id} has gone")
        return known

    def nodes(self) -> dict[int, int]:
        """The known brokers' node ids and the gateway's port for each."""
        return {node_id: port for port, node_id in list(self._node_at.items())}

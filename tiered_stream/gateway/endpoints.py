"""Which of the gateway's ports stands for which broker: always the same one, also after a restart. No I/O."""

from __future__ import annotations

from collections.abc import Callable
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
        self._brokers: dict[int, Address] = {}
        self._node_at: dict[int, int] = {}

    def learn(self, node_id: int, broker: Address) -> Address:
        """The address that clients are to use for a broker; remembers where the broker itself is.

        Raises:
            ConfigurationError: two brokers would have one port.
        """
        port = self._first_port + node_id % self._ports
        if self._node_at.setdefault(port, node_id) != node_id:
            raise ConfigurationError(
                f"gateway.broker.ports: brokers {self._node_at[port]} and {node_id} would share port {port}; "
                "make the range longer"
            )
        self._brokers[node_id] = broker
        return Address(self._host, port)

    def broker(self, node_id: int) -> Address:
        """Where the broker was last known to be."""
        return self._brokers[node_id]

    def nodes(self) -> dict[int, int]:
        """The known brokers' node ids and the gateway's port for each."""
        return {node_id: port for port, node_id in list(self._node_at.items())}

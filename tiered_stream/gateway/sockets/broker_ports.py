"""Gateway ports that stand for brokers: opened when a broker appears, closed when the broker has gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway.protocol.endpoints import Address, Endpoints
from tiered_stream.gateway.sockets.listener import Listener

log = logging.getLogger(__name__)

Serve = Callable[[int, int], Awaitable[Listener]]
"""Function that listens on a port for clients of a broker: (node id, port) to listener. OSError: the port is taken."""


class BrokerPorts:
    """Listeners of all brokers, used from one event loop.

    If a port cannot be opened, only its broker is unreachable, and `follow` tries the port again.
    """

    def __init__(self, endpoints: Endpoints, serve: Serve) -> None:
        self._endpoints = endpoints
        self._serve = serve
        self._listeners: dict[int, Listener] = {}
        self._taken: dict[int, str] = {}
        self._shared: dict[int, str] = {}
        self._opening = asyncio.Lock()

    async def follow(self, brokers: Mapping[int, Address]) -> None:
        """Open a port for each current broker, try failed ports again, and close the ports of all other brokers.

        Args:
            brokers: addresses of all current brokers, by node id.
        """
        self._endpoints.keep(brokers.keys())
        shared: dict[int, str] = {}
        for node_id, broker in brokers.items():
            try:
                self._endpoints.learn(node_id, broker)
            except ConfigurationError as error:
                shared[node_id] = str(error)
        _warn(shared, self._shared)
        self._shared = shared
        async with self._opening:
            await self._close_others()
            self._taken, before = {}, self._taken
            await self._open_missing()
            _warn(self._taken, before)

    async def open(self) -> None:
        """Open the ports of known brokers that have no listener yet, except ports that failed before."""
        if self._missing():
            async with self._opening:
                before = dict(self._taken)
                await self._open_missing()
                _warn(self._taken, before)

    def _missing(self) -> dict[int, int]:
        nodes = self._endpoints.nodes()
        return {node: port for node, port in nodes.items() if node not in self._listeners and node not in self._taken}

    async def _open_missing(self) -> None:
        for node_id, port in self._missing().items():
            try:
                self._listeners[node_id] = await self._serve(node_id, port)
            except OSError as error:
                reason = error.strerror or error
                self._taken[node_id] = f"port {port} cannot be listened on ({reason}); it is tried again"

    async def _close_others(self) -> None:
        for node_id in self._listeners.keys() - self._endpoints.nodes().keys():
            listener = self._listeners.pop(node_id)
            log.info("broker %d has gone: port %d is free", node_id, listener.port)
            await listener.close()

    def faults(self) -> list[str]:
        """Return one line for each broker that clients cannot reach through the gateway, with the reason."""
        faults = sorted({**self._taken, **self._shared}.items())
        return [f"broker {node_id} is not reached: {reason}" for node_id, reason in faults]

    def __str__(self) -> str:
        return ", ".join(str(listener.port) for listener in self._listeners.values())

    async def close(self) -> None:
        """Stop accepting connections on all broker ports."""
        for listener in self._listeners.values():
            await listener.close()


def _warn(faults: Mapping[int, str], before: Mapping[int, str]) -> None:
    for node_id, reason in faults.items():
        if before.get(node_id) != reason:
            log.warning("broker %d is not reached through the gateway: %s", node_id, reason)

"""Listening ports of the gateway: one for bootstrapping clients, and one for each broker.

A broker's port is opened when the broker appears, and closed when it has gone.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway.protocol.broker_addresses import Address, Endpoints
from tiered_stream.process.logs import LogRateLimit

log = logging.getLogger(__name__)
log.addFilter(LogRateLimit())

_BACKLOG = 1024
_RETRY_SECONDS = 1.0

Accept = Callable[[socket.socket, str], None]
"""Function that takes over an accepted connection; its second argument is the client's IP address."""


class Listener:
    """Listening sockets of one port, which hand each accepted connection to the function `accept`.

    asyncio's own server is not used. It logs a traceback for each of 1,024 attempts when no file descriptor is left. It
    cannot count connections before their TLS handshake, and accepts all waiting connections in one turn.
    """

    def __init__(self, listening: list[socket.socket], accept: Accept) -> None:
        self.port = int(listening[0].getsockname()[1])
        self._listening = listening
        self._tasks = [asyncio.create_task(_accept(listening_socket, accept)) for listening_socket in listening]

    @classmethod
    async def open(cls, host: str, port: int, accept: Accept) -> Self:
        """Listen on all addresses of the host, and call `accept` for each connection.

        Raises:
            OSError: the host is unknown, or the port is in use.
        """
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listening: list[socket.socket] = []
        try:
            for family, *_, address in dict.fromkeys(addresses):
                listening.append(socket.create_server(address, family=family, backlog=_BACKLOG))
                listening[-1].setblocking(False)
        except BaseException:
            for listening_socket in listening:
                listening_socket.close()
            raise
        return cls(listening, accept)

    async def close(self) -> None:
        """Stop listening; connections that were accepted stay open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listening_socket in self._listening:
            listening_socket.close()


async def _accept(listening: socket.socket, accept: Accept) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, address = await loop.sock_accept(listening)
        except ConnectionAbortedError:  # the client closed the connection before it was accepted
            continue
        except OSError as error:
            log.error("connections wait, none can be accepted: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        accept(connection, str(address[0]))
        await asyncio.sleep(0)


Serve = Callable[[int, int], Awaitable[Listener]]
"""Function that opens a listener for the clients of one broker: it gets the broker's node id and the gateway's port.

It raises OSError if the port is in use.
"""


class BrokerPorts:
    """Listeners on the gateway's ports for brokers. Used from one event loop.

    If a port cannot be opened, only its broker is unreachable, and `follow` tries the port again.

    Args:
        endpoints: brokers and their gateway ports.
        serve: opens the listener of one broker.
    """

    def __init__(self, endpoints: Endpoints, serve: Serve) -> None:
        self._endpoints = endpoints
        self._serve = serve
        self._listeners: dict[int, Listener] = {}
        self._faults: dict[int, str] = {}
        """Reason why clients cannot reach a broker through the gateway, by node id."""
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def follow(self, brokers: Mapping[int, Address]) -> None:
        """Open a port for each current broker, try failed ports again, and close the ports of all other brokers.

        Args:
            brokers: addresses of all current brokers, by node id.
        """
        async with self._opening:
            known, self._faults = self._faults, {}
            self._endpoints.keep(brokers.keys())
            for node_id, broker in brokers.items():
                try:
                    self._endpoints.learn(node_id, broker)
                except ConfigurationError as error:
                    self._faults[node_id] = str(error)
            for node_id in self._listeners.keys() - self._endpoints.nodes().keys():
                listener = self._listeners.pop(node_id)
                log.info("broker %d has gone: port %d is free", node_id, listener.port)
                await listener.close()
            await self._open_missing(known)

    async def open(self) -> None:
        """Open the ports of the brokers in `Endpoints` that have no listener yet, except ports that failed before."""
        if self._missing():
            async with self._opening:
                await self._open_missing(dict(self._faults))

    def _missing(self) -> dict[int, int]:
        """Return, by node id, the gateway ports of brokers that have neither a listener nor a recorded fault.

        After `close`, no port is missing.
        """
        nodes = {} if self._is_closed else self._endpoints.nodes()
        return {node: port for node, port in nodes.items() if node not in self._listeners and node not in self._faults}

    async def _open_missing(self, known_faults: Mapping[int, str]) -> None:
        for node_id, port in self._missing().items():
            try:
                self._listeners[node_id] = await self._serve(node_id, port)
            except OSError as error:
                reason = error.strerror or error
                self._faults[node_id] = f"port {port} cannot be listened on ({reason}); it is tried again"
        for node_id, fault in self._faults.items():
            if known_faults.get(node_id) != fault:
                log.warning("broker %d is not reached through the gateway: %s", node_id, fault)

    def faults(self) -> list[str]:
        """Return one line for each broker that clients cannot reach through the gateway, with the reason."""
        return [f"broker {node_id} is not reached: {reason}" for node_id, reason in sorted(self._faults.items())]

    def __str__(self) -> str:
        return ", ".join(str(listener.port) for listener in self._listeners.values())

    async def close(self) -> None:
        """Stop accepting connections on all broker ports; `open` opens no port any more."""
        self._is_closed = True
        async with self._opening:
            for listener in self._listeners.values():
                await listener.close()

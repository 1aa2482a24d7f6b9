"""Listening port of the gateway. It accepts one connection in each turn of the event loop, before any TLS handshake."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Self

from tiered_stream.gateway.log_rate_limit import LogRateLimit

log = logging.getLogger(__name__)
log.addFilter(LogRateLimit())

_BACKLOG = 1024
_RETRY_SECONDS = 1.0

Accept = Callable[[socket.socket, str], None]
"""Function that takes over an accepted connection; its second argument is the client's IP address."""


class Listener:
    """Listening sockets of one port, which hand each accepted connection to a function.

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

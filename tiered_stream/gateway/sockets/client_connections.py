"""Client connections, from accepting to closing them, with limits on their number."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from tiered_stream.errors import ConfigurationError
from tiered_stream.gateway.protocol.frames import FrameError
from tiered_stream.gateway.sockets.frame_memory import MemoryShortError
from tiered_stream.gateway.sockets.relay import Relay, RelayServices
from tiered_stream.gateway.sockets.streams import Streams, accept_streams, clear_traceback_frames
from tiered_stream.process.logs import LogRateLimit

log = logging.getLogger(__name__)
log.addFilter(LogRateLimit())

Connect = Callable[[], Awaitable[Streams]]
"""Function that opens a connection to a broker."""


class ClientConnections:
    """All client connections of a gateway, used from one event loop."""

    def __init__(self, services: RelayServices) -> None:
        self._settings = services.settings
        self._services = services
        self._metrics = services.metrics
        self._tasks: set[asyncio.Task[str]] = set()
        self._by_ip: Counter[str] = Counter()
        self._relays: set[Relay] = set()
        self._is_closing = False

    def accept(self, connect: Connect, connection: socket.socket, client: str) -> None:
        """Serve a connection in a new task, or close it at once if there are too many connections.

        Args:
            connect: opens the connection to the broker.
            connection: socket of the accepted connection.
            client: IP address of the client.
        """
        self._metrics.accepted.inc()
        settings = self._settings
        if len(self._tasks) >= settings.max_connections:
            self._refuse(connection, client, f"gateway.max.connections is {settings.max_connections}")
        elif self._by_ip[client] >= settings.max_connections_per_ip:
            self._refuse(connection, client, f"gateway.max.connections.per.ip is {settings.max_connections_per_ip}")
        else:
            self._by_ip[client] += 1
            task = asyncio.create_task(self._serve(connect, connection, client))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, connection, client))
            self._metrics.connections.set(len(self._tasks))

    def _refuse(self, connection: socket.socket, client: str, reason: str) -> None:
        log.warning("a connection from %s is refused: %s", client, reason)
        self._metrics.closed.labels("too_many").inc()
        connection.close()

    async def close(self) -> None:
        """Wait at most `shutdown_seconds` for outstanding responses, then close all connections."""
        self._is_closing = True
        for relay in self._relays:
            relay.drain()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._settings.shutdown_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, connect: Connect, connection: socket.socket, client: str) -> str:
        """Serve one connection until it ends; return the reason for its end, as the label of the metric `closed`."""
        settings, streams = self._settings, list[Streams]()
        try:
            tls = settings.listener_tls.context() if settings.listener_tls else None
            streams.append(await accept_streams(connection, tls, settings))
            streams[0].transport.pause_reading()  # until the broker is connected
            streams.append(await connect())
            streams[0].transport.resume_reading()
            await self._relay(*streams)
            return "shutdown"
        except Exception as error:  # noqa: BLE001 - an unexpected error, too, ends only this connection
            clear_traceback_frames(error)
            if isinstance(error, MemoryShortError):
                streams[0].transport.abort()  # a normal close would keep the unread bytes in memory
            return _reason(error, client, len(streams))
        finally:
            if len(streams) == 1:
                streams[0].transport.abort()
            await asyncio.gather(*(stream.close() for stream in streams))

    async def _relay(self, client: Streams, broker: Streams) -> None:
        """Relay between a client and a broker until one of them ends, or until `close` is called."""
        relay = Relay(client, broker, self._services)
        self._relays.add(relay)
        if self._is_closing:
            relay.drain()
        try:
            await relay.run()
        finally:
            self._relays.remove(relay)

    def _ended(self, connection: socket.socket, client: str, task: asyncio.Task[str]) -> None:
        connection.close()
        self._tasks.remove(task)
        self._by_ip[client] -= 1
        if not self._by_ip[client]:
            del self._by_ip[client]
        self._metrics.connections.set(len(self._tasks))
        self._metrics.closed.labels("shutdown" if task.cancelled() else task.result()).inc()


def _reason(error: Exception, client: str, streams: int) -> str:
    """Return the reason why a connection ended, as the label of the metric `closed`, and log the error.

    Args:
        streams: number of open connections when the error came: 0, 1 (to the client), or 2 (also to the broker).
    """
    match error:
        case FrameError() | MemoryShortError():
            log.warning("connection from %s closed: %s", client, str(error))
            return "memory" if isinstance(error, MemoryShortError) else "protocol"
        case ConfigurationError():
            log.error("connection from %s closed: %s", client, str(error))
            return "configuration"
        case EOFError():
            return "ended"
        case OSError():
            log.debug("connection from %s closed: %s", client, str(error))
            return ("handshake", "broker_unavailable", "lost")[streams]
    log.error("connection from %s closed by an error that the gateway does not expect", client, exc_info=error)
    return "error"

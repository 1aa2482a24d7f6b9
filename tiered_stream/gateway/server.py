"""The gateway: a port for bootstrapping and one for each broker, and the connections that come in there."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable
from functools import partial

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import metadata_request
from tiered_stream.broker.location_messages import LOCATIONS, SIGNED_LOCATIONS
from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.gateway.endpoints import Address, Endpoints
from tiered_stream.gateway.frames import FrameError
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.location_answers import LocationAnswers
from tiered_stream.gateway.location_workers import LocationWorkers
from tiered_stream.gateway.relay import CHUNK_BYTES, Relay, RelayServices, Streams
from tiered_stream.gateway.signing import LocationSigner
from tiered_stream.gateway.tiered_segments import TieredSegments
from tiered_stream.storage.open_fetcher import open_fetcher

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_BROKERS_SECONDS = 30.0
_RETRY_SECONDS = 1.0


class Gateway:
    """`start` it in an event loop; `stop` lets requests under way have their responses first.

    Raises:
        ConfigurationError: as `BrokerClient` and `open_fetcher`.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.metrics = GatewayMetrics()
        self._settings = settings
        self._endpoints = Endpoints(settings.advertised_host, settings.broker_ports.start, len(settings.broker_ports))
        self._client = BrokerClient(settings.kafka)
        self._bootstrap = [_address(server) for server in self._client.config.bootstrap_servers.split(",")]
        fetcher = open_fetcher(settings.storage)
        self._signer = LocationSigner(fetcher, settings.signed_location_seconds, self.metrics.signed)
        self._segments_known = TieredSegments(self._client, fetcher, settings.index_cache_bytes, settings.fresh_seconds)
        answers = LocationAnswers(self._segments_known, self._signer, settings.answer_cache_bytes, self.metrics)
        self._workers = LocationWorkers(answers, self.metrics)
        self._services = RelayServices(
            self._endpoints.learn,
            self._listen,
            SIGNED_LOCATIONS if self._signer.enabled else LOCATIONS,
            self._workers,
            self.metrics,
        )
        self._servers: dict[int, asyncio.Server] = {}
        self._opening = asyncio.Lock()
        self._connections: dict[asyncio.Task[None], Relay | None] = {}
        self._brokers_task: asyncio.Task[None] | None = None
        self.unhealthy_reason = "no broker has answered yet"
        """What keeps the gateway from its work; empty: nothing."""

    async def start(self) -> None:
        """Listen. Brokers that do not answer now are waited for.

        Raises:
            OSError: the bootstrap port is taken.
        """
        port = self._settings.bootstrap_port
        self._servers[-1] = await self._serve(port, self._connect_bootstrap)
        self._brokers_task = asyncio.create_task(self._follow_brokers())

    @property
    def bootstrap_port(self) -> int:
        """The port that is listened to."""
        return int(self._servers[-1].sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Take no more connections, wait for responses under way, then close everything."""
        self.unhealthy_reason = "shutting down"
        if self._brokers_task is not None:
            self._brokers_task.cancel()
            await asyncio.gather(self._brokers_task, return_exceptions=True)
        for server in self._servers.values():
            server.close()
        for relay in self._connections.values():
            if relay is not None:
                relay.drain()
        if self._connections:
            await asyncio.wait(self._connections, timeout=self._settings.shutdown_seconds)
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._workers.close()
        await asyncio.to_thread(self._client.close)
        await asyncio.to_thread(self._segments_known.close)

    async def _follow_brokers(self) -> None:
        while True:
            try:
                response = await asyncio.to_thread(self._client.ask_any_broker, lambda: metadata_request([]))
                for broker in response.brokers:
                    self._endpoints.learn(broker.node_id, Address(broker.host, broker.port))
                await self._listen()
                if self.unhealthy_reason:
                    log.info("%d brokers, listening on %s", len(response.brokers), self._ports())
                await asyncio.to_thread(self._segments_known.follow_all)
                if self.unhealthy_reason:
                    log.info("what is tiered is known")
                    self.unhealthy_reason = ""
                await asyncio.sleep(_BROKERS_SECONDS)
            except (TieredStreamError, OSError) as error:
                await self._wait_to_retry(str(error))
            except Exception as error:  # this task is all that keeps the gateway up to date: it must not end unseen
                log.exception("an error that the gateway does not expect")
                await self._wait_to_retry(f"an unexpected {type(error).__name__}: {error}")

    async def _wait_to_retry(self, reason: str) -> None:
        self.unhealthy_reason = reason
        log.error("the gateway cannot work: %s", reason)
        await asyncio.sleep(_RETRY_SECONDS)

    def _ports(self) -> str:
        return ", ".join(str(server.sockets[0].getsockname()[1]) for server in self._servers.values())

    async def _listen(self) -> None:
        """Open the ports of brokers that have none yet."""
        if self._endpoints.nodes().keys() <= self._servers.keys():
            return
        async with self._opening:
            for node_id, port in self._endpoints.nodes().items():
                if node_id not in self._servers:
                    self._servers[node_id] = await self._serve(port, partial(self._connect_broker, node_id))

    async def _serve(self, port: int, connect: Callable[[], Awaitable[Streams]]) -> asyncio.Server:
        settings = self._settings
        return await asyncio.start_server(
            partial(self._accept, connect), settings.listener_host, port,
            ssl=settings.listener_tls, limit=CHUNK_BYTES, backlog=1024,
        )  # fmt: skip

    async def _connect_broker(self, node_id: int) -> Streams:
        return await self._connect(self._endpoints.broker(node_id))

    async def _connect_bootstrap(self) -> Streams:
        for address in random.sample(self._bootstrap, len(self._bootstrap)):
            try:
                return await self._connect(address)
            except OSError as error:
                reason = error
        raise reason

    async def _connect(self, address: Address) -> Streams:
        opening = asyncio.open_connection(address.host, address.port, ssl=self._settings.broker_tls, limit=CHUNK_BYTES)
        reader, writer = await asyncio.wait_for(opening, _CONNECT_SECONDS)
        return _tuned(Streams(reader, writer))

    async def _accept(
        self, connect: Callable[[], Awaitable[Streams]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        client = _tuned(Streams(reader, writer))
        task = asyncio.current_task()
        assert task is not None
        self.metrics.accepted.inc()
        if len(self._connections) >= self._settings.max_connections:
            self.metrics.closed.labels("too_many").inc()
            await client.close()
            return
        self._connections[task] = None
        self.metrics.connections.set(len(self._connections))
        try:
            reason = await self._run(task, client, connect)
        except asyncio.CancelledError:  # by `stop`, which waits for nothing more
            reason = "shutdown"
        finally:
            del self._connections[task]
            self.metrics.connections.set(len(self._connections))
        self.metrics.closed.labels(reason).inc()

    async def _run(self, task: asyncio.Task[None], client: Streams, connect: Callable[[], Awaitable[Streams]]) -> str:
        """One connection from beginning to end; why it ended."""
        peer = client.writer.get_extra_info("peername")
        broker: Streams | None = None
        try:
            broker = await connect()
            relay = self._connections[task] = Relay(client, broker, self._services)
            await relay.run()
            return "shutdown"
        except FrameError as error:
            log.warning("connection from %s closed: %s", peer, error)
            return "protocol"
        except ConfigurationError as error:
            log.error("connection from %s closed: %s", peer, error)
            return "configuration"
        except EOFError:
            return "ended"
        except OSError as error:
            log.debug("connection from %s closed: %s", peer, error)
            return "broker_unavailable" if broker is None else "lost"
        finally:
            client.writer.transport.abort() if broker is None else None
            await asyncio.gather(client.close(), *([broker.close()] if broker else []))


def _address(server: str) -> Address:
    host, _, port = server.rpartition("://")[2].rpartition(":")
    return Address(host.strip("[]"), int(port))


def _tuned(streams: Streams) -> Streams:
    streams.writer.transport.set_write_buffer_limits(high=CHUNK_BYTES)
    connection = streams.writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return streams

"""Gateway server: listens on a bootstrap port and on one port for each broker, and serves the connections there."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from contextlib import suppress
from functools import partial

from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.cluster_metadata import metadata_request
from tiered_stream.broker.wire.location_messages import LOCATIONS, SIGNED_LOCATIONS
from tiered_stream.errors import ConfigurationError, TieredStreamError
from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.locations.faulty_partitions import FaultyPartitions
from tiered_stream.gateway.locations.location_responses import LocationResponses
from tiered_stream.gateway.locations.location_workers import LocationWorkers
from tiered_stream.gateway.locations.signing import LocationSigner
from tiered_stream.gateway.locations.tiered_segments import TieredSegments
from tiered_stream.gateway.protocol.broker_addresses import Address, Endpoints
from tiered_stream.gateway.sockets.client_connections import ClientConnections, Connect
from tiered_stream.gateway.sockets.frame_memory import FrameMemory
from tiered_stream.gateway.sockets.listening_ports import BrokerPorts, Listener
from tiered_stream.gateway.sockets.relay import RelayServices
from tiered_stream.gateway.sockets.streams import Streams, connect_streams
from tiered_stream.locate.metadata_topic.metadata_snapshots import open_snapshots
from tiered_stream.options.types import host_and_port
from tiered_stream.storage.open_fetcher import fetcher_over
from tiered_stream.storage.open_store import open_store
from tiered_stream.storage.throttle import TokenBucket

log = logging.getLogger(__name__)

_REFRESH_SECONDS = 30.0
_RETRY_SECONDS = 1.0


class Gateway:
    """Gateway in front of one Kafka cluster. Call `start` and then `stop` in one event loop.

    Raises:
        ConfigurationError: a setting for Kafka or for the storage is wrong.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.metrics = GatewayMetrics()
        self._settings = settings
        self._endpoints = Endpoints(settings.advertised_host, settings.broker_ports.start, len(settings.broker_ports))
        self._client = BrokerClient(settings.kafka)
        self._bootstrap = [Address(*host_and_port(each)) for each in self._client.config.bootstrap_servers.split(",")]
        self._ports = BrokerPorts(self._endpoints, self._serve_broker)
        self._storage_requests = TokenBucket(settings.storage_requests, max_saved_seconds=0)
        self._thread = threading.local()
        store = open_store(settings.storage)
        store.before_request = self._wait_for_storage
        self._fetcher = fetcher = fetcher_over(store, settings.storage)
        self._signer = LocationSigner(fetcher, settings.signed_location_seconds, self.metrics.signed)
        self.faulty = FaultyPartitions(self.metrics.registry)
        self._segments = TieredSegments(
            self._client, fetcher, settings.index_cache_bytes, settings.fresh_seconds, self.faulty,
            open_snapshots(settings.metadata_snapshot_dir),
        )  # fmt: skip
        responses = LocationResponses(
            self._segments, self._signer, settings.answer_cache_bytes, self.metrics, self._storage_requests_made
        )
        self._workers = LocationWorkers(responses, self.metrics)
        services = RelayServices(
            settings,
            self._advertise,
            self._ports.open,
            SIGNED_LOCATIONS if self._signer.enabled else LOCATIONS,
            self._workers,
            FrameMemory(settings.queued_bytes),
            self.metrics,
        )
        self._connections = ClientConnections(services)
        self._brokers_changed = asyncio.Event()
        self.unhealthy_reason = "no broker has responded yet"
        """Reason why the gateway does not work at the moment; empty if it works."""

    def _wait_for_storage(self) -> None:
        self._thread.storage_requests = self._storage_requests_made() + 1
        self._storage_requests.take(1)
        self.metrics.storage_requests.inc()

    def _storage_requests_made(self) -> int:
        """Return the number of storage requests that the calling thread has made so far."""
        return getattr(self._thread, "storage_requests", 0)

    async def start(self) -> None:
        """Listen on the bootstrap port, and start a task that lists the brokers repeatedly.

        The brokers need not be running yet.

        Raises:
            OSError: the bootstrap port is in use.
        """
        self._bootstrap_listener = await self._serve(self._settings.bootstrap_port, self._connect_bootstrap)
        self._brokers_task = asyncio.create_task(self._follow_brokers())

    @property
    def bootstrap_port(self) -> int:
        """Return the port for clients' `bootstrap.servers`; it is known once `start` has ended."""
        return self._bootstrap_listener.port

    def reasons(self) -> list[str]:
        """Return one line for each broker that clients cannot reach, and lines about faulty partitions.

        See `FaultyPartitions.reasons` for the lines about partitions.
        """
        return [*self._ports.faults(), *self.faulty.reasons()]

    async def stop(self) -> None:
        """Stop accepting connections, wait up to `shutdown_seconds` for responses, then close everything."""
        self.unhealthy_reason = "shutting down"
        self._brokers_task.cancel()
        await asyncio.gather(self._brokers_task, return_exceptions=True)
        await self._bootstrap_listener.close()
        await self._ports.close()
        await self._connections.close()
        self._workers.close()
        await asyncio.to_thread(self._client.close)
        await asyncio.to_thread(self._segments.close)
        await asyncio.to_thread(self._fetcher.close)

    async def _follow_brokers(self) -> None:
        while True:
            try:
                response = await asyncio.to_thread(self._client.ask_any_broker, lambda: metadata_request([]))
                brokers = response.brokers or ()
                await self._ports.follow({broker.node_id: Address(broker.host, broker.port) for broker in brokers})
                if self.unhealthy_reason:
                    log.info("%d brokers, listening on %s", len(brokers), self._ports)
                await asyncio.to_thread(self._segments.refresh_all)
                if self.unhealthy_reason:
                    log.info("the tiered segments of all topics are known")
                    self.unhealthy_reason = ""
                await self._wait_to_refresh()
            except (TieredStreamError, OSError) as error:
                await self._wait_to_retry(str(error))
            except Exception as error:  # only this task keeps the gateway up to date, so it must not end silently
                log.exception("an error that the gateway does not expect")
                await self._wait_to_retry(f"an unexpected {type(error).__name__}: {error}")

    async def _wait_to_retry(self, reason: str) -> None:
        self.unhealthy_reason = reason
        log.error("the gateway cannot work: %s", reason)
        await asyncio.sleep(_RETRY_SECONDS)

    async def _wait_to_refresh(self) -> None:
        await asyncio.sleep(_RETRY_SECONDS)
        self._brokers_changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_REFRESH_SECONDS):
                await self._brokers_changed.wait()

    def _advertise(self, node_id: int, broker: Address) -> Address:
        """Return the gateway's address for a broker, and remember the broker's own address (see `Endpoints.learn`).

        Raises:
            ConfigurationError: another known broker has the same gateway port. That broker may have left the cluster,
                so the gateway soon lists all brokers again.
        """
        try:
            return self._endpoints.learn(node_id, broker)
        except ConfigurationError:
            self._brokers_task.get_loop().call_soon_threadsafe(self._brokers_changed.set)
            raise

    async def _serve_broker(self, node_id: int, port: int) -> Listener:
        return await self._serve(port, partial(self._connect_broker, node_id))

    async def _serve(self, port: int, connect: Connect) -> Listener:
        accept = partial(self._connections.accept, connect)
        return await Listener.open(self._settings.listener_host, port, accept)

    async def _connect_broker(self, node_id: int) -> Streams:
        return await connect_streams(self._endpoints.broker(node_id), self._settings)

    async def _connect_bootstrap(self) -> Streams:
        for address in random.sample(self._bootstrap, len(self._bootstrap)):
            try:
                return await connect_streams(address, self._settings)
            except OSError as error:
                reason = error
        raise reason

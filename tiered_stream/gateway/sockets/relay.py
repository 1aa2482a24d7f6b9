"""Relay of one client connection: copies requests to the broker and responses back, as fast as the receiver reads.

At most one or two chunks of each stream are in memory, except for the few kinds of frames that are read whole. The
relay yields to the event loop before each request and each response, so that a busy client does not slow others down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.locations.location_responses import MAX_RESPONSE_BYTES
from tiered_stream.gateway.locations.location_workers import LocationWorkers, RecentWork
from tiered_stream.gateway.protocol import frames
from tiered_stream.gateway.protocol.api_versions import rewrite_response
from tiered_stream.gateway.protocol.broker_addresses import Advertise
from tiered_stream.gateway.protocol.connection_state import ConnectionState, Handling, Pending
from tiered_stream.gateway.protocol.location_requests import LocationRequest, possibly_asks
from tiered_stream.gateway.sockets.frame_memory import FrameMemory, MemoryShortError, Reservation
from tiered_stream.gateway.sockets.streams import CHUNK_BYTES, Streams, chunks, clear_traceback_frames

_MAX_RESPONSE_SIZE = (1 << 31) - 1
_MAX_IN_LOOP_BYTES = 64 << 10  # larger responses are rewritten by a thread; 64 KiB take about 2 ms
_GRACE_SECONDS = 0.2
# Bytes of memory for each byte of a frame that is read whole, and for each byte of a location request. A location
# request costs more: it is decoded and replaced by another Fetch, and the broker's response is decoded, too.
_COPIES, _LOCATED = 4, 32
_RESPONSE_BYTES = 256 << 10  # reserved for encoded segments with each location request; more is used only if it is free
_SMALL_BYTES = 16 << 10  # read without reserved memory, at most, to find out whether a request asks for locations


@dataclass(frozen=True, slots=True)
class RelayServices:
    """Objects and settings that all connections of a gateway share.

    `advertise` returns the gateway's address for a broker. `listen` opens the gateway's missing ports for the brokers
    with which `advertise` was called. `feature_version` is the version of `LOCATION_FEATURE` that clients are offered.
    """

    settings: GatewaySettings
    advertise: Advertise
    listen: Callable[[], Awaitable[None]]
    feature_version: int
    locations: LocationWorkers
    memory: FrameMemory
    metrics: GatewayMetrics


class Relay:
    """Relay between one client connection and a connection to a broker. `run` works until one of them ends."""

    def __init__(self, client: Streams, broker: Streams, services: RelayServices) -> None:
        self._client = client
        self._broker = broker
        self._services = services
        self._settings = services.settings
        self._state = ConnectionState(logged_in=not services.settings.login_asked)
        self._answered = asyncio.Event()
        self._draining = asyncio.Event()
        """Each relay has its own event, because the end of a wait takes longer if many others wait for the event."""
        self._recent_work = RecentWork()
        self._locating_since = 0.0
        """Time (`perf_counter`) when the current location request arrived; a connection has at most one at a time."""
        self._location_memory: Reservation | None = None
        """Memory of the current location request and its response."""
        self._needs_login = ""
        self._evicted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def drain(self) -> None:
        """Let `run` return as soon as no request waits for its response."""
        self._draining.set()

    async def run(self) -> None:
        """Relay until a connection ends or fails. The method returns without an error only after `drain`.

        Raises:
            OSError, EOFError: the client's or the broker's connection ended.
            FrameError: a frame is malformed or not allowed.
            MemoryShortError: the connection was evicted or needs too much memory.
            ConfigurationError: two brokers would share a port of the gateway.
        """
        ends: list[asyncio.Future[None]] = [
            *(asyncio.create_task(task) for task in (self._requests(), self._responses(), self._drained())),
            self._evicted,
        ]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            for error in await asyncio.gather(*ends, return_exceptions=True):
                clear_traceback_frames(error)
        for task in done:
            task.result()

    async def _drained(self) -> None:
        await self._draining.wait()
        while True:
            await self._wait_until_in_flight(0)
            # Some clients drop a response that arrives together with the end of the connection.
            await asyncio.sleep(_GRACE_SECONDS)
            if not self._state.in_flight:
                return

    async def _wait_until_in_flight(self, limit: int) -> None:
        """Wait until at most `limit` requests of this connection still have no response."""
        while self._state.in_flight > limit:
            self._answered.clear()
            await self._answered.wait()

    async def _requests(self) -> None:
        client, state = self._client.reader, self._state
        while True:
            await asyncio.sleep(0)
            await self._wait_until_in_flight(self._settings.in_flight - 1)
            size = frames.frame_size(await self._next_size(), self._settings.request_bytes)
            content = await client.readexactly(min(frames.HEAD_BYTES, size))
            head = frames.request_head(content)
            if size > self._settings.login_bytes:
                await self._wait_for_login(f"a request of {size:,} bytes (gateway.sasl.server.max.receive.size)")
            needed = state.bytes_needed(head, size)
            if needed <= _SMALL_BYTES:
                content += await client.readexactly(needed - len(content))
                if not possibly_asks(head, content):
                    await self._pass_on(head, content, size)
                    continue
            await self._locate(head, content, needed)

    async def _pass_on(self, head: frames.RequestHead, content: bytes, size: int, *, reserved: bool = False) -> None:
        """Pass on a request of `size` bytes: `content`, and then the rest, which is still in the client's stream.

        Args:
            content: the first bytes of the request.
            size: size of the whole request in bytes, without its size field.
            reserved: True if memory for `content` is reserved.
        """
        broker = self._broker.writer
        forwarded = self._state.forward(head, content)
        size += len(forwarded) - len(content)
        broker.write(size.to_bytes(frames.SIZE_BYTES, "big") + forwarded)
        await self._wait_until_read(broker, reserved=reserved)
        await self._copy(self._client.reader, broker, size - len(forwarded))
        self._services.metrics.bytes.labels("to_broker").inc(frames.SIZE_BYTES + size)

    async def _locate(self, head: frames.RequestHead, content: bytes, size: int) -> None:
        """Read a Fetch of `size` bytes, and send the broker the Fetch or, if it asks for locations, a replacement.

        1. Wait until the client has logged in, and until no other request of the connection is in flight. Otherwise an
           earlier response could wait for memory that this request occupies.
        2. Reserve memory, and read the rest of the Fetch.
        3. If the Fetch asks for locations, send another Fetch in its place, which asks the broker for authorization.
           Then wait until the client has its response.
        4. If the Fetch asks for no locations, or `_authorization` returns None, pass the Fetch on, and do not wait for
           the response.

        Args:
            content: the first bytes of the Fetch, which were read before.
        """
        await self._wait_for_login("a request for locations")
        await self._wait_until_in_flight(0)
        needed = _LOCATED * size + _RESPONSE_BYTES
        async with self._services.memory.reserve(self._evicted, needed, size) as memory:
            content += await self._client.reader.readexactly(size - len(content))
            self._locating_since = time.perf_counter()
            self._location_memory = memory
            authorization = None
            if possibly_asks(head, content):
                authorization = await self._authorization(head, content, memory)
            if authorization is None:
                memory.expect_peer(size)
                await self._pass_on(head, content, size, reserved=True)
            else:
                await self._send(self._state.authorize(*authorization), memory)

    async def _authorization(
        self, head: frames.RequestHead, content: bytes, memory: Reservation
    ) -> tuple[LocationRequest, bytes] | None:
        """Return the location request in the Fetch `content`, and the Fetch that asks the broker for authorization.

        Return None if the gateway must pass `content` on unchanged. `memory` is the memory that is reserved for
        `content`.
        """
        state, locations = self._state, self._services.locations
        memory.expect_gateway()
        request = await locations.decode(head, content, self._recent_work)
        if request is None:
            return None
        if state.topics_to_probe(request):
            await self._send(state.probe_topics(request), memory)
        memory.expect_gateway()
        return await locations.authorization(request, state.may_read(request), self._recent_work)

    async def _send(self, content: bytes, memory: Reservation) -> None:
        """Send the broker a complete request, and wait until no request of the connection is in flight.

        `memory` is the reservation for the request. The connection counts as slow only 30 s after this call.
        """
        memory.expect_broker()
        self._broker.writer.write(frames.frame(content))
        await self._broker.writer.drain()
        self._services.metrics.bytes.labels("to_broker").inc(frames.SIZE_BYTES + len(content))
        await self._wait_until_in_flight(0)

    async def _next_size(self) -> bytes:
        """Read the four size bytes of the client's next request.

        Raises:
            IncompleteReadError: the client has stopped sending. The error is raised when the client has all outstanding
                responses.
            TimeoutError: the client has stopped sending, and the responses took longer than `shutdown_seconds`.
        """
        try:
            return await self._client.reader.readexactly(frames.SIZE_BYTES)
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                async with asyncio.timeout(self._settings.shutdown_seconds):
                    await self._wait_until_in_flight(0)
            raise

    async def _wait_for_login(self, request: str) -> None:
        """Send the broker an empty Fetch (`probe_login`), and wait until its response shows the client's login.

        Return at once if an earlier response has shown the login, or if brokers ask for no login.

        Args:
            request: name of the request that needs a login, for the error message if the client has not logged in.
        """
        if not self._state.logged_in:
            self._needs_login = request
            self._broker.writer.write(frames.frame(self._state.probe_login()))
            await self._wait_until_in_flight(0)

    async def _responses(self) -> None:
        broker, client, state = self._broker.reader, self._client.writer, self._state
        while True:
            await asyncio.sleep(0)
            size = frames.frame_size(await self._next_response_size(), _MAX_RESPONSE_SIZE)
            pending = state.match_response(await broker.readexactly(frames.CORRELATION_ID_BYTES))
            start = frames.correlation_id_bytes(pending.head.correlation_id)
            if pending.handling is Handling.PASS:
                client.write(size.to_bytes(frames.SIZE_BYTES, "big") + start)
                await self._copy(broker, client, size - len(start))
            elif pending.locations is not None:
                size = await self._location_response(pending, pending.locations, start, size)
            else:
                size = await self._whole_response(pending, start, size)
            self._services.metrics.requests.labels(pending.handling.value).inc()
            self._services.metrics.bytes.labels("to_client").inc(frames.SIZE_BYTES + size)
            state.complete()
            if pending.handling is Handling.LOCATE:
                self._services.metrics.location_seconds.observe(time.perf_counter() - self._locating_since)
            self._answered.set()

    async def _next_response_size(self) -> bytes:
        try:
            return await self._broker.reader.readexactly(frames.SIZE_BYTES)
        except (OSError, EOFError) as error:
            if not self._state.logged_in and self._needs_login:
                raise frames.FrameError(f"{self._needs_login} before a login") from error
            # Some clients drop a response, such as a refused login, that arrives together with the connection's end.
            await asyncio.sleep(_GRACE_SECONDS)
            raise

    async def _whole_response(self, pending: Pending, start: bytes, size: int) -> int:
        """Read a response whole, send the client the rewritten response, and return its size without the size field.

        Return 0 for the response to the gateway's own Fetch of `probe_login`, which the client does not get.

        Args:
            start: the client's correlation id, with which the rewritten response begins.
            size: size of the broker's response, in bytes.
        """
        services = self._services
        async with services.memory.reserve(self._evicted, _COPIES * size, size) as memory:
            content = start + await self._broker.reader.readexactly(size - len(start))
            if pending.handling is Handling.PROBE:
                if not self._state.record_login(content):
                    raise frames.FrameError(f"{self._needs_login} before a login")
                return 0
            content = await self._rewritten(pending.head, content)
            memory.expect_peer(len(content))
            return await self._write([content], reserved=memory.size > 0)

    async def _location_response(self, pending: Pending, request: LocationRequest, start: bytes, size: int) -> int:
        """Read the broker's response to a location request, and send it to the client with locations filled in.

        Return the number of bytes sent, without the size field. The response uses the memory that is reserved for the
        request. Return 0 for the response to the gateway's own Fetch of `probe_topics`, which the client does not get.

        Args:
            start: the client's correlation id, with which the response to the client begins.
            size: size of the broker's response, in bytes.
        """
        memory = self._location_memory
        assert memory is not None
        missing = _COPIES * size - memory.size // 2
        if missing > 0 and memory.extend(missing) < missing:
            raise MemoryShortError(f"a response of {size:,} bytes to a location request (gateway.queued.max.bytes)")
        memory.expect_peer(size)
        content = start + await self._broker.reader.readexactly(size - len(start))
        if pending.handling is Handling.PROBE:
            self._state.record_topics(content)
            return 0
        before = memory.size
        max_bytes = _RESPONSE_BYTES + memory.extend(MAX_RESPONSE_BYTES)
        memory.expect_gateway()
        pieces = await self._services.locations.response(request, content, max_bytes, self._recent_work)
        size = sum(map(len, pieces))
        memory.shrink(before + max(0, size - _RESPONSE_BYTES))
        memory.expect_peer(size)
        return await self._write(pieces, reserved=True)

    async def _write(self, pieces: Sequence[bytes], *, reserved: bool) -> int:
        """Send the client a response as fast as the client reads, and return the response's size in bytes.

        Args:
            reserved: True if memory for the response is reserved.
        """
        size, writer = sum(map(len, pieces)), self._client.writer
        writer.write(size.to_bytes(frames.SIZE_BYTES, "big"))
        for chunk in chunks(pieces):
            writer.write(chunk)
            await self._wait_until_read(writer, reserved=reserved)
        return size

    async def _rewritten(self, head: frames.RequestHead, content: bytes) -> bytes:
        """Return the broker's response with the gateway's addresses or API versions, and open new brokers' ports."""
        services = self._services
        rewrite = partial(
            rewrite_response, head.api_key, head.api_version, content, services.advertise, services.feature_version
        )
        rewritten = await asyncio.to_thread(rewrite) if len(content) > _MAX_IN_LOOP_BYTES else rewrite()
        await services.listen()
        return rewritten

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> None:
        while count:
            data = await reader.read(min(count, CHUNK_BYTES))
            if not data:
                raise asyncio.IncompleteReadError(b"", count)
            count -= len(data)
            writer.write(data)
            await self._wait_until_read(writer)

    async def _wait_until_read(self, writer: asyncio.StreamWriter, *, reserved: bool = False) -> None:
        """Wait until at most `unread_bytes` are written but not read by the peer. Reserve memory for them meanwhile.

        Args:
            reserved: True if memory for the unread bytes is reserved already.
        """
        unread = self._settings.unread_bytes
        if reserved or writer.transport.get_write_buffer_size() <= unread:
            await writer.drain()
            return
        # Twice, because the sender's stream may have buffered the same number of bytes.
        async with self._services.memory.reserve(self._evicted, 2 * (unread + CHUNK_BYTES)):
            await writer.drain()

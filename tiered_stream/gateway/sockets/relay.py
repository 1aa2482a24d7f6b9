"""Relay of one client connection: copies requests to the broker and responses back, as fast as the receiver reads.

At most one or two chunks of each stream are in memory, except for the few kinds of frames that are read whole. The
relay yields to the event loop before each request and each response, so that a busy client does not slow others down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.gateway.locations.location_answers import LARGEST_ANSWER_BYTES
from tiered_stream.gateway.locations.location_workers import LocationWorkers
from tiered_stream.gateway.locations.turns import Spent
from tiered_stream.gateway.protocol.connection_state import ConnectionState, Handling, Pending
from tiered_stream.gateway.protocol.endpoints import Address, Advertise
from tiered_stream.gateway.protocol.frames import (
    CORRELATION_ID_BYTES,
    HEAD_BYTES,
    SIZE_BYTES,
    FrameError,
    RequestHead,
    correlation_id_bytes,
    frame,
    frame_size,
    request_head,
)
from tiered_stream.gateway.protocol.reader_apis import API_VERSIONS
from tiered_stream.gateway.protocol.rewrite import rewrite_response
from tiered_stream.gateway.sockets.frame_memory import FrameMemory, MemoryShortError
from tiered_stream.gateway.sockets.streams import CHUNK_BYTES, Streams, chunks, let_go

_LARGEST_RESPONSE = (1 << 31) - 1
_LARGEST_IN_LOOP = 64 << 10  # bytes; rewriting takes about 2 ms in the event loop, a thread rewrites larger responses
_GRACE_SECONDS = 0.2
# Bytes of memory for each byte of a frame that is read whole, and for each byte of a location request. A location
# request costs more: it is decoded and replaced by another Fetch, and the broker's response is decoded, too.
_COPIES, _LOCATED = 4, 32
_ANSWER_BYTES = 256 << 10  # reserved for encoded segments with each location request; more is used only if it is free
_SMALL_BYTES = 16 << 10  # largest part of a request that is read without a reservation to find out its kind


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """Limits from the fields of the same names in `GatewaySettings`; sizes in bytes, times in seconds."""

    login_asked: bool
    request_bytes: int
    login_bytes: int
    in_flight: int
    unread_bytes: int
    shutdown_seconds: float


@dataclass(frozen=True, slots=True)
class RelayServices:
    """Objects and limits that all connections of a gateway share.

    `advertise` maps a broker's address to the gateway's, `listen` opens ports for the brokers that `advertise` has
    seen, and `feature_version` is the version of `LOCATION_FEATURE` that clients are offered.
    """

    advertise: Advertise
    listen: Callable[[], Awaitable[None]]
    feature_version: int
    locations: LocationWorkers
    memory: FrameMemory
    limits: RelayLimits
    metrics: GatewayMetrics


class Relay:
    """Relay between one client connection and its own connection to a broker, until either of them ends."""

    def __init__(self, client: Streams, broker: Streams, services: RelayServices) -> None:
        self._client = client
        self._broker = broker
        self._services = services
        self._limits = services.limits
        self._state = ConnectionState(logged_in=not services.limits.login_asked)
        self._draining = asyncio.Event()
        self._answered = asyncio.Event()
        self._spent = Spent()
        self._locating_since = 0.0
        """Time (`perf_counter`) when the current location request arrived; a connection has at most one at a time."""
        self._needs_login = ""
        self._evicted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._memory = services.memory.share(self._evicted)

    async def run(self) -> None:
        """Relay until a connection ends or fails; return without an error only after `drain`.

        Raises:
            OSError, EOFError: the client's or the broker's connection ended.
            FrameError: a frame is malformed or not allowed.
            MemoryShortError: the connection was evicted or needs too much memory.
            ConfigurationError: two brokers would share a port.
        """
        ends: list[asyncio.Future[None]] = [
            *(asyncio.create_task(each) for each in (self._requests(), self._responses(), self._drained())),
            self._evicted,
        ]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            for error in await asyncio.gather(*ends, return_exceptions=True):
                let_go(error)
            self._memory.give_back(self._memory.held)
        for task in done:
            task.result()

    def drain(self) -> None:
        """Make `run` return as soon as no request waits for its response."""
        self._draining.set()

    async def _drained(self) -> None:
        await self._draining.wait()
        while True:
            await self._answered_but(0)
            # Some clients drop a response that arrives together with the end of the connection.
            await asyncio.sleep(_GRACE_SECONDS)
            if not self._state.in_flight:
                return

    async def _answered_but(self, requests: int) -> None:
        """Wait until at most `requests` requests of this connection still have no response."""
        while self._state.in_flight > requests:
            self._answered.clear()
            await self._answered.wait()

    async def _requests(self) -> None:
        client, broker, state, memory = self._client.reader, self._broker.writer, self._state, self._memory
        while True:
            await asyncio.sleep(0)
            await self._answered_but(self._limits.in_flight - 1)
            size = frame_size(await self._next_size(), self._limits.request_bytes)
            content = await client.readexactly(min(HEAD_BYTES, size))
            head = request_head(content)
            if size > self._limits.login_bytes:
                await self._logged_in(f"a request of {size:,} bytes (gateway.sasl.server.max.receive.size)")
            needed = state.bytes_needed(head, size)
            held = 0
            if needed > _SMALL_BYTES:  # a request that may ask for locations, and is read whole
                await self._logged_in("a request for locations")
                held = await self._reserve_request(needed)
            content += await client.readexactly(needed - len(content))
            if state.may_ask(head, content):
                held = held or await self._reserve_request(needed)
                await self._locate(head, content, held)
                continue
            passed, _ = state.request(content)
            broker.write((len(passed) + size - needed).to_bytes(SIZE_BYTES, "big") + passed)
            await (broker.drain() if held else self._taken(broker))
            memory.give_back(held)
            memory.wait_for()
            await self._copy(client, broker, size - needed)
            self._services.metrics.bytes.labels("to_broker").inc(SIZE_BYTES + len(passed) + size - needed)

    async def _reserve_request(self, size: int) -> int:
        """Reserve the memory for a location request of `size` bytes and for its response; return the reserved bytes.

        First wait until no other request of the connection is in flight. Otherwise an earlier response could wait for
        memory that this request holds.
        """
        await self._answered_but(0)
        held = await self._memory.reserve(_LOCATED * size + _ANSWER_BYTES)
        self._memory.wait_for(moving=size)
        return held

    async def _locate(self, head: RequestHead, content: bytes, held: int) -> None:
        """Pass on a Fetch that may ask for locations, and wait until the client has its response.

        Args:
            held: bytes of memory that are reserved for the request.
        """
        state, locations, memory = self._state, self._services.locations, self._memory
        self._locating_since = time.perf_counter()
        await self._logged_in("a request for locations")
        state.request(content)
        with memory.at_work():
            wanted = await locations.wanted(head, content, self._spent)
        found = None
        if wanted is not None:
            if state.topics_to_probe(wanted):
                await self._send(state.probe_topics(head, wanted, held))
            with memory.at_work():
                found = await locations.authorization(wanted, state.may_read(wanted), self._spent)
        if found is None:
            memory.give_back(held)
            await self._send(state.locate(head, content, None))
        else:
            await self._send(state.locate(head, found[1], found[0], held))

    async def _send(self, content: bytes) -> None:
        """Send the broker a complete request, and wait until no request is in flight."""
        broker = self._broker.writer
        self._memory.wait_for(broker=True)
        broker.write(frame(content))
        await broker.drain()
        self._services.metrics.bytes.labels("to_broker").inc(SIZE_BYTES + len(content))
        await self._answered_but(0)

    async def _next_size(self) -> bytes:
        """Read the four size bytes of the client's next request.

        If the client has stopped sending, wait at most `shutdown_seconds` for its outstanding responses, then raise.
        """
        try:
            return await self._client.reader.readexactly(SIZE_BYTES)
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                async with asyncio.timeout(self._limits.shutdown_seconds):
                    await self._answered_but(0)
            raise

    async def _logged_in(self, what: str) -> None:
        """Wait until a probe shows that the broker has accepted the client's login, unless that is known already.

        Args:
            what: the request that needs a login, for the error message if the probe fails.
        """
        if not self._state.logged_in:
            self._needs_login = what
            self._broker.writer.write(frame(self._state.probe()))
            await self._answered_but(0)

    async def _responses(self) -> None:
        broker, client, state = self._broker.reader, self._client.writer, self._state
        while True:
            await asyncio.sleep(0)
            size = frame_size(await self._next_response_size(), _LARGEST_RESPONSE)
            content = await broker.readexactly(CORRELATION_ID_BYTES)
            pending = state.response(content)
            self._memory.wait_for()
            content = correlation_id_bytes(pending.head.correlation_id)
            if pending.handling is Handling.PASS:
                client.write(size.to_bytes(SIZE_BYTES, "big") + content)
                await self._copy(broker, client, size - len(content))
            else:
                size = await self._whole_response(pending, size)
            self._services.metrics.requests.labels(pending.handling.value).inc()
            self._services.metrics.bytes.labels("to_client").inc(SIZE_BYTES + size)
            state.answered()
            if pending.handling is Handling.LOCATE:
                self._services.metrics.location_seconds.observe(time.perf_counter() - self._locating_since)
                self._memory.give_back(pending.held)
            self._answered.set()

    async def _next_response_size(self) -> bytes:
        try:
            return await self._broker.reader.readexactly(SIZE_BYTES)
        except (OSError, EOFError) as error:
            if not self._state.logged_in and self._needs_login:
                raise FrameError(f"{self._needs_login} before a login") from error
            # Some clients drop a response, such as a refused login, that arrives together with the connection's end.
            await asyncio.sleep(_GRACE_SECONDS)
            raise

    async def _whole_response(self, pending: Pending, size: int) -> int:
        """Read a response whole, send the client its rewritten form, and return the bytes sent, without the size field.

        Return 0 for the response to a probe, which the client does not get.
        """
        held = await self._reserve_response(pending, size)
        content = correlation_id_bytes(pending.head.correlation_id)
        content += await self._broker.reader.readexactly(size - len(content))
        if pending.handling is Handling.PROBE:
            self._probed(pending, content)
            self._memory.give_back(held)
            return 0
        room = self._memory.extend(LARGEST_ANSWER_BYTES) if pending.locations else 0
        pieces = await self._made_over(pending, content, _ANSWER_BYTES + room)
        made = sum(map(len, pieces))
        self._memory.wait_for(moving=made)
        unused = max(0, min(room, _ANSWER_BYTES + room - made))
        self._memory.give_back(unused)
        writer = self._client.writer
        writer.write(made.to_bytes(SIZE_BYTES, "big"))
        for chunk in chunks(pieces):
            writer.write(chunk)
            await (writer.drain() if held or pending.held else self._taken(writer))
        self._memory.give_back(held + room - unused)
        return made

    async def _reserve_response(self, pending: Pending, size: int) -> int:
        """Reserve the memory to read a response whole, beyond what its request holds; return the bytes reserved now.

        Raises:
            MemoryShortError: the memory is not available.
        """
        needed = _COPIES * size
        if not pending.held:
            return await self._memory.reserve(needed)
        more = needed - pending.held // 2
        if more <= 0:
            return 0
        held = self._memory.extend(more)
        if held < more:
            self._memory.give_back(held)
            raise MemoryShortError(f"a response of {size:,} bytes to a location request (gateway.queued.max.bytes)")
        return held

    def _probed(self, pending: Pending, content: bytes) -> None:
        if pending.locations is not None:
            self._state.topics_probed(content)
        elif not self._state.probed(content):
            raise FrameError(f"{self._needs_login} before a login")

    async def _made_over(self, pending: Pending, content: bytes, most_bytes: int) -> Sequence[bytes]:
        """Return the response for the client in pieces, with at most `most_bytes` bytes of encoded segments."""
        services, head = self._services, pending.head
        if pending.locations is not None:
            with self._memory.at_work():
                return await services.locations.answer(pending.locations, content, most_bytes, self._spent)
        if head.api_key == API_VERSIONS:
            number, rest = content[:CORRELATION_ID_BYTES], content[CORRELATION_ID_BYTES:]
            return number, _api_versions(head.api_version, rest, services.feature_version)
        rewrite = partial(
            rewrite_response, head.api_key, head.api_version, content, services.advertise, services.feature_version
        )
        made = await asyncio.to_thread(rewrite) if len(content) > _LARGEST_IN_LOOP else rewrite()
        await services.listen()
        return (made,)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> None:
        while count:
            data = await reader.read(min(count, CHUNK_BYTES))
            if not data:
                raise asyncio.IncompleteReadError(b"", count)
            count -= len(data)
            writer.write(data)
            await self._taken(writer)

    async def _taken(self, writer: asyncio.StreamWriter) -> None:
        """Wait until the peer's unread bytes are within the limit; until then they count as the connection's memory."""
        unread = self._limits.unread_bytes
        if writer.transport.get_write_buffer_size() <= unread:
            await writer.drain()
            return
        # The sender's stream may have buffered as many bytes ahead.
        async with self._memory.unread(2 * (unread + CHUNK_BYTES)):
            await writer.drain()


@lru_cache(64)
def _api_versions(api_version: int, content: bytes, feature_version: int) -> bytes:
    """Rewrite an ApiVersions response, given and returned without its correlation id.

    The result is cached, because it is the same for all clients and often needed.
    """
    response = bytes(CORRELATION_ID_BYTES) + content
    return rewrite_response(API_VERSIONS, api_version, response, _names_no_broker, feature_version)[
        CORRELATION_ID_BYTES:
    ]


def _names_no_broker(node_id: int, _: Address) -> Address:
    raise FrameError(f"ApiVersions with a broker {node_id}")

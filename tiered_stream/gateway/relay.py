"""The two streams of one client connection: requests to the broker, responses back, each only as fast as it is taken.

At most a chunk or two of each stream are in memory, but for the few kinds of frames that are read whole. Each request
and each response is a turn of the event loop, so that a client that sends much gets no more turns than others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from tiered_stream.gateway.connection_state import ConnectionState, Handling, Pending
from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.gateway.endpoints import Address, Advertise
from tiered_stream.gateway.frame_memory import FrameMemory, MemoryShortError
from tiered_stream.gateway.frames import (
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
from tiered_stream.gateway.location_answers import LARGEST_ANSWER_BYTES
from tiered_stream.gateway.location_workers import LocationWorkers
from tiered_stream.gateway.reader_apis import API_VERSIONS
from tiered_stream.gateway.rewrite import rewrite_response
from tiered_stream.gateway.streams import CHUNK_BYTES, Streams, chunks, let_go
from tiered_stream.gateway.turns import Spent

_LARGEST_RESPONSE = (1 << 31) - 1
_LARGEST_IN_LOOP = 64 << 10  # of an answer that is rewritten: about 2 ms, then a thread does it
_GRACE_SECONDS = 0.2
# What a byte costs: of a frame that is read whole; and of a location request, which is decoded, goes on as another one,
# and has an answer by the broker, which is decoded, too.
_COPIES, _LOCATED = 4, 32
_ANSWER_BYTES = 256 << 10  # of segments, which a location request reserves; more is for the taking while there is some
_SMALL_BYTES = 16 << 10  # of a request that is read before it is known what it is


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """As the settings of these names; sizes in bytes, times in seconds."""

    login_asked: bool
    request_bytes: int
    login_bytes: int
    in_flight: int
    unread_bytes: int
    shutdown_seconds: float


@dataclass(frozen=True, slots=True)
class RelayServices:
    """What all connections of a gateway share. `listen` opens ports for brokers that `advertise` has seen."""

    advertise: Advertise
    listen: Callable[[], Awaitable[None]]
    feature_version: int
    locations: LocationWorkers
    memory: FrameMemory
    limits: RelayLimits
    metrics: GatewayMetrics


class Relay:
    """Runs one client connection and its one connection to a broker until either ends."""

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
        """When the location request came that is under way: it is the only one."""
        self._needs_login = ""
        self._evicted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._memory = services.memory.share(self._evicted)

    async def run(self) -> None:
        """Raises what ended it: OSError or EOFError of a connection, or an error of ours."""
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
        """End as soon as no request waits for its response."""
        self._draining.set()

    async def _drained(self) -> None:
        await self._draining.wait()
        while True:
            await self._answered_but(0)
            # Some clients drop a response that comes together with the connection's end.
            await asyncio.sleep(_GRACE_SECONDS)
            if not self._state.in_flight:
                return

    async def _answered_but(self, requests: int) -> None:
        """Wait until no more than so many requests have no response."""
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
            if needed > _SMALL_BYTES:  # it may ask for locations
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
        """All that a location request of this size may need, its answer included.

        It is alone under way on its connection: else a response before it could wait for what it holds.
        """
        await self._answered_but(0)
        held = await self._memory.reserve(_LOCATED * size + _ANSWER_BYTES)
        self._memory.wait_for(moving=size)
        return held

    async def _locate(self, head: RequestHead, content: bytes, held: int) -> None:
        """Pass on a Fetch that may ask for locations, and wait for its answer."""
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
        """Send a request that is whole to the broker, and wait until it is answered."""
        broker = self._broker.writer
        self._memory.wait_for(broker=True)
        broker.write(frame(content))
        await broker.drain()
        self._services.metrics.bytes.labels("to_broker").inc(SIZE_BYTES + len(content))
        await self._answered_but(0)

    async def _next_size(self) -> bytes:
        """Of the next request. A client that sends no more still gets its responses."""
        try:
            return await self._client.reader.readexactly(SIZE_BYTES)
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                async with asyncio.timeout(self._limits.shutdown_seconds):
                    await self._answered_but(0)
            raise

    async def _logged_in(self, what: str) -> None:
        """Wait until the broker shows that it has let the client in, which `what` needs."""
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
            # Some clients drop a response that comes together with the connection's end, such as a login's refusal.
            await asyncio.sleep(_GRACE_SECONDS)
            raise

    async def _whole_response(self, pending: Pending, size: int) -> int:
        """Read it and pass it on as it is to be; how many bytes went to the client."""
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
        """What a response needs that is read whole, beyond what its request has reserved.

        Raises:
            MemoryShortError: so much cannot be had.
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
        """The response as it is to be, in pieces; at most so many bytes of segments."""
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
        """Wait until the peer has left no more unread than it may; what it leaves counts as memory that it keeps."""
        unread = self._limits.unread_bytes
        if writer.transport.get_write_buffer_size() <= unread:
            await writer.drain()
            return
        # As much may have been read before that.
        async with self._memory.unread(2 * (unread + CHUNK_BYTES)):
            await writer.drain()


@lru_cache(64)
def _api_versions(api_version: int, content: bytes, feature_version: int) -> bytes:
    """`rewrite_response` for what follows the correlation id: the same for all clients, and often asked for."""
    response = bytes(CORRELATION_ID_BYTES) + content
    return rewrite_response(API_VERSIONS, api_version, response, _names_no_broker, feature_version)[
        CORRELATION_ID_BYTES:
    ]


def _names_no_broker(node_id: int, _: Address) -> Address:
    raise FrameError(f"ApiVersions with a broker {node_id}")

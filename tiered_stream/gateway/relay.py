"""The two streams of one client connection: requests to the broker, responses back, each only as fast as it is taken.

At most a chunk or two of each stream are in memory, but for the few kinds of frames that are read whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tiered_stream.gateway.connection_state import ConnectionState, Handling, Pending
from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.gateway.frames import (
    CORRELATION_ID_BYTES,
    HEAD_BYTES,
    LARGEST_WHOLE_FRAME,
    SIZE_BYTES,
    FrameError,
    correlation_id_bytes,
    frame,
    frame_size,
    request_head,
)
from tiered_stream.gateway.location_workers import LocationWorkers
from tiered_stream.gateway.rewrite import Advertise, rewrite_response

CHUNK_BYTES = 256 << 10
LARGEST_REQUEST = 100 << 20
"""Kafka's own `socket.request.max.bytes`."""

_LARGEST_RESPONSE = (1 << 31) - 1
_GRACE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Streams:
    """One side of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            return


@dataclass(frozen=True, slots=True)
class RelayServices:
    """What all connections of a gateway share. `listen` opens ports for brokers that `advertise` has seen."""

    advertise: Advertise
    listen: Callable[[], Awaitable[None]]
    feature_version: int
    locations: LocationWorkers
    metrics: GatewayMetrics


class Relay:
    """Runs one client connection and its one connection to a broker until either ends."""

    def __init__(self, client: Streams, broker: Streams, services: RelayServices) -> None:
        self._client = client
        self._broker = broker
        self._services = services
        self._state = ConnectionState()
        self._draining = asyncio.Event()
        self._answered = asyncio.Event()

    async def run(self) -> None:
        """Raises what ended it: OSError or EOFError of a connection, FrameError, ConfigurationError."""
        streams = [asyncio.create_task(self._requests()), asyncio.create_task(self._responses())]
        drain = asyncio.create_task(self._drained())
        try:
            done, _ = await asyncio.wait([*streams, drain], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*streams, drain):
                task.cancel()
            await asyncio.gather(*streams, drain, return_exceptions=True)
        for task in done:
            task.result()

    def drain(self) -> None:
        """End as soon as no request waits for its response."""
        self._draining.set()

    async def _drained(self) -> None:
        await self._draining.wait()
        while True:
            while not self._state.idle:
                self._answered.clear()
                await self._answered.wait()
            # Some clients drop a response that comes together with the connection's end.
            await asyncio.sleep(_GRACE_SECONDS)
            if self._state.idle:
                return

    async def _requests(self) -> None:
        client, broker, state = self._client.reader, self._broker.writer, self._state
        while True:
            size = frame_size(await client.readexactly(SIZE_BYTES), LARGEST_REQUEST)
            content = await client.readexactly(min(HEAD_BYTES, size))
            head = request_head(content)
            content += await client.readexactly(state.bytes_needed(head, size) - len(content))
            rest = size - len(content)
            passed, may_ask = state.request(content)
            if may_ask:
                wanted, passed = await self._services.locations.authorization(head, passed)
                state.locate(head, wanted)
            broker.write((len(passed) + rest).to_bytes(SIZE_BYTES, "big") + passed)
            await broker.drain()
            await self._copy(client, broker, rest)
            self._services.metrics.bytes.labels("to_broker").inc(SIZE_BYTES + len(passed) + rest)

    async def _responses(self) -> None:
        broker, client, state = self._broker.reader, self._client.writer, self._state
        while True:
            size = frame_size(await broker.readexactly(SIZE_BYTES), _LARGEST_RESPONSE)
            content = await broker.readexactly(CORRELATION_ID_BYTES)
            pending = state.response(content)
            content = correlation_id_bytes(pending.head.correlation_id)
            if pending.handling is Handling.PASS:
                client.write(size.to_bytes(SIZE_BYTES, "big") + content)
                await client.drain()
                await self._copy(broker, client, size - len(content))
            else:
                if size > LARGEST_WHOLE_FRAME:
                    raise FrameError(f"a response of {size} bytes that must be read whole")
                content += await broker.readexactly(size - len(content))
                content = await self._made_over(pending, content)
                size = len(content)
                client.write(frame(content))
                await client.drain()
            self._services.metrics.requests.labels(pending.handling.value).inc()
            self._services.metrics.bytes.labels("to_client").inc(SIZE_BYTES + size)
            state.answered()
            self._answered.set()

    async def _made_over(self, pending: Pending, content: bytes) -> bytes:
        services, head = self._services, pending.head
        if pending.locations is not None:
            return await services.locations.answer(pending.locations, content)
        made = rewrite_response(head.api_key, head.api_version, content, services.advertise, services.feature_version)
        await services.listen()
        return made

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> None:
        while count:
            data = await reader.read(min(count, CHUNK_BYTES))
            if not data:
                raise asyncio.IncompleteReadError(b"", count)
            count -= len(data)
            writer.write(data)
            await writer.drain()

"""One connection through the relay, over real sockets, with a broker that does as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataResponse

from tests.gateway.requests import (
    fetch_response,
    location_fetch,
    metadata_request,
    metadata_response,
    produce_request,
    read,
)
from tiered_stream.gateway.authorization import authorization_request
from tiered_stream.gateway.counters import GatewayMetrics
from tiered_stream.gateway.endpoints import Address
from tiered_stream.gateway.frames import FrameError, RequestHead, frame
from tiered_stream.gateway.location_requests import LocationRequest, location_request
from tiered_stream.gateway.relay import CHUNK_BYTES, Relay, RelayServices, Streams

OTHER_API = bytes.fromhex("0024 0002")
"""SaslAuthenticate v2: passed on unread."""


class Locations:
    """Authorization at offset 77, answers that are the broker's own; what it was given is kept."""

    def __init__(self) -> None:
        self.answered: list[bytes] = []

    async def authorization(self, head: RequestHead, content: bytes) -> tuple[LocationRequest | None, bytes]:
        request = location_request(head, content)
        assert request is not None
        return request, authorization_request(request, dict.fromkeys(request.wanted, 77))

    async def answer(self, request: LocationRequest, content: bytes) -> bytes:
        self.answered.append(content)
        return content


class Ends:
    """The client's and the broker's ends of a relayed connection."""

    def __init__(
        self, client: Streams, broker: Streams, relay: Relay, running: asyncio.Task[None], locations: Locations
    ) -> None:
        self.client, self.broker, self.relay, self.running, self.locations = client, broker, relay, running, locations

    async def ask(self, content: bytes) -> None:
        self.client.writer.write(frame(content))
        await self.client.writer.drain()

    async def answer(self, content: bytes) -> None:
        self.broker.writer.write(frame(content))
        await self.broker.writer.drain()


async def received(streams: Streams) -> bytes:
    size = int.from_bytes(await streams.reader.readexactly(4), "big")
    return await streams.reader.readexactly(size)


async def pair() -> tuple[Streams, Streams]:
    """Both ends of a connection."""
    accepted: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(Streams(reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=CHUNK_BYTES)
    try:
        near = Streams(*await asyncio.open_connection(*server.sockets[0].getsockname()))
        return near, await accepted
    finally:
        server.close()  # no waiting for it to be closed: since Python 3.12.1 that is until its connections are


def relayed(work: Callable[[Ends], Awaitable[None]]) -> None:
    """Run `work` with a relay between its ends, and see that nothing is left of it."""

    async def run() -> None:
        (client, outer), (inner, broker), locations = await pair(), await pair(), Locations()

        async def listen() -> None:
            return

        services = RelayServices(lambda node, own: Address("gateway", 1), listen, 2, locations, GatewayMetrics())  # type: ignore[arg-type]
        relay = Relay(outer, inner, services)
        running = asyncio.create_task(relay.run())
        try:
            await asyncio.wait_for(work(Ends(client, broker, relay, running, locations)), 20)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for streams in (client, outer, inner, broker):
                await streams.close()
            assert len(asyncio.all_tasks()) <= 3, "nothing of the relay goes on"

    asyncio.run(run())


def test_requests_and_responses_go_through_and_addresses_are_replaced() -> None:
    async def work(ends: Ends) -> None:
        await ends.ask(OTHER_API + b"\0\0\0\5token")
        await ends.ask(metadata_request(6))
        # The gateway has correlation ids of its own.
        assert await received(ends.broker) == OTHER_API + b"\0\0\0\1token"
        assert await received(ends.broker) == metadata_request(2)
        await ends.answer(b"\0\0\0\1granted")
        await ends.answer(metadata_response({1: ("broker", 9092)}, correlation_id=2))
        assert await received(ends.client) == b"\0\0\0\5granted"
        answer = read(MetadataResponse, await received(ends.client), 12)
        (found,) = answer.brokers
        assert answer.header.correlation_id == 6 and (found.host, found.port) == ("gateway", 1)

    relayed(work)


def test_bytes_that_come_one_at_a_time_are_the_same_request() -> None:
    async def work(ends: Ends) -> None:
        requests = metadata_request(1), produce_request(-1, 9, "id", 2), location_fetch({0: (1, 2)}, correlation_id=3)
        for content in requests:
            for byte in frame(content):
                ends.client.writer.write(bytes([byte]))
                await ends.client.writer.drain()
                await asyncio.sleep(0)
            assert (await received(ends.broker))[:8] == content[:8]

    relayed(work)


def test_a_location_request_goes_on_as_one_for_authorization_and_its_answer_waits_its_turn() -> None:
    async def work(ends: Ends) -> None:
        await ends.ask(metadata_request(1))
        await ends.ask(location_fetch({0: (1, 2)}, correlation_id=2))
        await ends.ask(metadata_request(3))
        await received(ends.broker)
        sent = read(FetchRequest, await received(ends.broker), 15)
        assert sent.topics[0].partitions[0].fetch_offset == 77
        await received(ends.broker)
        for content in (
            metadata_response({}, correlation_id=1), fetch_response({0: {}}, correlation_id=2),
            metadata_response({}, correlation_id=3),
        ):  # fmt: skip
            await ends.answer(content)
        await received(ends.client)
        assert read(FetchResponse, await received(ends.client), 15).header.correlation_id == 2
        await received(ends.client)
        assert len(ends.locations.answered) == 1

    relayed(work)


def test_bytes_that_a_client_chose_are_not_taken_for_an_authorization() -> None:
    """All requests have one id; the broker answers a Produce of old, and a SyncGroup by bytes that would authorize."""

    async def work(ends: Ends) -> None:
        produce = bytes.fromhex("0000 0002 00000001 0000 ffff 00007530 00000000")
        sync_group = bytes.fromhex("000e 0005 00000001") + b"chosen"
        for content in (produce, sync_group, location_fetch({0: (1, 2)}, correlation_id=1)):
            await ends.ask(content)
        sent = [(await received(ends.broker))[4:8] for _ in range(3)]
        authorizing = fetch_response({0: {}})[4:]
        await ends.answer(sent[0] + b"produced")
        await ends.answer(sent[1] + authorizing)
        assert await received(ends.client) == b"\0\0\0\1produced"
        assert await received(ends.client) == b"\0\0\0\1" + authorizing
        assert ends.locations.answered == []
        # Nor by a broker that has left a request without an answer.
        await ends.answer(sent[1] + authorizing)
        with pytest.raises(FrameError, match="not asked next"):
            await ends.running
        assert ends.locations.answered == []

    relayed(work)


def test_large_frames_are_streamed_as_fast_as_they_are_taken() -> None:
    async def work(ends: Ends) -> None:
        size = 24 << 20
        ends.client.writer.write(size.to_bytes(4, "big") + produce_request(1, 9)[:30].ljust(30, b"\0"))
        pushed = 0

        async def push() -> None:
            nonlocal pushed
            while pushed < size - 30:
                chunk = min(1 << 20, size - 30 - pushed)
                ends.client.writer.write(bytes(chunk))
                await ends.client.writer.drain()
                pushed += chunk

        pushing = asyncio.create_task(push())
        await asyncio.sleep(0.5)
        held = pushed
        assert held < 16 << 20, "the client waits for a broker that takes nothing"
        assert len(await received(ends.broker)) == size
        await pushing

    relayed(work)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"\xff\xff\xff\xff",
        b"\0\0\0\4abcd",
        frame(b"\0\3\0\x63" + bytes(9)),
    ],
)
def test_what_is_not_kafka_ends_the_connection(sent: bytes) -> None:
    async def work(ends: Ends) -> None:
        ends.client.writer.write(sent)
        with pytest.raises(FrameError):
            await ends.running

    relayed(work)


@pytest.mark.parametrize("answer", [b"\0\0\0\x63", b"\0\0\0\1garbage"])
def test_a_broker_that_answers_what_was_not_asked_ends_the_connection(answer: bytes) -> None:
    async def work(ends: Ends) -> None:
        await ends.ask(metadata_request(1))
        await received(ends.broker)
        await ends.answer(answer)
        with pytest.raises(FrameError):
            await ends.running

    relayed(work)


@pytest.mark.parametrize("who", ["client", "broker"])
@pytest.mark.parametrize("half", [b"", b"\0\0"])
def test_when_one_end_hangs_up_the_connection_ends(who: str, half: bytes) -> None:
    async def work(ends: Ends) -> None:
        end: Streams = getattr(ends, who)
        end.writer.write(half)
        await end.writer.drain()
        await end.close()
        with pytest.raises((EOFError, OSError)):
            await ends.running

    relayed(work)


def test_a_drained_connection_ends_after_the_responses_under_way() -> None:
    async def work(ends: Ends) -> None:
        await ends.ask(metadata_request(1))
        await received(ends.broker)
        ends.relay.drain()
        await asyncio.sleep(0.05)
        assert not ends.running.done()
        await ends.answer(metadata_response({}, correlation_id=1))
        await received(ends.client)
        await ends.running

    relayed(work)


def test_an_idle_connection_is_drained_at_once() -> None:
    async def work(ends: Ends) -> None:
        ends.relay.drain()
        await ends.running

    relayed(work)

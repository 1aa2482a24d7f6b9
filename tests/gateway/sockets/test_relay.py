"""One connection through the relay, over real sockets, with a broker that does as the test says."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataResponse

from tests.gateway.requests import fetch_response, location_fetch, metadata_request, metadata_response, read, response
from tests.gateway.sockets.test_frame_memory import WatchedMemory
from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.locations.location_workers import RecentWork
from tiered_stream.gateway.protocol.authorization import authorization_request
from tiered_stream.gateway.protocol.broker_addresses import Address, Advertise
from tiered_stream.gateway.protocol.frames import (
    FrameError,
    RequestHead,
    correlation_id,
    correlation_id_bytes,
    frame,
    request_head,
)
from tiered_stream.gateway.protocol.location_requests import LocationRequest, TopicIdPartition, location_request
from tiered_stream.gateway.sockets import frame_memory
from tiered_stream.gateway.sockets.frame_memory import FrameMemory, MemoryShortError
from tiered_stream.gateway.sockets.relay import Relay, RelayServices
from tiered_stream.gateway.sockets.streams import Streams, accept_streams
from tiered_stream.options.parsing import StorageOptions

T = TypeVar("T")
SETTINGS = GatewaySettings(
    listener_tls=None, broker_tls=None, login_asked=False, kafka={}, storage=StorageOptions(), shutdown_seconds=600
)
WITH_LOGIN = replace(SETTINGS, login_asked=True)
BEYOND = (1 << 63) - 1
OTHER_API = bytes.fromhex("0024 0002")
"""SaslAuthenticate v2: passed on unread."""


class Locations:
    """Authorization at offset 77, answers that are the broker's own; what it was given is kept."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.may_read: list[list[TopicIdPartition]] = []
        self.answered: list[bytes] = []

    async def decode(self, head: RequestHead, content: bytes, recent_work: RecentWork) -> LocationRequest | None:
        self.asked.append(content)
        return location_request(head, content)

    async def authorization(
        self, request: LocationRequest, may_read: list[TopicIdPartition], recent_work: RecentWork
    ) -> tuple[LocationRequest, bytes] | None:
        self.may_read.append(may_read)
        return request, authorization_request(request, dict.fromkeys(may_read, 77))

    async def response(
        self, request: LocationRequest, content: bytes, max_bytes: int, recent_work: RecentWork
    ) -> list[bytes]:
        self.answered.append(content)
        return [content[:7], content[7:]]


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

    async def let_read(self, error_code: int = 1) -> bytes:
        """Answer the look whether the client may READ: it may, as the offset is said to be out of range."""
        probe = await received(self.broker)
        assert read(FetchRequest, probe, 15).topics[0].partitions[0].fetch_offset == BEYOND
        await self.answer(fetch_response({0: {"error_code": error_code}}, correlation_id=correlation_id(probe[4:])))
        return probe


async def received(streams: Streams) -> bytes:
    size = int.from_bytes(await streams.reader.readexactly(4), "big")
    return await streams.reader.readexactly(size)


async def pair() -> tuple[Streams, Streams]:
    """Both ends of a connection, as the gateway has them."""
    near, far = socket.socketpair()
    return await accept_streams(near, None, SETTINGS), await accept_streams(far, None, SETTINGS)


def gateway(node_id: int, own: Address) -> Address:
    return Address("gateway", 1)


@asynccontextmanager
async def relayed(
    settings: GatewaySettings = SETTINGS,
    memory: FrameMemory | None = None,
    advertise: Advertise = gateway,
    metrics: GatewayMetrics | None = None,
) -> AsyncIterator[Ends]:
    """A relay between two ends, of which nothing may be left."""
    (client, outer), (inner, broker), locations = await pair(), await pair(), Locations()

    async def listen() -> None:
        return

    budget = memory or FrameMemory(256 << 20)
    services = RelayServices(
        settings, advertise, listen, 2, locations, budget, metrics or GatewayMetrics()  # type: ignore[arg-type]
    )  # fmt: skip
    relay = Relay(outer, inner, services)
    running = asyncio.create_task(relay.run())
    try:
        async with asyncio.timeout(20):
            yield Ends(client, broker, relay, running, locations)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for streams in (client, outer, inner, broker):
            streams.transport.abort()
            await streams.close()
        assert len(asyncio.all_tasks()) <= 3, "nothing of the relay goes on"
        assert budget.used == 0


async def test_requests_and_responses_go_through_and_addresses_are_replaced() -> None:
    async with relayed() as ends:
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


async def test_a_large_answer_is_rewritten_while_the_event_loop_goes_on() -> None:
    """The addresses are given out only once the loop has done something else."""
    asked, gone_on = threading.Event(), threading.Event()

    def advertise(node_id: int, own: Address) -> Address:
        asked.set()
        assert gone_on.wait(10), "the loop stood still"
        return Address("gateway", 1)

    async with relayed(advertise=advertise) as ends:
        await ends.ask(metadata_request(6))
        await received(ends.broker)
        large = metadata_response({1: ("broker", 9092)}, correlation_id=1) + bytes(1 << 20)
        await ends.answer(large)
        while not asked.is_set():
            await asyncio.sleep(0)
        gone_on.set()
        assert len(await received(ends.client)) == len(large) + len("gateway") - len("broker")


async def test_bytes_that_come_one_at_a_time_are_the_same_request() -> None:
    async with relayed() as ends:
        requests = metadata_request(1), metadata_request(2, 9), location_fetch({0: (1, 2)}, correlation_id=3)
        for content in requests:
            for byte in frame(content):
                ends.client.writer.write(bytes([byte]))
                await ends.client.writer.drain()
                await asyncio.sleep(0)
            assert (await received(ends.broker))[:4] == content[:4]
            if content[:2] == b"\0\3":
                await ends.answer(metadata_response({}, int(content[3]), correlation_id=content[7]))


async def test_the_time_of_a_location_is_that_from_its_request_to_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part takes a time that tells it from the others; what comes before and after is none of it."""
    now, metrics = [0.0], GatewayMetrics()
    monkeypatch.setattr("tiered_stream.gateway.sockets.relay.time.perf_counter", lambda: now[0])

    def taking(seconds: float, part: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def timed(*arguments: object) -> T:
            now[0] += seconds
            return await part(*arguments)

        return timed

    async with relayed(metrics=metrics) as ends:
        locations = ends.locations
        for seconds, name in ((1, "decode"), (10, "authorization"), (100, "response")):
            monkeypatch.setattr(locations, name, taking(seconds, getattr(locations, name)))
        for number in (1, 2):
            now[0] += 100_000
            await ends.ask(location_fetch({0: (1, 2)}, correlation_id=number))
            if number == 1:
                await ends.let_read()
            sent = await received(ends.broker)
            now[0] += 1_000
            await ends.answer(fetch_response({0: {}}, correlation_id=correlation_id(sent[4:])))
            await received(ends.client)
        await ends.ask(metadata_request(3))  # whoever answers it has counted the ones before
        await received(ends.broker)
    name = "tiered_stream_gateway_location_seconds"
    found = [metrics.registry.get_sample_value(f"{name}_{each}") for each in ("count", "sum")]
    assert found == [2, 2 * 1_111]


async def test_a_location_request_waits_its_turn_and_goes_on_as_one_for_authorization() -> None:
    async with relayed() as ends:
        await ends.ask(metadata_request(1))
        await ends.ask(location_fetch({0: (1, 2)}, correlation_id=2))
        await ends.ask(metadata_request(3))
        assert request_head(await received(ends.broker)).api_key == 3
        await ends.answer(metadata_response({}, correlation_id=1))
        await ends.let_read()
        sent = await received(ends.broker)
        assert read(FetchRequest, sent, 15).topics[0].partitions[0].fetch_offset == 77
        await ends.answer(fetch_response({0: {}}, correlation_id=correlation_id(sent[4:])))
        last = await received(ends.broker)
        await ends.answer(metadata_response({}, correlation_id=correlation_id(last[4:])))
        await received(ends.client)
        assert read(FetchResponse, await received(ends.client), 15).header.correlation_id == 2
        assert correlation_id(await received(ends.client)) == 3
        assert len(ends.locations.answered) == 1


async def located(ends: Ends, number: int) -> list[TopicIdPartition]:
    """Answer the authorization of a location request; of which partitions the gateway asked anything itself."""
    sent = await received(ends.broker)
    await ends.answer(fetch_response({0: {}}, correlation_id=correlation_id(sent[4:])))
    assert correlation_id(await received(ends.client)) == number
    return ends.locations.may_read[-1]


@pytest.mark.parametrize("error_code", [29, 3, 100])
async def test_nothing_is_asked_for_who_has_not_shown_that_the_broker_lets_it_read(error_code: int) -> None:
    """TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID."""
    async with relayed() as ends:
        for number in (1, 2):
            await ends.ask(location_fetch({0: (1, 2)}, correlation_id=number))
            await ends.let_read(error_code)
            assert await located(ends, number) == []


async def test_a_topic_that_the_client_may_read_is_looked_at_once_a_connection() -> None:
    async with relayed() as ends:
        await ends.ask(location_fetch({0: (1, 2)}, correlation_id=1))
        await ends.let_read()
        assert len(await located(ends, 1)) == 1
        await ends.ask(location_fetch({0: (1, 2)}, correlation_id=2))
        assert len(await located(ends, 2)) == 1


async def test_a_location_request_that_can_never_fit_is_refused_at_once() -> None:
    """It used to wait for ever for memory that it held itself."""
    content = location_fetch({0: (1, 2)}).ljust(859 << 10, b"\0")

    async with relayed(memory=FrameMemory(16 << 20)) as ends:
        ends.client.writer.write(frame(content)[:64])  # the rest is not even waited for
        with pytest.raises(MemoryShortError, match=r"a frame needs .* bytes, of 12,582,912 at most"):
            await ends.running


async def test_requests_that_do_not_fit_together_are_answered_one_after_another() -> None:
    """Each reserves all that it needs, or nothing: nobody waits for what another one holds while it waits."""
    budget = WatchedMemory(64 << 20)
    content = location_fetch(dict.fromkeys(range(30_000), (1, 2)))
    assert 16 * len(content) < budget.largest < 64 * len(content)

    async with relayed(memory=budget) as ends:
        async with budget.reserve(asyncio.get_running_loop().create_future(), 40 << 20) as holder:
            holder.expect_gateway()
            asking = asyncio.create_task(ends.ask(content))
            while not budget.refused:
                await asyncio.sleep(0)
            assert budget.used == holder.size, "who waits holds nothing"
        await ends.let_read()
        await asking
        sent = await received(ends.broker)
        await ends.answer(fetch_response({0: {}}, correlation_id=correlation_id(sent[4:])))
        await received(ends.client)


async def test_bytes_that_a_client_chose_are_not_taken_for_an_authorization() -> None:
    """All requests have one id; the broker answers a SyncGroup by bytes that would authorize."""
    async with relayed() as ends:
        sync_group = bytes.fromhex("000e 0005 00000001") + b"chosen"
        await ends.ask(sync_group)
        await ends.ask(location_fetch({0: (1, 2)}, correlation_id=1))
        sent = (await received(ends.broker))[4:8]
        authorizing = fetch_response({0: {}})[4:]
        await ends.answer(sent + authorizing)
        assert await received(ends.client) == b"\0\0\0\1" + authorizing
        assert ends.locations.answered == []
        # Nor by a broker that has left a request without an answer.
        await received(ends.broker)
        await ends.answer(sent + authorizing)
        with pytest.raises(FrameError, match="not asked next"):
            await ends.running
        assert ends.locations.answered == []


async def test_large_frames_are_streamed_as_fast_as_they_are_taken() -> None:
    """A client that sends more than the connection holds is stopped: by then its writer waits, and is not let go on."""
    async with relayed() as ends:
        size, begin = 24 << 20, OTHER_API + b"\0\0\0\1"
        ends.client.writer.write(size.to_bytes(4, "big") + begin)
        pushed = len(begin)

        async def push() -> None:
            nonlocal pushed
            while pushed < size:
                chunk = min(1 << 20, size - pushed)
                ends.client.writer.write(bytes(chunk))
                await ends.client.writer.drain()
                pushed += chunk

        pushing = asyncio.create_task(push())
        while ends.relay._broker.transport.get_write_buffer_size() <= SETTINGS.unread_bytes:
            await asyncio.sleep(0)  # until what the broker leaves unread stops the relay
        while not ends.relay._client.reader._paused:  # type: ignore[attr-defined]
            await asyncio.sleep(0)  # and the relay the client
        assert pushed < 16 << 20, "the client waits for a broker that takes nothing"
        assert len(await received(ends.broker)) == size
        await pushing


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
async def test_what_is_not_kafka_ends_the_connection(sent: bytes) -> None:
    async with relayed() as ends:
        ends.client.writer.write(sent)
        with pytest.raises(FrameError):
            await ends.running


@pytest.mark.parametrize("answer", [b"\0\0\0\x63", b"\0\0\0\1garbage"])
async def test_a_broker_that_answers_what_was_not_asked_ends_the_connection(answer: bytes) -> None:
    async with relayed() as ends:
        await ends.ask(metadata_request(1))
        await received(ends.broker)
        await ends.answer(answer)
        with pytest.raises(FrameError):
            await ends.running


@pytest.mark.parametrize("who", ["client", "broker"])
@pytest.mark.parametrize("half", [b"", b"\0\0"])
async def test_when_one_end_hangs_up_the_connection_ends(who: str, half: bytes) -> None:
    async with relayed() as ends:
        end: Streams = getattr(ends, who)
        end.writer.write(half)
        await end.writer.drain()
        await end.close()
        with pytest.raises((EOFError, OSError)):
            await ends.running


async def test_a_drained_connection_ends_after_the_responses_under_way() -> None:
    async with relayed() as ends:
        await ends.ask(metadata_request(1))
        await received(ends.broker)
        ends.relay.drain()
        await ends.answer(metadata_response({}, correlation_id=1))
        assert correlation_id(await received(ends.client)) == 1, "it had its response before the end"
        await ends.running


async def test_an_idle_connection_is_drained_at_once() -> None:
    async with relayed() as ends:
        ends.relay.drain()
        await ends.running


def fetched_nothing(correlation_id: int, error_code: int = 0) -> bytes:
    message = FetchResponse(throttle_time_ms=5, error_code=error_code, session_id=0, responses=[])
    return response(message, 13, correlation_id)


async def test_no_more_requests_are_under_way_than_may_be() -> None:
    async with relayed() as ends:
        ends.client.writer.write(b"".join(frame(metadata_request(number)) for number in range(300)))
        for number in range(300):
            content = await received(ends.broker)
            assert ends.relay._state.in_flight <= SETTINGS.in_flight
            await ends.answer(metadata_response({}, correlation_id=number + 1))
            assert request_head(content).correlation_id == number + 1
        for number in range(300):
            assert correlation_id(await received(ends.client)) == number


@pytest.mark.parametrize("responses", [False, True])
async def test_each_request_and_each_response_that_is_there_already_is_a_turn_of_its_own(responses: bool) -> None:
    async with relayed(replace(SETTINGS, in_flight=1_000_000)) as ends:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        flood = 2_000
        ends.client.writer.write(b"".join(frame(metadata_request(number)) for number in range(flood)))
        if responses:
            for _ in range(flood):
                await received(ends.broker)
        counting = asyncio.create_task(count())
        if responses:
            ends.broker.writer.write(
                b"".join(frame(metadata_response({}, correlation_id=number + 1)) for number in range(flood))
            )
        for _ in range(flood):
            await received(ends.client if responses else ends.broker)
        counting.cancel()
        assert turns > flood / 2


async def test_a_client_that_sends_no_more_gets_its_responses() -> None:
    async with relayed() as ends:
        for number in (7, 8):
            await ends.ask(metadata_request(number))
        ends.client.writer.write_eof()
        for number in (1, 2):
            await received(ends.broker)
            await ends.answer(metadata_response({}, correlation_id=number))
        for number in (7, 8):
            assert correlation_id(await received(ends.client)) == number
        with pytest.raises(EOFError):
            await ends.running


LARGE = b"\0\3\0\x09\0\0\0\1" + bytes(WITH_LOGIN.login_bytes)
BEFORE_LOGIN = [(frame(LARGE), "a request of 524,296 bytes"), (frame(location_fetch({0: (1, 2)})), "for locations")]


@pytest.mark.parametrize(("sent", "what"), BEFORE_LOGIN)
@pytest.mark.parametrize("answer", [frame(fetched_nothing(1, error_code=34)), b""], ids=["error", "end"])
async def test_before_a_login_there_is_no_large_request_and_none_for_locations(
    sent: bytes, what: str, answer: bytes
) -> None:
    """In the midst of a login brokers answer with an error, before it they end the connection at once."""
    async with relayed(WITH_LOGIN) as ends:
        ends.client.writer.write(sent)
        probe = read(FetchRequest, await received(ends.broker), 13)
        assert probe.topics == []
        ends.broker.writer.write(answer)
        ends.broker.writer.write_eof()
        with pytest.raises(FrameError, match=f"{what}.* before a login"):
            await ends.running
        assert ends.locations.asked == []


@pytest.mark.parametrize("sent", [sent for sent, _ in BEFORE_LOGIN])
async def test_what_needs_a_login_goes_on_when_the_broker_has_shown_it(sent: bytes) -> None:
    async with relayed(WITH_LOGIN) as ends:
        ends.client.writer.write(sent)
        await received(ends.broker)
        await ends.answer(fetched_nothing(1))
        passed = await received(ends.broker)
        assert passed[:4] == sent[4:8] and passed[4:8] != correlation_id_bytes(1)


async def test_small_requests_of_others_need_no_login() -> None:
    """Brokers know which ones may come before it."""
    async with relayed(WITH_LOGIN) as ends:
        await ends.ask(metadata_request(6))
        assert await received(ends.broker) == metadata_request(1)


async def asks_for_no_locations(head: RequestHead, content: bytes, recent_work: RecentWork) -> LocationRequest | None:
    return None


@pytest.mark.parametrize("lacks", ["its end", "a broker that reads it"])
async def test_a_frame_that_stands_still_loses_its_memory_to_another_one(
    monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    monkeypatch.setattr(frame_memory, "_PATIENCE_SECONDS", 0.1)
    memory = FrameMemory(256 << 20)

    async with relayed(memory=memory) as ends:
        monkeypatch.setattr(ends.locations, "decode", asks_for_no_locations)
        content = frame(location_fetch({0: (1, 2)}).ljust(4 << 20, b"\0"))
        ends.client.writer.write(content[:-1] if lacks == "its end" else content)
        while not memory.used:
            await asyncio.sleep(0)
        async with memory.reserve(asyncio.get_running_loop().create_future(), 120 << 20) as other:
            assert other.size == 120 << 20
        with pytest.raises(MemoryShortError, match=r"gateway\.queued\.max\.bytes"):
            await ends.running

"""A whole connection through the gateway: what a client sends until it hangs up, and what the broker does.

Both streams have arrived when the relay begins. The case is the client's bytes with their size (int32) before them,
then the broker's.
"""

from __future__ import annotations

import asyncio
from functools import cache
from random import Random
from typing import Any

from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from tests.rigs.fuzz import kafka_messages
from tests.rigs.fuzz.mutation import below, fixed, number, one, spoiled
from tests.rigs.fuzz.target import Target
from tests.rigs.fuzz.targets import gateway_frames
from tiered_stream.errors import TieredStreamError
from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.gateway_settings import GatewaySettings
from tiered_stream.gateway.locations.location_workers import RecentWork
from tiered_stream.gateway.protocol.authorization import AuthorizationResponse, PartitionResponse, authorization_request
from tiered_stream.gateway.protocol.broker_addresses import Address
from tiered_stream.gateway.protocol.frames import FrameError, RequestHead, frame
from tiered_stream.gateway.protocol.location_requests import LocationRequest, TopicIdPartition, location_request
from tiered_stream.gateway.sockets.frame_memory import FrameMemory, MemoryShortError
from tiered_stream.gateway.sockets.relay import Relay, RelayServices
from tiered_stream.options.parsing import StorageOptions

_REQUESTS = (gateway_frames.client_request, gateway_frames.client_request, gateway_frames.location_fetch_request)
_OTHERS = (SaslHandshakeResponse, SaslAuthenticateResponse)
_SHUTDOWN_SECONDS = 0.0


class Locations:
    """As the gateway's workers, on the event loop, with a made-up tier."""

    async def decode(self, head: RequestHead, content: bytes, recent_work: RecentWork) -> LocationRequest | None:
        return location_request(head, content)

    async def authorization(
        self, request: LocationRequest, may_read: list[TopicIdPartition], recent_work: RecentWork
    ) -> tuple[LocationRequest, bytes] | None:
        return request, authorization_request(request, dict.fromkeys(may_read, 77))

    async def response(
        self, request: LocationRequest, content: bytes, max_bytes: int, recent_work: RecentWork
    ) -> list[bytes]:
        authorized = AuthorizationResponse(request, content)
        return authorized.encode({each.partition: PartitionResponse(b"\1", 9) for each in authorized.readable()})


class _Writer:
    """Takes everything at once."""

    def __init__(self) -> None:
        self.transport = self

    def write(self, data: bytes) -> None:
        return

    async def drain(self) -> None:
        return

    def get_write_buffer_size(self) -> int:
        return 0


class _Streams:
    def __init__(self, received: bytes) -> None:
        self.reader = asyncio.StreamReader()
        self.reader.feed_data(received)
        self.reader.feed_eof()
        self.writer = _Writer()


def streams(random: Random) -> bytes:
    """A few requests, and the answers to them; something is wrong with a frame, or with its size."""
    requests, answers = [], []
    for each in range(1 + below(random, 4)):
        make = one(random, _REQUESTS)
        requests.append(frame(make(random)))
        if random.random() < 0.3:
            answer = fixed(each + 1, 4) + gateway_frames.authorization_answer(random)[4:]
        elif random.random() < 0.3:
            answer = kafka_messages.response(random, one(random, _OTHERS), 1, each + 1)
        else:
            answer = fixed(each + 1, 4) + gateway_frames.broker_answer(random)[6:]
        answers.append(frame(answer))
    client, broker = b"".join(requests), b"".join(answers)
    way = random.random()
    if way < 0.1:
        client = spoiled(random, client)
    elif way < 0.2:
        broker = spoiled(random, broker)
    elif way < 0.25:
        client = fixed(number(random), 4) + client[4:]
    return fixed(len(client), 4) + client + broker


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


async def _listen() -> None:
    return


def _advertise(node_id: int, _: Address) -> Address:
    return Address("gateway", 19100 + node_id % 100)


_METRICS = GatewayMetrics()


async def _relay(client: bytes, broker: bytes, login_asked: bool) -> None:
    settings = GatewaySettings(
        listener_tls=None, broker_tls=None, login_asked=login_asked, kafka={}, storage=StorageOptions(),
        shutdown_seconds=_SHUTDOWN_SECONDS,
    )  # fmt: skip
    outer: Any = _Streams(client)
    inner: Any = _Streams(broker)
    locations: Any = Locations()
    services = RelayServices(settings, _advertise, _listen, 2, locations, FrameMemory(64 << 20), _METRICS)
    await Relay(outer, inner, services).run()


def relay(data: bytes) -> None:
    size = int.from_bytes(data[:4], "big")
    client, broker = data[4 : 4 + size], data[4 + size :]
    try:
        _loop().run_until_complete(_relay(client, broker, login_asked=len(data) % 2 == 0))
    except EOFError:  # as every connection ends
        return


TARGETS = (
    Target("relayed-streams", streams, relay, (TieredStreamError, FrameError, MemoryShortError, OSError)),
)  # fmt: skip

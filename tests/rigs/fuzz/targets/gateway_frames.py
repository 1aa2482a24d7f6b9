"""What the gateway reads: requests of clients before they have logged in, and the answers of brokers."""

from __future__ import annotations

from random import Random

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.gateway.requests import TOPIC_ID, asked, location_fetch
from tests.rigs.fuzz import kafka_messages
from tests.rigs.fuzz.mutation import below, fixed, number, one, spoiled, uvarint
from tests.rigs.fuzz.target import Target
from tiered_stream.errors import TieredStreamError
from tiered_stream.gateway.protocol.api_versions import check_version, rewrite_response
from tiered_stream.gateway.protocol.authorization import AuthorizationResponse, PartitionResponse, authorization_request
from tiered_stream.gateway.protocol.broker_addresses import Address
from tiered_stream.gateway.protocol.connection_state import ConnectionState, Handling
from tiered_stream.gateway.protocol.frames import FrameError, frame_size, request_head
from tiered_stream.gateway.protocol.location_requests import TopicIdPartition, location_request, possibly_asks

REQUESTS = (
    ApiVersionsRequest, MetadataRequest, FindCoordinatorRequest, ProduceRequest, FetchRequest, SaslHandshakeRequest,
    SaslAuthenticateRequest,
)  # fmt: skip
REWRITTEN = (ApiVersionsResponse, MetadataResponse, FindCoordinatorResponse)
REFUSALS = (TieredStreamError, FrameError)
_OUR_TAGS = (1248, 1254, 1255, 1256, 1257, 1258)


def client_request(random: Random) -> bytes:
    kind = one(random, REQUESTS)
    made = kafka_messages.request(random, kind, one(random, kafka_messages.versions_of(kind)))
    if random.random() < 0.05:
        made = made[:2] + fixed(number(random), 2) + made[4:]
    return made


def take_request(data: bytes) -> None:
    """As the relay does, all of the request being there."""
    frame_size(fixed(len(data), 4), 100 << 20)
    head, state = request_head(data), ConnectionState()
    content = data[: state.bytes_needed(head, len(data))]
    wanted = location_request(head, data) if possibly_asks(head, content) else None
    if wanted is None:
        state.forward(head, content)
    else:
        state.authorize(wanted, data)
        state.probe_topics(wanted)


def location_fetch_request(random: Random) -> bytes:
    version = one(random, (13, 14, 15, 15))
    if random.random() < 0.5:
        wanted = {each: (below(random, 50), 10 + below(random, 900)) for each in range(1 + below(random, 3))}
        made = location_fetch(wanted, version, max_remote_log_segments=one(random, (0, 1, 100, (1 << 31) - 1)))
        return spoiled(random, made) if random.random() < 0.8 else made
    made = kafka_messages.request(random, FetchRequest, version)
    tags = b"".join(
        uvarint(tag) + uvarint(len(value)) + value
        for tag in _OUR_TAGS
        for value in [
            one(random, (b"\1", b"\0", fixed(100, 4), fixed(1 << 40, 8), b"", b"\2\x0eApacheKafkaV1", b"\xff" * 9))
        ]
    )
    return made[:-1] + uvarint(len(_OUR_TAGS)) + tags if made[-1:] == b"\0" else made


def take_location_fetch(data: bytes) -> None:
    wanted = location_request(request_head(data), data)
    if wanted is not None:
        authorization_request(wanted, dict.fromkeys(wanted.ranges, 1000))


def broker_answer(random: Random) -> bytes:
    """Which of the rewritten ones it is, its version, and its content."""
    at = below(random, len(REWRITTEN))
    kind = REWRITTEN[at]
    version = one(random, kafka_messages.versions_of(kind))
    if kind is ApiVersionsResponse:  # which says versions of APIs that mean something
        known = {"api_key": one(random, (0, 1, 3, 17, 18, 60)), "min_version": 0, "max_version": 99}
        return bytes((at, version)) + kafka_messages.response(random, kind, version, **known)
    if random.random() < 0.02:
        version = below(random, 128)
        return bytes((at, version)) + kafka_messages.response(random, kind, min(version, kind.max_version))
    return bytes((at, version)) + kafka_messages.response(random, kind, version)


def rewrite(data: bytes) -> None:
    kind = REWRITTEN[data[0] % len(REWRITTEN)] if data else ApiVersionsResponse
    version = data[1] if len(data) > 1 else 0
    check_version(kind.API_KEY, version)
    rewrite_response(kind.API_KEY, version, data[2:], lambda node, _: Address("gateway", 19100 + node % 100), 2)


def broker_head(random: Random) -> bytes:
    return fixed(one(random, (1, 1, 2, number(random))), 4)


def take_head(data: bytes) -> None:
    """A response to the one request that is in flight."""
    state = ConnectionState()
    request = fixed(3, 2) + fixed(12, 2) + fixed(7, 4) + fixed(-1, 2) + b"\0"
    state.forward(request_head(request), request)
    if len(data) >= 4:
        assert state.match_response(data[:4]).handling in Handling


ASKED = asked(location_fetch({0: (0, 900), 1: (5, 90)}))


def authorization_answer(random: Random) -> bytes:
    return kafka_messages.response(random, FetchResponse, 15)


def take_authorization(data: bytes) -> None:
    """The answer to a location request, and to a look whether the client has logged in."""
    ConnectionState(logged_in=False).record_login(data)
    ConnectionState().record_topics(data)
    answer = AuthorizationResponse(ASKED, data)
    readable = answer.readable()
    found = {each.partition: PartitionResponse(b"\1", each.end) for each in readable}
    answer.encode({**found, TopicIdPartition(TOPIC_ID, 9): PartitionResponse(None, 3)})


TARGETS = (
    Target("client-requests", client_request, take_request, REFUSALS),
    Target("location-requests", location_fetch_request, take_location_fetch, REFUSALS),
    Target("rewritten-answers", broker_answer, rewrite, REFUSALS),
    Target("response-heads", broker_head, take_head, REFUSALS),
    Target("authorization-answers", authorization_answer, take_authorization, REFUSALS),
)

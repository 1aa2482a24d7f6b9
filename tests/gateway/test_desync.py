"""Who may not READ gets no location, also where answers might be taken for those of other requests.

The attack: a request that a go-between might take for one without an answer; a SyncGroup, whose answer has bytes of the
client's own choice, here those of a Fetch answer without an error; then a Fetch that asks for locations. All have one
correlation id. Who loses count takes the SyncGroup's answer for the broker's leave to read.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

import pytest
from kafka.admin import ACLOperation, ResourceType
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.group import (
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetFetchRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    CoordinatorType,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.broker.secure import PLAIN, grant, login_module
from tests.gateway.requests import fetch_response, location_fetch, produce_request, read, read_located, receive, request
from tests.gateway.running import RunningGateway
from tests.reading import tier_segments
from tests.rigs.stack.processes import LONG, wait_until
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream.gateway.protocol.frames import frame

pytestmark = [pytest.mark.stack, pytest.mark.slow]

TOPIC, GROUP = "secret", "of-mallory"
ID, LAST_ID = 7, 8
SYNC_GROUP_VERSION = 3
BEFORE_TOPICS = 15
"""Bytes of a Fetch answer of version 15: correlation id, tags, throttle time, error code, session id."""
REFUSED = 29
"""TOPIC_AUTHORIZATION_FAILED"""


class Connection:
    """A user's own connection: frames as bytes."""

    def __init__(self, address: str, user: str) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=LONG)
        self.closed = False
        self.ask(request(SaslHandshakeRequest(mechanism="PLAIN"), 1))
        self.ask(request(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-secret".encode()), 1))

    def ask(self, content: bytes) -> bytes:
        self._send(content)
        return receive(self._socket)

    def ask_all(self, *contents: bytes) -> list[bytes]:
        """Send all at once; the answers, up to where the connection is closed."""
        found: list[bytes] = []
        last = request(ApiVersionsRequest(), 0, LAST_ID)
        try:
            self._send(*contents, last)
            while (answer := receive(self._socket))[:4] != last[4:8]:
                found.append(answer)
        except (EOFError, ConnectionError):
            self.closed = True
        return found

    def _send(self, *contents: bytes) -> None:
        self._socket.sendall(b"".join(map(frame, contents)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@dataclass(frozen=True)
class Attack:
    """A gateway before a broker that lets Mallory describe a topic, and have a group of her own."""

    gateway: RunningGateway
    topic_id: UUID
    sync_group: bytes

    def connection(self, user: str = "mallory") -> Connection:
        return Connection(f"127.0.0.1:{self.gateway.broker_port}", user)

    @property
    def location_fetch(self) -> bytes:
        return location_fetch({0: (0, 91)}, correlation_id=ID, topic_id=self.topic_id, leader_epoch=0)

    def after(self, first: bytes) -> list[bytes] | None:
        """What Mallory gets who has sent `first` before; None: nothing more, the connection is closed."""
        with self.connection() as connection:
            answers = connection.ask_all(first, self.sync_group, self.location_fetch)
            assert not any(b"http" in each for each in answers)
            return None if connection.closed else answers


@pytest.fixture(scope="module", params=["kafka-3.9", "kafka"])
def attack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    users = " ".join(f'user_{user}="{user}-secret"' for user in ("mallory", "gateway"))
    properties = {
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f"{PLAIN} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:gateway",
    }
    folder = tmp_path_factory.mktemp("desync")
    with TieredStack(
        folder / "stack", listeners={"SASL": "SASL_PLAINTEXT"}, properties=properties, jars=request.param
    ) as stack:
        tier_segments(stack, TOPIC, [40, 50])
        _admit(stack)
        own = {
            "kafka.bootstrap.servers": stack.broker.address("SASL"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": login_module("PLAIN", "gateway", "gateway-secret"),
        }
        with RunningGateway(folder / "gateway", {**stack.options(), **own}) as gateway:
            yield _prepared(gateway)


def _admit(stack: TieredStack) -> None:
    topic = grant("mallory", TOPIC, ACLOperation.DESCRIBE)
    group = grant("mallory", GROUP, ACLOperation.READ, kind=ResourceType.GROUP)
    with stack.broker.admin() as admin:
        admin.create_acls([*topic, *group])


def _prepared(gateway: RunningGateway) -> Attack:
    """The topic's id, and a SyncGroup whose answer has the bytes of a Fetch answer without an error."""
    with Connection(f"127.0.0.1:{gateway.broker_port}", "mallory") as mallory:
        named = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        (topic,) = read(MetadataResponse, mallory.ask(request(named, 12)), 12).topics
        member = _joined(mallory)
        authorizing = fetch_response({0: {}}, topic_id=topic.topic_id)[BEFORE_TOPICS:]
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=member.member_id, assignment=b"\0" + authorizing
        )
        sync = SyncGroupRequest(
            group_id=GROUP, generation_id=member.generation_id, member_id=member.member_id, assignments=[assignment]
        )
        sync_group = request(sync, SYNC_GROUP_VERSION, ID)
        answer = mallory.ask(sync_group)
    assert read(SyncGroupResponse, answer, SYNC_GROUP_VERSION).assignment == assignment.assignment
    assert answer[BEFORE_TOPICS:] == authorizing
    return Attack(gateway, topic.topic_id, sync_group)


def _joined(mallory: Connection) -> Any:
    """The answer to JoinGroup, once there is a coordinator."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="any", metadata=b"")
    join = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=300_000, rebalance_timeout_ms=300_000, protocol_type="any",
        protocols=[protocol],
    )  # fmt: skip
    found: list[Any] = []

    def joined() -> bool:
        mallory.ask(request(FindCoordinatorRequest(key=GROUP, key_type=CoordinatorType.GROUP.value), 3))
        found.append(read(JoinGroupResponse, mallory.ask(request(join, 3)), 3))
        return int(found[-1].error_code) == 0

    wait_until(joined, "the group to have its member")
    return found[-1]


def test_who_may_read_gets_locations(attack: Attack) -> None:
    with attack.connection("gateway") as connection:
        assert b"http" in connection.ask(attack.location_fetch)
    with attack.connection() as connection:
        assert read_located(connection.ask(attack.location_fetch)).error_code == REFUSED


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_produce_of_old_closes_the_connection(attack: Attack, version: int, acks: int) -> None:
    # A timeout of 1 ms lies where later versions have acks, and would be read as 0.
    assert attack.after(produce_request(acks, version, correlation_id=ID)) is None


def test_no_api_in_any_version_brings_a_location(attack: Attack) -> None:
    before = attack.gateway.metric("signed_locations_total")
    answered = 0
    for kind in _requests():
        for version in range(kind.min_version, kind.max_version + 1):
            if answers := attack.after(request(_message(kind), version, ID)):
                assert read_located(answers[-1]).error_code == REFUSED, f"{kind.__name__} v{version}"
                answered += 1
    assert answered > 50
    assert attack.gateway.metric("signed_locations_total") == before


def _message(kind: type[ApiMessage]) -> ApiMessage:
    if kind is OffsetFetchRequest:  # brokers never answer one that names no group, nor anything after it
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP)
        return OffsetFetchRequest(group_id=GROUP, groups=[group])
    return kind()


def _requests() -> list[type[ApiMessage]]:
    """Each of kafka-python's requests."""
    found = {kind.API_KEY: kind for kind in ApiMessage.__subclasses__() if kind.__name__.endswith("Request")}
    return [found[api_key] for api_key in sorted(found)]

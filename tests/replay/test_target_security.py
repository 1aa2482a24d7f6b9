"""A target whose brokers ask who it is: logins by librdkafka, and what the user may."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.broker.certificates import CertificateAuthority
from tests.broker.secure import login_module, secure_broker
from tests.delta.made_batches import plain
from tests.stack.broker import KafkaBroker
from tests.stack.consume import read_topic
from tests.stack.topics import create_tiered_topic
from tiered_stream.errors import BrokerAuthorizationError, TieredStreamError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.replay.produce import target_producer
from tiered_stream.replay.replay_plan import ReplayArguments, ReplayPlan
from tiered_stream.replay.target_positions import Position, PositionGroup, commit_positions
from tiered_stream.replay.topic_checks import check_topics
from tiered_stream.replay.topic_settings import TopicWrites, as_options, topic_writes

pytestmark = pytest.mark.stack

SOURCE = TopicPartition("orders", 0)
TOPIC = "guarded"


@dataclass(frozen=True)
class SecureBroker:
    broker: KafkaBroker
    authority: CertificateAuthority
    folder: Path

    def writes(self, plan: ReplayPlan, listener: str, protocol: str, **given: str) -> TopicWrites:
        properties = {
            "bootstrap.servers": self.broker.address(listener),
            "security.protocol": protocol,
            "ssl.truststore.location": str(self.folder / "trust.pem"),
            **{name.replace("_", "."): value for name, value in given.items()},
        }
        settings = {f"target.kafka.{name}": value for name, value in properties.items()}
        return topic_writes(as_options({**settings, "target.transactional": "true"}, TOPIC, plan))

    def login(self, plan: ReplayPlan, user: str, protocol: str = "SASL_SSL", mechanism: str = "PLAIN") -> TopicWrites:
        jaas = login_module(mechanism, user, f"{user}-secret")
        listener = protocol.replace("_", "")
        return self.writes(plan, listener, protocol, sasl_mechanism=mechanism, sasl_jaas_config=jaas)


def a_plan() -> ReplayPlan:
    arguments = ReplayArguments(("subscribe", "orders"), "-3h", None, f"topic {TOPIC}")
    return ReplayPlan(uuid4().hex, arguments, TimeRange(0), {SOURCE: OffsetRange(0, 10)}, {})


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """Alice may write as a replay does, bob only to the topic, dave not in transactions; carol may only describe it."""
    folder = tmp_path_factory.mktemp("secure")
    authority = CertificateAuthority()
    users = ("alice", "bob", "carol", "dave")
    broker = secure_broker(folder, authority, {"SASLSSL": "SASL_SSL"}, users, "writer")
    broker.start()
    try:
        create_tiered_topic(broker, TOPIC)
        with broker.admin() as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_256, "alice-secret")]
            )
            admin.create_acls([
                *(grant(user, ResourceType.TOPIC, TOPIC, ACLOperation.WRITE) for user in ("alice", "bob", "dave")),
                # The position is kept under the target topic: to commit it needs READ there, too.
                grant("alice", ResourceType.TOPIC, TOPIC, ACLOperation.READ),
                grant("carol", ResourceType.TOPIC, TOPIC, ACLOperation.DESCRIBE),
                *(grant(user, ResourceType.GROUP, "replay-", ACLOperation.READ) for user in ("alice", "dave")),
                grant("alice", ResourceType.TRANSACTIONAL_ID, "replay-", ACLOperation.WRITE),
            ])  # fmt: skip
        yield SecureBroker(broker, authority, folder)
    finally:
        broker.stop()


def grant(user: str, kind: ResourceType, name: str, operation: ACLOperation) -> ACL:
    pattern = ACLResourcePatternType.LITERAL if kind is ResourceType.TOPIC else ACLResourcePatternType.PREFIXED
    resource = ResourcePattern(kind, name, pattern)
    return ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, resource)


def produce(writes: TopicWrites, plan: ReplayPlan) -> None:
    """As a replay does: its checks, its positions, one transaction."""
    check_topics(writes, plan)
    commit_positions(writes, {SOURCE: Position(0, 0)})
    group = PositionGroup(writes, SOURCE, stable=True)
    try:
        producer = target_producer(writes, SOURCE, group)
        producer.open()
        assert group.read() == Position(0, 0)
        producer.begin()
        producer.produce(plain(10))
        producer.commit(Position(10, 0))
        assert group.read() == Position(10, 0)
    finally:
        group.close()


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-256", "certificate"])
def test_who_may_can(secure: SecureBroker, way: str) -> None:
    plan, before = a_plan(), len(read_topic(secure.broker, TOPIC))
    if way == "certificate":
        identity = secure.authority.issue("writer", password="sesame").write(secure.folder / "writer.pem")
        writes = secure.writes(plan, "TLS", "SSL", ssl_keystore_location=str(identity), ssl_key_password="sesame")
    else:
        writes = secure.login(plan, "alice", mechanism=way)
    produce(writes, plan)
    assert len(read_topic(secure.broker, TOPIC)) == before + 10


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("bob", r"consumer group replay-.*: the user is not authorized: grant READ on"),
        (
            "dave",
            r"beginning transactions as replay-.*: the user is not authorized: grant WRITE on the replay's",
        ),
        ("carol", r"the target guarded: the user is not authorized: grant WRITE on the topic"),
    ],
)
def test_who_may_not_is_told_what_is_missing(secure: SecureBroker, user: str, said: str) -> None:
    plan, before = a_plan(), len(read_topic(secure.broker, TOPIC))
    with pytest.raises(BrokerAuthorizationError, match=said):
        produce(secure.login(plan, user), plan)
    assert len(read_topic(secure.broker, TOPIC)) == before


def test_a_wrong_password_is_not_taken_for_a_broker_that_is_away(secure: SecureBroker) -> None:
    plan = a_plan()
    with pytest.raises(TieredStreamError) as raised:
        check_topics(secure.login(plan, "mallory"), plan)
    assert "sasl" in str(raised.value).lower()
    assert "mallory-secret" not in str(raised.value)


def test_no_secret_is_shown(secure: SecureBroker) -> None:
    assert "alice-secret" not in repr(secure.login(a_plan(), "alice"))

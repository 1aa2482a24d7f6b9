"""A target whose brokers ask who it is: logins by librdkafka, and what the user may."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from kafka.admin import (
    ACLOperation,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.broker.certificates import CertificateAuthority
from tests.broker.secure import grant, login_module
from tests.delta.made_batches import plain
from tests.rigs.stack.broker import KafkaBroker
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.topics import create_tiered_topic
from tests.services import Cluster
from tiered_stream.errors import BrokerAuthorizationError, TieredStreamError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.positions import TimeRange
from tiered_stream.replays.produce import target_producer
from tiered_stream.replays.replay_plan import ReplayArguments, ReplayPlan
from tiered_stream.replays.target_positions import Position, PositionGroup, commit_positions
from tiered_stream.replays.topic_checks import check_topics
from tiered_stream.replays.topic_settings import TopicWrites, as_options, topic_writes

pytestmark = pytest.mark.stack

SOURCE = TopicPartition("orders", 0)
TOPIC = "guarded-target"


@dataclass(frozen=True)
class Secure:
    broker: KafkaBroker
    authority: CertificateAuthority
    trust_store: Path

    def writes(self, plan: ReplayPlan, listener: str, protocol: str, **given: str) -> TopicWrites:
        properties = {
            "bootstrap.servers": self.broker.address(listener),
            "security.protocol": protocol,
            "ssl.truststore.location": str(self.trust_store),
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
def secure(cluster: Cluster) -> Secure:
    """Frank may write as a replay does, grace to the topic only, ivan not in transactions; heidi may describe it."""
    broker = cluster.stack.broker
    create_tiered_topic(broker, TOPIC)
    write, read, describe = ACLOperation.WRITE, ACLOperation.READ, ACLOperation.DESCRIBE
    with broker.admin() as admin:
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("frank", ScramMechanism.SCRAM_SHA_256, "frank-secret")]
        )
        admin.create_acls([
            # The position is kept under the target topic: to commit it needs READ there, too.
            *grant("frank", TOPIC, write, read), *grant("grace", TOPIC, write), *grant("ivan", TOPIC, write),
            *grant("heidi", TOPIC, describe),
            *grant("frank", "replay-", read, kind=ResourceType.GROUP, is_prefix=True),
            *grant("ivan", "replay-", read, kind=ResourceType.GROUP, is_prefix=True),
            *grant("frank", "replay-", write, kind=ResourceType.TRANSACTIONAL_ID, is_prefix=True),
        ])  # fmt: skip
    return Secure(broker, cluster.authority, cluster.trust_store)


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
def test_who_may_can(secure: Secure, tmp_path: Path, way: str) -> None:
    plan, before = a_plan(), len(read_topic(secure.broker, TOPIC))
    if way == "certificate":
        identity = secure.authority.issue("writer", password="sesame").write(tmp_path / "writer.pem")
        writes = secure.writes(plan, "MTLS", "SSL", ssl_keystore_location=str(identity), ssl_key_password="sesame")
    else:
        writes = secure.login(plan, "frank", mechanism=way)
    produce(writes, plan)
    assert len(read_topic(secure.broker, TOPIC)) == before + 10


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("grace", r"consumer group replay-.*: the user is not authorized: grant READ on"),
        (
            "ivan",
            r"beginning transactions as replay-.*: the user is not authorized: grant WRITE on the replay's",
        ),
        ("heidi", r"the target guarded-target: the user is not authorized: grant WRITE on the topic"),
    ],
)
def test_who_may_not_is_told_what_is_missing(secure: Secure, user: str, said: str) -> None:
    plan, before = a_plan(), len(read_topic(secure.broker, TOPIC))
    with pytest.raises(BrokerAuthorizationError, match=said):
        produce(secure.login(plan, user), plan)
    assert len(read_topic(secure.broker, TOPIC)) == before


def test_a_wrong_password_is_not_taken_for_a_broker_that_is_away(secure: Secure) -> None:
    plan = a_plan()
    with pytest.raises(TieredStreamError) as raised:
        check_topics(secure.login(plan, "mallory"), plan)
    assert "sasl" in str(raised.value).lower()
    assert "mallory-secret" not in str(raised.value)


def test_no_secret_is_shown(secure: Secure) -> None:
    assert "frank-secret" not in repr(secure.login(a_plan(), "frank"))

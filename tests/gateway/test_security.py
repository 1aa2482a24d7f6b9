"""SASL, TLS and ACLs: the broker decides, on the client's own login, and the gateway gives nothing before that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.broker.certificates import CertificateAuthority
from tests.gateway.running import RunningGateway
from tests.reading import tier_segments
from tests.stack.tiered_stack import TieredStack
from tiered_stream.broker.client import BrokerClient
from tiered_stream.broker.record_fetch import fetch_records
from tiered_stream.errors import BrokerAuthorizationError
from tiered_stream.locate.broker_locator import BrokerLocator
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel

pytestmark = [pytest.mark.stack, pytest.mark.slow]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
MAY_READ, MAY_NOT = TopicPartition("readable", 0), TopicPartition("secret", 0)
COMMITTED = IsolationLevel.READ_COMMITTED


@dataclass(frozen=True)
class SecureGateway:
    """SCRAM over TLS towards clients, SCRAM in plain text towards the broker."""

    gateway: RunningGateway
    properties: dict[str, str]

    def client(self, user: str, password: str | None = None) -> BrokerClient:
        return BrokerClient({**self.properties, "sasl.jaas.config": jaas(user, password or f"{user}-secret")})


def jaas(user: str, password: str) -> str:
    return f'{SCRAM} required username="{user}" password="{password}";'


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureGateway]:
    """Alice may read one topic and describe the other, bob nothing; the gateway's own user may all it needs."""
    properties = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:gateway",
    }
    folder = tmp_path_factory.mktemp("secure-gateway")
    with TieredStack(listeners={"SASL": "SASL_PLAINTEXT"}, properties=properties) as stack:
        for partition in (MAY_READ, MAY_NOT):
            tier_segments(stack, partition.topic, [40, 50])
        _admit(stack)
        authority = CertificateAuthority()
        own = {
            "kafka.bootstrap.servers": stack.broker.address("SASL"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": jaas("gateway", "gateway-secret"),
            "gateway.listener.security.protocol": "SSL",
            "gateway.listener.ssl.keystore.location": str(authority.issue("gateway").write(folder / "gateway.pem")),
        }
        with RunningGateway(folder / "gateway", {**stack.options(), **own}) as gateway:
            clients = {
                "bootstrap.servers": gateway.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "ssl.truststore.location": str(_trust(authority, folder)),
                "sasl.mechanism": "SCRAM-SHA-256",
                "default.api.timeout.ms": "20000",
            }
            yield SecureGateway(gateway, clients)


def _trust(authority: CertificateAuthority, folder: Path) -> Path:
    return authority.write(folder / "trust.pem")


def _admit(stack: TieredStack) -> None:
    allowed = [(MAY_READ, ACLOperation.READ), (MAY_NOT, ACLOperation.DESCRIBE)]
    with stack.broker.admin() as admin:
        admin.create_acls(
            [
                ACL(
                    "User:alice",
                    "*",
                    operation,
                    ACLPermissionType.ALLOW,
                    ResourcePattern(ResourceType.TOPIC, where.topic),
                )
                for where, operation in allowed
            ]
        )
        admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, f"{user}-secret")
                for user in ("alice", "bob", "gateway")
            ]
        )


def located(client: BrokerClient, partition: TopicPartition) -> int:
    """How many signed locations the client gets."""
    locator = BrokerLocator(client, COMMITTED, part_bytes=1 << 30)
    (locations,) = locator.locate({partition: OffsetRange(0, 91)}).values()
    return sum(each.signed_url is not None for each in locations)


def test_with_read_there_are_locations(secure: SecureGateway) -> None:
    with secure.client("alice") as client:
        assert located(client, MAY_READ) == 2


def test_without_read_there_is_the_broker_s_own_error_and_no_location(secure: SecureGateway) -> None:
    before = secure.gateway.metric("signed_locations_total")
    with secure.client("alice") as client:
        with pytest.raises(BrokerAuthorizationError, match="secret-0, offset 0: the user may not: grant READ"):
            located(client, MAY_NOT)
        with pytest.raises(BrokerAuthorizationError, match="grant READ"):
            fetch_records(client, MAY_NOT, 0, isolation=COMMITTED, max_bytes=1, max_wait_ms=0)
    assert secure.gateway.metric("signed_locations_total") == before
    assert secure.gateway.metric('located_partitions_total{result="refused"}') >= 1


def test_who_may_read_one_topic_gets_nothing_of_another_in_the_same_request(secure: SecureGateway) -> None:
    with secure.client("alice") as client, pytest.raises(BrokerAuthorizationError, match="secret-0"):
        BrokerLocator(client, COMMITTED, part_bytes=1 << 30).locate(
            {MAY_READ: OffsetRange(0, 91), MAY_NOT: OffsetRange(0, 91)}
        )


def test_who_may_not_even_describe_a_topic_is_told_so(secure: SecureGateway) -> None:
    with secure.client("bob") as client, pytest.raises(BrokerAuthorizationError, match="DESCRIBE"):
        located(client, MAY_READ)


def test_a_wrong_password_is_refused_by_the_broker(secure: SecureGateway) -> None:
    with (
        secure.client("alice", "wrong-Secret-0815") as client,
        pytest.raises(BrokerAuthorizationError, match="refused the login"),
    ):
        located(client, MAY_READ)


def test_no_secret_is_in_the_gateway_s_log(secure: SecureGateway) -> None:
    text = secure.gateway.log_file.read_text()
    assert "alice-secret" not in text and "gateway-secret" not in text and "Signature" not in text

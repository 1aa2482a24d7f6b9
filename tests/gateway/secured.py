"""A stack whose brokers ask clients to log in, and gateways before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka.admin import ACLOperation, ScramMechanism, UserScramCredentialUpsertion

from tests.broker.certificates import CertificateAuthority
from tests.broker.secure import SCRAM, grant, login_module
from tests.gateway.running import RunningGateway
from tests.reading import tier_segments
from tests.rigs.stack.tiered_stack import TieredStack
from tiered_stream.broker.client import BrokerClient
from tiered_stream.model import TopicPartition

MAY_READ, MAY_NOT = TopicPartition("readable", 0), TopicPartition("secret", 0)
SEGMENTS = 2
"""Of each of the two."""


@dataclass(frozen=True)
class SecureGateway:
    """SCRAM over TLS towards clients, SCRAM in plain text towards the broker."""

    stack: TieredStack
    gateway: RunningGateway
    properties: dict[str, str]

    def client(self, user: str, password: str | None = None) -> BrokerClient:
        return BrokerClient(self.login(user, password))

    def login(self, user: str, password: str | None = None) -> dict[str, str]:
        jaas = login_module("SCRAM-SHA-256", user, password or f"{user}-secret")
        return {**self.properties, "sasl.jaas.config": jaas}


@contextmanager
def secured(folder: Path) -> Iterator[SecureGateway]:
    """Alice may read one topic and describe the other, bob nothing; the gateway's own user may all it needs."""
    properties = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:gateway",
    }
    with TieredStack(listeners={"SASL": "SASL_PLAINTEXT"}, properties=properties) as stack:
        for partition in (MAY_READ, MAY_NOT):
            tier_segments(stack, partition.topic, [40, 50])
        _admit(stack)
        authority = CertificateAuthority()
        own = {
            "kafka.bootstrap.servers": stack.broker.address("SASL"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": login_module("SCRAM-SHA-256", "gateway", "gateway-secret"),
            "gateway.listener.security.protocol": "SSL",
            "gateway.listener.ssl.keystore.location": str(authority.issue("gateway").write(folder / "gateway.pem")),
        }
        with RunningGateway(folder / "gateway", {**stack.options(), **own}) as gateway:
            clients = {
                "bootstrap.servers": gateway.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "ssl.truststore.location": str(authority.write(folder / "trust.pem")),
                "sasl.mechanism": "SCRAM-SHA-256",
                "default.api.timeout.ms": "20000",
            }
            yield SecureGateway(stack, gateway, clients)


def _admit(stack: TieredStack) -> None:
    read, describe = ACLOperation.READ, ACLOperation.DESCRIBE
    with stack.broker.admin() as admin:
        admin.create_acls([*grant("alice", MAY_READ.topic, read), *grant("alice", MAY_NOT.topic, describe)])
        admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, f"{user}-secret")
                for user in ("alice", "bob", "gateway")
            ]
        )

"""Attackers in a process of their own, an honest client beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.certificates import CertificateAuthority
from tests.gateway.attackers import ATTACKS
from tests.gateway.attacks import Memory, attackers
from tests.gateway.honest import HonestClient
from tests.gateway.made_up_cluster import OFFSETS, TOPIC
from tests.gateway.planning import made_up_gateway
from tests.gateway.running import RunningGateway
from tests.rigs.stack.processes import wait_until
from tiered_stream.model import TopicPartition

pytestmark = [pytest.mark.stack, pytest.mark.slow]

SEGMENTS = 20
MOST_MIB = 512
WITH_TLS = "TLS without a ClientHello"


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture(scope="module")
def open_gateway() -> Iterator[RunningGateway]:
    """Nobody has to log in."""
    with made_up_gateway(1, SEGMENTS) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def tls_gateway(authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    keystore = authority.issue("gateway").write(tmp_path_factory.mktemp("keys") / "gateway.pem")
    tls = {
        "gateway.listener.security.protocol": "SSL",
        "gateway.listener.ssl.keystore.location": str(keystore),
        "gateway.socket.connection.setup.timeout.ms": "600000",  # the attackers stay
    }
    with made_up_gateway(1, SEGMENTS, tls) as gateway:
        yield gateway


@pytest.mark.parametrize("kind", sorted(ATTACKS.keys() - {WITH_TLS}))
def test_an_honest_client_is_answered_and_memory_stays_small(
    open_gateway: RunningGateway, kind: str, tmp_path: Path
) -> None:
    under_attack(open_gateway, {"bootstrap.servers": open_gateway.bootstrap_servers}, kind, tmp_path)


def test_handshakes_that_do_not_end_take_little_memory(
    tls_gateway: RunningGateway, authority: CertificateAuthority, tmp_path: Path
) -> None:
    properties = {
        "bootstrap.servers": tls_gateway.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.truststore.location": str(authority.write(tmp_path / "trust.pem")),
    }
    under_attack(tls_gateway, properties, WITH_TLS, tmp_path)


def under_attack(gateway: RunningGateway, properties: dict[str, str], kind: str, folder: Path) -> None:
    honest = HonestClient(properties, TopicPartition(TOPIC, 0), SEGMENTS * OFFSETS, SEGMENTS)
    memory = Memory(gateway)
    with attackers(gateway, kind, folder) as attacking:
        honest.ask(connections=2)
        assert attacking.running
        assert memory.peak() < MOST_MIB
    wait_until(lambda: gateway.metric("connections") == 0, "the attackers' connections to end")

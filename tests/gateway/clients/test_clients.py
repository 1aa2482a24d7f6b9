"""Clients that are not ours consume through the gateway, and leaders move meanwhile."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import NewTopic

from tests.broker.certificates import CertificateAuthority
from tests.gateway.clients.programs import CLIENTS, Consuming, Producing
from tests.gateway.running import RunningGateway
from tests.rigs.stack.broker import JVM_OPTIONS
from tests.rigs.stack.consume import read_topic
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import TIERED, move_leaders

pytestmark = [pytest.mark.stack, pytest.mark.slow]

MOVES = 2
RECORDS = 1_000
"""Between one move and the next."""
PARTITIONS = 4
SAY_WHO_FAILS = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.network.Selector=info"
PASSED_BY = "SSL handshake failed"


@dataclass(frozen=True)
class Cluster:
    """Two brokers, and a gateway that alone reaches them by TLS: who goes to a broker itself fails, and is logged."""

    stack: TieredStack
    gateway: RunningGateway

    def handshakes_failed(self) -> int:
        return sum((broker.folder / "broker.log").read_text().count(PASSED_BY) for broker in self.stack.brokers)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("clients")
    authority = CertificateAuthority()
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").write(folder / "broker.pem")),
    }
    with TieredStack(
        folder / "stack", brokers=2, listeners={"TLS": "SSL"}, properties=properties,
        jvm_options=(*JVM_OPTIONS, SAY_WHO_FAILS),
    ) as stack:  # fmt: skip
        own = {
            "kafka.bootstrap.servers": ",".join(broker.address("TLS") for broker in stack.brokers),
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": str(authority.write(folder / "trust.pem")),
        }
        with RunningGateway(folder / "gateway", {**stack.options(), **own}) as gateway:
            yield Cluster(stack, gateway)


def lines(move: int) -> list[bytes]:
    return [
        b"%d\t%d %s\n" % (number, number, hashlib.sha256(b"%d" % number).hexdigest().encode())
        for number in range(move * RECORDS, (move + 1) * RECORDS)
    ]


def checksum(rows: Collection[tuple[int, int, bytes | None, bytes | None]]) -> str:
    return hashlib.sha256(repr(sorted(rows, key=lambda row: row[:2])).encode()).hexdigest()


def test_a_client_that_goes_to_a_broker_itself_is_noticed(cluster: Cluster) -> None:
    before = cluster.handshakes_failed()
    host, _, port = cluster.stack.broker.address("TLS").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        wait_until(lambda: cluster.handshakes_failed() > before, "the broker to say so", pause=0.05)


@pytest.mark.parametrize("name", CLIENTS)
def test_records_are_the_same_as_from_the_brokers_though_leaders_move(
    cluster: Cluster, name: str, topic: str, tmp_path: Path
) -> None:
    client = CLIENTS[name]
    if missing := client.missing():
        pytest.skip(missing)
    brokers, servers = cluster.stack.brokers, cluster.gateway.bootstrap_servers
    _led_by_one(cluster, topic)
    passed_by = cluster.handshakes_failed()
    with (
        Consuming(client.consume(servers, topic, topic), tmp_path / "consumed") as consumer,
        Producing(client.produce(cluster.stack.bootstrap_servers, topic), tmp_path / "produced") as producer,
    ):
        for move in range(MOVES + 1):
            producer.send(lines(move))
            consumer.wait_for((move + 1) * RECORDS)
            if move < MOVES:
                move_leaders(brokers, topic)
        producer.finish()
        direct = [(row.partition, row.offset, row.key, row.value) for row in read_topic(brokers[0], topic)]
        consumer.wait_for(len(direct))
        got = consumer.rows()
    assert checksum(got) == checksum(direct)
    assert {b"%s\t%s\n" % row[2:] for row in direct} == {line for move in range(MOVES + 1) for line in lines(move)}
    assert cluster.handshakes_failed() == passed_by


def _led_by_one(cluster: Cluster, topic: str) -> None:
    """A client then is not connected to the broker that leads next, and goes where an answer says that it is."""
    nodes = [broker.node_id for broker in cluster.stack.brokers]
    replicas = dict.fromkeys(range(PARTITIONS), nodes)
    with cluster.stack.broker.admin() as admin:
        admin.create_topics([NewTopic(topic, replica_assignments=replicas, topic_configs=TIERED)])
        admin.wait_for_topics([topic])

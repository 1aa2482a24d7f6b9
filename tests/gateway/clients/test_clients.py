"""Clients that are not ours produce and consume through the gateway, and leaders move meanwhile."""

from __future__ import annotations

import hashlib
import socket
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from tests.broker.certificates import CertificateAuthority
from tests.gateway.clients.programs import CLIENTS, Consuming, Producing
from tests.gateway.running import RunningGateway
from tests.stack.broker import JVM_OPTIONS
from tests.stack.consume import read_topic
from tests.stack.processes import wait_until
from tests.stack.tiered_stack import TieredStack
from tests.stack.topics import TIERED, move_leaders
from tiered_stream.broker.flexible_versions import NO_TAGS, compact_array, compact_string
from tiered_stream.gateway.frames import frame

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
    _share_from_the_start(cluster, topic)
    passed_by = cluster.handshakes_failed()
    with (
        Consuming(client.consume(servers, topic, topic), tmp_path / "consumed") as consumer,
        Producing(client.produce(servers, topic), tmp_path / "produced") as producer,
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
    if client.repeats:
        got = list(set(got))
    assert checksum(got) == checksum(direct)
    assert {b"%s\t%s\n" % row[2:] for row in direct} == {line for move in range(MOVES + 1) for line in lines(move)}
    assert cluster.handshakes_failed() == passed_by


def test_a_share_fetch_is_told_of_the_new_leader_by_the_gateway_s_address(cluster: Cluster, topic: str) -> None:
    first, second = cluster.stack.brokers
    _led_by_one(cluster, topic)
    move_leaders(cluster.stack.brokers, topic)
    with first.admin() as admin:
        (described,) = admin.describe_topics([topic])
    asked = frame(_share_fetch(UUID(described["topic_id"])))
    ports = [cluster.gateway.broker_port - 1, int(second.address("TLS").rpartition(":")[2])]

    def named() -> bool:  # a broker may take a moment to know that it leads no more
        with socket.create_connection(("127.0.0.1", cluster.gateway.broker_port)) as connection:
            connection.sendall(asked)
            stream = connection.makefile("rb")
            answer = stream.read(int.from_bytes(stream.read(4), "big"))
        told, own = (port.to_bytes(4, "big") in answer for port in ports)
        assert not own, answer
        return told

    wait_until(named, "the new leader's address", pause=0.05)


def _share_fetch(topic_id: UUID) -> bytes:
    """ShareFetch v1 of a new session, one record of partition 0."""
    header = bytes.fromhex("004e 0001 00000001 ffff 00")
    names = compact_string("group") + compact_string("AAAAAAAAAAAAAAAAAAAAAQ")  # the member's, which is any id
    numbers = struct.pack(">iiiiii", 0, 0, 0, 1, 1, 1)  # session epoch, max wait, min and max bytes, records, batch
    partition = struct.pack(">i", 0) + compact_array([]) + NO_TAGS
    topics = compact_array([topic_id.bytes + compact_array([partition]) + NO_TAGS])
    return header + names + numbers + topics + compact_array([]) + NO_TAGS


def _led_by_one(cluster: Cluster, topic: str) -> None:
    """A client then is not connected to the broker that leads next, and goes where an answer says that it is."""
    nodes = [broker.node_id for broker in cluster.stack.brokers]
    replicas = dict.fromkeys(range(PARTITIONS), nodes)
    with cluster.stack.broker.admin() as admin:
        admin.create_topics([NewTopic(topic, replica_assignments=replicas, topic_configs=TIERED)])
        admin.wait_for_topics([topic])


def _share_from_the_start(cluster: Cluster, group: str) -> None:
    setting = ConfigResource(ConfigResourceType.GROUP, group, {"share.auto.offset.reset": "earliest"})
    with cluster.stack.broker.admin() as admin:
        admin.alter_configs([setting])

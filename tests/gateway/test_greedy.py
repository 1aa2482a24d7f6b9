"""Clients that ask for as much as they can, an honest one beside them.

Cluster and storage are made up, see `made_up_cluster` and `made_up_storage`; the gateway is a process of its own with
the settings that it has by default.
"""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.attacks import Memory, attackers
from tests.gateway.honest import HonestClient
from tests.gateway.made_up_cluster import OFFSETS, TOPIC
from tests.gateway.planning import made_up_gateway
from tests.gateway.running import RunningGateway
from tests.rigs.stack.processes import ServiceProcess, free_ports, listens
from tiered_stream.model import TopicPartition

pytestmark = [pytest.mark.stack, pytest.mark.slow]

SEGMENT_BYTES = 10_000_000
SEGMENTS, HONEST_SEGMENTS = 2_000, 20
MOST_MIB = 512
MOST_REQUESTS_A_SECOND = 1_000


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the made-up storage is."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.gateway.made_up_storage", str(port), str(SEGMENT_BYTES)]
    process = ServiceProcess("made-up storage", command, tmp_path_factory.mktemp("greedy") / "storage.log")
    process.start(lambda: listens(port))
    yield f"http://127.0.0.1:{port}"
    process.stop()


@pytest.fixture(scope="module")
def greedily_asked(storage: str) -> Iterator[RunningGateway]:
    given = {
        "remote.storage.uri": "s3://tier",
        "remote.storage.s3.endpoint.url": storage,
        "remote.storage.s3.path.style.access.enabled": "true",
        "remote.storage.s3.region": "us-east-1",
        "remote.storage.aws.access.key.id": "id",
        "remote.storage.aws.secret.access.key": "key",
        "gateway.signed.location.lifetime.seconds": "900",
    }
    with made_up_gateway(2, SEGMENTS, given, segment_bytes=SEGMENT_BYTES) as gateway:
        yield gateway


@pytest.mark.parametrize("kind", ["parts of one byte", "location requests of 859 KiB", "topics that may not be read"])
def test_the_honest_client_is_answered_memory_stays_small_and_the_storage_is_not_flooded(
    greedily_asked: RunningGateway, storage: str, kind: str, tmp_path: Path
) -> None:
    properties = {"bootstrap.servers": greedily_asked.bootstrap_servers}
    honest = HonestClient(properties, TopicPartition(TOPIC, 1), HONEST_SEGMENTS * OFFSETS, HONEST_SEGMENTS)
    memory = Memory(greedily_asked)
    memory.forget_peak()
    with attackers(greedily_asked, kind, tmp_path) as attacking:
        honest.ask(connections=4)
        assert attacking.running
    assert memory.peak() < MOST_MIB
    with urllib.request.urlopen(f"{storage}/most") as answer:
        most_requests_a_second = int(answer.read())
    # The storage's clock is its own: a request may come a little later than it was sent, and the next one sooner.
    assert most_requests_a_second <= 1.05 * MOST_REQUESTS_A_SECOND

"""How long it takes until brokers that are not there are reported."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.reading import BY_STEP, records
from tests.setups.place import TOPIC, Place
from tests.setups.surfaces import COMMANDS, BatchQueries, Outcome, Run, outcomes
from tests.stack.processes import wait_until
from tests.stack.produce import produce_segments
from tests.stack.tiered_stack import TieredStack
from tests.stack.topics import create_tiered_topic, wait_until_tiered

STOPPED, UNKNOWN, SILENT, ALL, ONE_OF_THREE = "stopped", "unknown", "silent", "all", "one of three"
CASES = {
    STOPPED: "The only broker was stopped",
    UNKNOWN: "The only name does not exist",
    SILENT: "The only address does not answer",
    ALL: "All of three brokers are up",
    ONE_OF_THREE: "One of three brokers is up",
}
_SERVERS = "kafka.bootstrap.servers"


def measure_contact(place: Place, folder: Path, run: Run, queries: BatchQueries) -> dict[str, dict[str, Outcome]]:
    """Run everything in each of the cases, and return what was said, by the case. The place's broker is stopped."""

    right = place.settings()

    def said(case: str, servers: str, settings: Mapping[str, str] = right) -> dict[str, Outcome]:
        settings = {**settings, _SERVERS: servers}
        at_once = len(COMMANDS) if case == SILENT else 1  # each waits for a minute there, and needs no core
        return outcomes(place, folder / f"contact-{case.replace(' ', '-')}", settings, run, queries, at_once=at_once)

    found = {UNKNOWN: said(UNKNOWN, "no-such-broker.invalid:9092")}
    with silent_address() as address:
        found[SILENT] = said(SILENT, address)
    servers = place.site.stack.bootstrap_servers
    place.site.stack.broker.stop()
    found[STOPPED] = said(STOPPED, servers)
    with TieredStack(brokers=3) as stack:
        _fill(stack)
        settings = {**stack.options(), "subscribe": TOPIC, "startingOffsets": "earliest"}
        found[ALL] = said(ALL, stack.bootstrap_servers, settings)
        for broker in stack.brokers[1:]:
            broker.stop()
        found[ONE_OF_THREE] = said(ONE_OF_THREE, stack.bootstrap_servers, settings)
    return {case: found[case] for case in CASES}


def _fill(stack: TieredStack) -> None:
    """A topic with one partition, which every broker has."""
    create_tiered_topic(stack.broker, TOPIC, config=BY_STEP, replicas=[1, 2, 3])
    produce_segments(stack.broker, TOPIC, [records(40), records(1, 40, timestamp_ms=1_700_000_100_000)], 0)
    wait_until_tiered(stack.broker, TOPIC)


@contextmanager
def silent_address() -> Iterator[str]:
    """An address whose connections are never accepted, because its queue of connections is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        waiting: list[socket.socket] = []

        def is_full() -> bool:
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(address)
            with socket.socket() as probe:
                probe.settimeout(0.2)
                return probe.connect_ex(address) != 0

        wait_until(is_full, "a full queue of connections", pause=0.0)
        try:
            yield f"127.0.0.1:{address[1]}"
        finally:
            for connection in waiting:
                connection.close()

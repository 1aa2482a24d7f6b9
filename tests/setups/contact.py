"""How long it takes until brokers that are not there are reported."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.reading import BY_STEP, records
from tests.rigs.stack.processes import wait_until
from tests.rigs.stack.produce import produce_segments
from tests.rigs.stack.tiered_stack import TieredStack
from tests.rigs.stack.topics import create_tiered_topic, wait_until_tiered
from tests.setups.place import TOPIC, Place
from tests.setups.surfaces import COMMANDS, Outcome, SparkProgram, outcomes

STOPPED, UNKNOWN, SILENT, ALL, ONE_OF_THREE = "stopped", "unknown", "silent", "all", "one of three"
CASES = {
    STOPPED: "The only broker was stopped",
    UNKNOWN: "The only name does not exist",
    SILENT: "The only address does not respond",
    ALL: "All of three brokers are up",
    ONE_OF_THREE: "One of three brokers is up",
}
_SERVERS = "kafka.bootstrap.servers"


def measure_contact(place: Place, folder: Path, spark: SparkProgram) -> Iterator[tuple[str, dict[str, Outcome]]]:
    """Run everything in each of the cases, and yield the case and what was said. The place's broker is stopped."""

    def said(case: str, settings: Mapping[str, str], program: SparkProgram) -> tuple[str, dict[str, Outcome]]:
        own, is_silent = folder / f"contact-{case.replace(' ', '-')}", case == SILENT
        at_once = len(COMMANDS) if is_silent else 1  # each waits for a minute there, and needs no core
        return case, outcomes(place, own, settings, program, at_once=at_once, waits=is_silent)

    right = place.settings()
    yield said(UNKNOWN, {**right, _SERVERS: "no-such-broker.invalid:9092"}, spark)
    with silent_address() as address:
        yield said(SILENT, {**right, _SERVERS: address}, spark)
    place.site.stack.broker.stop()
    with SparkProgram(folder) as other:  # the first program has met this broker before, and would wait for it
        yield said(STOPPED, right, other)
    with TieredStack(brokers=3) as stack:
        _fill(stack)
        settings = {**stack.options(), "subscribe": TOPIC, "startingOffsets": "earliest"}
        yield said(ALL, settings, spark)
        for broker in stack.brokers[1:]:
            broker.stop()
        yield said(ONE_OF_THREE, settings, spark)


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

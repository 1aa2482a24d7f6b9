from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry, generate_latest

from tiered_stream.errors import BrokerUnavailableError
from tiered_stream.gateway.locations.faulty_partitions import FaultyPartitions
from tiered_stream.model import TopicPartition

NAME = "tiered_stream_gateway_unlocated_partitions"
FAULT = BrokerUnavailableError("no answer")


def test_a_scrape_sees_the_values_before_or_after_a_change_and_nothing_between() -> None:
    registry, changed = CollectorRegistry(), threading.Event()
    faulty = FaultyPartitions(registry)
    before, after = ({TopicPartition(f"{name}{number}", 0): FAULT for number in range(200)} for name in ("a", "b"))
    faulty.record((), before)

    def change() -> None:
        for _ in range(300):
            faulty.record(before, after)
            faulty.record(after, before)
        changed.set()

    changing = threading.Thread(target=change)
    changing.start()
    seen = set()
    while not changed.is_set() or not seen:
        lines = generate_latest(registry).decode().splitlines()
        seen.add(frozenset(line.split('"')[1][0] for line in lines if line.startswith(f"{NAME}{{")))
        assert sum(line.startswith(f"{NAME}{{") for line in lines) == 200
    changing.join()
    assert seen <= {frozenset("a"), frozenset("b")}


def test_a_topic_that_is_well_again_is_left_out() -> None:
    registry = CollectorRegistry()
    faulty = FaultyPartitions(registry)
    sick, other = TopicPartition("sick", 0), TopicPartition("other", 0)
    faulty.record((), {sick: FAULT, TopicPartition("sick", 1): FAULT, other: FAULT})
    assert registry.get_sample_value(NAME, {"topic": "sick"}) == 2
    faulty.record([sick, TopicPartition("sick", 1)], {})
    assert registry.get_sample_value(NAME, {"topic": "sick"}) is None
    assert registry.get_sample_value(NAME, {"topic": "other"}) == 1

from __future__ import annotations

import threading
from collections import Counter

from prometheus_client import generate_latest

from tiered_stream.gateway.gateway_metrics import GatewayMetrics

NAME = "tiered_stream_gateway_unlocated_partitions"


def test_a_scrape_sees_the_values_before_or_after_a_change_and_nothing_between() -> None:
    metrics, changed = GatewayMetrics(), threading.Event()
    before, after = (Counter({f"{name}{number}": 1 for number in range(200)}) for name in ("a", "b"))
    metrics.unlocated.replace(before)

    def change() -> None:
        for _ in range(300):
            metrics.unlocated.replace(after)
            metrics.unlocated.replace(before)
        changed.set()

    changing = threading.Thread(target=change)
    changing.start()
    seen = set()
    while not changed.is_set() or not seen:
        lines = generate_latest(metrics.registry).decode().splitlines()
        seen.add(frozenset(line.split('"')[1][0] for line in lines if line.startswith(f"{NAME}{{")))
        assert sum(line.startswith(f"{NAME}{{") for line in lines) == 200
    changing.join()
    assert seen <= {frozenset("a"), frozenset("b")}


def test_a_topic_that_is_well_again_is_left_out() -> None:
    metrics = GatewayMetrics()
    metrics.unlocated.replace({"sick": 2, "other": 1})
    metrics.unlocated.replace({"other": 1})
    assert metrics.registry.get_sample_value(NAME, {"topic": "sick"}) is None
    assert metrics.registry.get_sample_value(NAME, {"topic": "other"}) == 1

"""What the gateway knows of the tier of scripted brokers, of which some are silent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast
from urllib.request import urlopen
from uuid import UUID

import pytest

from tests.locate.metadata_topic.scripted_tier import LOG_END, ScriptedTier, segment_record
from tiered_stream.broker.list_offsets import ListOffsetsRequest
from tiered_stream.errors import BrokerUnavailableError
from tiered_stream.gateway.gateway_metrics import GatewayMetrics
from tiered_stream.gateway.locations import faulty_partitions, tiered_segments
from tiered_stream.gateway.locations.faulty_partitions import FaultyPartitions
from tiered_stream.gateway.locations.tiered_segments import TieredSegments
from tiered_stream.model import TopicPartition
from tiered_stream.observe.prometheus_endpoint import Monitor
from tiered_stream.storage.fetcher import RemoteStorageFetcher

SICK, WELL = TopicPartition("sick", 0), TopicPartition("well", 0)
FOREVER = 1e9


class Known:
    """What a gateway before scripted brokers knows; `sick` is led by broker 2, all else by broker 1."""

    def __init__(self) -> None:
        self.tier = ScriptedTier("sick", "well")
        self.tier.leaders[SICK] = 2
        self.metrics = GatewayMetrics()
        self.faulty = FaultyPartitions(self.metrics.registry)
        nowhere = cast(RemoteStorageFetcher, None)
        self.segments = TieredSegments(self.tier.client, nowhere, 1 << 20, FOREVER, self.faulty)
        self.ids = {partition: self.tier.topics[partition.topic] for partition in (SICK, WELL)}

    def visible(self, *partitions: TopicPartition) -> set[TopicPartition]:
        """Those of which the segments are known."""
        return set(self.segments.visible({partition: self.ids[partition] for partition in partitions}))

    def asked_of_the_sick(self) -> int:
        return sum(node_id == 2 for node_id, _ in self.tier.client.asked(ListOffsetsRequest))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[Known]:
    """Who waits for a silent broker waits for an hour."""
    monkeypatch.setattr(tiered_segments, "PATIENCE_MS", 3_600_000)
    made = Known()
    yield made
    made.tier.silent.clear()
    made.segments.close()
    made.tier.client.close()


def test_who_asks_for_a_healthy_topic_does_not_wait_for_one_that_is_looked_at_in_vain(known: Known) -> None:
    known.tier.silent = {2}
    found: list[set[TopicPartition]] = []
    others = [threading.Thread(target=lambda: found.append(known.visible(SICK))) for _ in range(2)]
    for other in others:
        other.start()
    assert known.visible(WELL) == {WELL}
    assert known.segments.log_ends([WELL]) == {WELL: LOG_END}
    assert known.segments.topic_names([known.ids[WELL]]) == {known.ids[WELL]: "well"}
    assert not found
    known.tier.silent.clear()
    for other in others:
        other.join()
    assert found == [{SICK}, {SICK}]
    assert known.asked_of_the_sick() == 1, "one looks, and the others wait for what it finds"


def test_a_partition_without_a_leader_is_left_out_at_once_and_looked_at_again(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulty_partitions, "_RETRY_SECONDS", 0)
    known.tier.leaders[SICK] = -1
    assert known.visible(SICK, WELL) == {WELL}
    assert known.segments.log_ends([SICK, WELL]) == {WELL: LOG_END}
    assert "sick-0 " in known.faulty.reasons()[0]
    known.tier.leaders[SICK] = 2
    while known.visible(SICK, WELL) != {SICK, WELL}:
        pass  # a thread of its own tries it
    assert not known.faulty.reasons()


def test_nobody_waits_a_second_time_for_a_leader_that_did_not_answer(known: Known) -> None:
    known.tier.silent = {2}
    known.faulty.record([SICK], {SICK: BrokerUnavailableError("no answer")})
    assert known.visible(SICK, WELL) == {WELL}
    assert known.segments.log_ends([SICK, WELL]) == {WELL: LOG_END}
    assert known.segments.local_starts([SICK, WELL]) == {WELL: 0}


def test_a_request_that_is_under_way_when_the_gateway_stops_gets_an_answer(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulty_partitions, "_RETRY_SECONDS", 0)
    known.faulty.record([SICK], {SICK: BrokerUnavailableError("no answer")})
    known.segments.close()
    for _ in range(2):
        assert known.visible(SICK, WELL) == {WELL}


def test_following_goes_on_past_what_is_at_fault_and_names_it(known: Known) -> None:
    known.tier.leaders[SICK] = 1
    known.tier.tell("sick", segment_record("sick", known.ids[SICK], 1)[:-9])
    known.segments.refresh_all()
    assert known.visible(SICK, WELL) == {WELL}
    (reason,) = known.faulty.reasons()
    assert reason.startswith("sick-0 ") and ": __remote_log_metadata-" in reason
    name = "tiered_stream_gateway_unlocated_partitions"
    assert known.metrics.registry.get_sample_value(name, {"topic": "sick"}) == 1
    monitor = Monitor("127.0.0.1", 0, known.metrics.registry, lambda: "", known.faulty.reasons)
    with urlopen(f"http://127.0.0.1:{monitor.port}/health") as answer:
        assert (answer.status, answer.read().decode()) == (200, f"healthy\n{reason}\n")
    monitor.close()
    del known.tier.topics["sick"]
    known.segments.refresh_all()
    assert not known.faulty.reasons(), "the topic is gone"


def test_a_topic_that_was_made_again_is_looked_at_anew_however_fresh_its_predecessor_is(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = known.ids[WELL]
    assert known.visible(WELL) == {WELL}
    assert known.segments.topic_names([before]) == {before: "well"}
    known.ids[WELL] = known.tier.topics["well"] = UUID(int=99)
    monkeypatch.setattr(tiered_segments, "_TOPICS_SECONDS", 0)
    assert known.segments.topic_names([before, known.ids[WELL]]) == {known.ids[WELL]: "well"}
    known.tier.tell("well", segment_record("well", known.ids[WELL], 0))
    (found,) = known.segments.visible({WELL: known.ids[WELL]}).values()
    assert [each.segment.topic_id for each in found] == [known.ids[WELL]]
    assert known.segments.visible({WELL: before}) == {}


def test_where_nobody_can_be_asked_following_fails(known: Known) -> None:
    known.tier.leaders = {SICK: -1, WELL: -1}
    with pytest.raises(BrokerUnavailableError, match="no leader"):
        known.segments.refresh_all()

"""What doctor says of a longer tail at the brokers (KIP-1241); a broker says it in `tests/cli/test_copy_lag.py`."""

from __future__ import annotations

from contextlib import closing
from typing import cast

import pytest

from tests.locate.golden_locator import GoldenLocator
from tests.plan.in_memory_offsets import InMemoryOffsets
from tests.plan.test_tiering_delay import OF_4_4
from tiered_stream.broker.cluster_metadata import TopicMetadata
from tiered_stream.doctor import cluster_checks, tier_checks
from tiered_stream.doctor.environment import Job
from tiered_stream.doctor.finding import NotNeededError, Result
from tiered_stream.locate.log_source import LogSource
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.parsing import parse_options

TIERED = {**OF_4_4, "remote.storage.enable": "true"}


def tiering(monkeypatch: pytest.MonkeyPatch, told: dict[str, dict[str, str]], *topics: str) -> Result[bool]:
    monkeypatch.setattr(cluster_checks, "open_client", lambda kafka: None)
    monkeypatch.setattr(cluster_checks, "topic_configs", lambda client, topics, names: told)
    options = parse_options({"kafka.bootstrap.servers": "nowhere:9092", "subscribe": "t"}, streaming=False)
    named = dict.fromkeys(topics or told, cast(TopicMetadata, None))
    return cluster_checks._check_tiering(cast(Job, type("Given", (), {"options": options})), named)


def test_segments_that_wait_for_their_copy_are_told_with_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tiering(monkeypatch, {"slow": {**TIERED, "remote.copy.lag.ms": "7200000"}, "quick": TIERED})
    assert seen.description == (
        "remote.storage.enable=true; slow: brokers keep closed segments from the tier until they are 2 h old "
        "(remote.copy.lag.ms=7200000, remote.copy.lag.bytes=-1)"
    )
    assert not seen.fix
    assert tiering(monkeypatch, {"quick": TIERED}).description == "remote.storage.enable=true"


def test_segments_that_are_never_copied_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tiering(monkeypatch, {"never": {**TIERED, "remote.copy.lag.ms": "-1", "retention.ms": "-1"}})
    assert "never" in seen.description and "remote.copy.lag.ms=0" in seen.fix


def test_a_topic_that_is_not_tiered_or_not_told_of_is_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {**TIERED, "remote.copy.lag.ms": "7200000"}
    assert "not tiered" in tiering(monkeypatch, {"plain": OF_4_4, "slow": slow}).description
    with pytest.raises(NotNeededError, match="unknown for other"):
        tiering(monkeypatch, {"slow": slow}, "slow", "other")


def test_a_diskless_topic_is_a_warning_that_says_if_it_has_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    diskless = {**OF_4_4, "diskless.enable": "true"}
    seen = tiering(monkeypatch, {"plain": diskless, "both": {**TIERED, "diskless.enable": "true"}, "t": TIERED})
    assert seen.description == (
        "diskless.enable=true without remote.storage.enable=true, so the brokers send every record: plain"
    )
    assert "consolidate" in seen.fix
    seen = tiering(monkeypatch, {"both": {**TIERED, "diskless.enable": "true"}, "t": TIERED})
    assert seen.description == "diskless.enable=true, which was never tried: both"
    assert "--storage" in seen.fix
    tiered = {**TIERED, "diskless.enable": "false"}
    assert tiering(monkeypatch, {"t": tiered}).description == "remote.storage.enable=true"


def test_how_many_offsets_come_from_the_brokers_is_told() -> None:
    big = TopicPartition("s32-big", 0)
    with closing(GoldenLocator()) as locator:
        end = locator.visible[big][-1].offsets.end
        source = LogSource(InMemoryOffsets(), locator)
        tail = tier_checks._locate(source, {big: OffsetRange(0, 2 * end)}).description
        assert tail.endswith(f"partitions: 1; {end:,} of {2 * end:,} offsets (50.0%) come from the brokers")
        assert tier_checks._locate(source, {big: OffsetRange(0, end)}).description.endswith("partitions: 1")

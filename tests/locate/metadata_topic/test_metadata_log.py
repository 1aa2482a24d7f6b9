"""What one topic's trouble costs: nothing of the others, in the locator `metadata-topic` over scripted brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchRequest

from tests.locate.metadata_topic.scripted_tier import LOG_END, ScriptedTier, segment_record
from tests.locate.segments import segment_ends
from tiered_stream.errors import BrokerUnavailableError, CorruptDataError, TieredStreamError
from tiered_stream.locate.metadata_topic import metadata_log
from tiered_stream.locate.metadata_topic.metadata_snapshots import MetadataSnapshots
from tiered_stream.locate.metadata_topic.metadata_topic_locator import PATIENCE_MS, MetadataTopicLocator
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.options.choices import IsolationLevel
from tiered_stream.records.flexible_versions import compact_string
from tiered_stream.storage.fetcher import RemoteStorageFetcher

TOPICS = [f"topic-{number}" for number in range(12)]  # three for each partition of the metadata topic, more or less
SICK, *WELL = [TopicPartition(topic, 0) for topic in TOPICS]
ALL = dict.fromkeys([SICK, *WELL], OffsetRange(0, LOG_END))

Damage = Callable[[ScriptedTier], bytes]


def whole(tier: ScriptedTier) -> bytes:
    return segment_record(SICK.topic, tier.topics[SICK.topic], 1)


BAD_RECORDS: dict[str, Damage] = {
    "cut off": lambda tier: whole(tier)[:-9],
    "with bytes behind it": lambda tier: whole(tier) + b"more",
    "with an overlong number": lambda tier: whole(tier)[:-3] + b"\xff" * 100,
    "of a type of the future": lambda tier: b"\x01\x63" + whole(tier)[2:],
    "of a frame of the future": lambda tier: b"\x07" + whole(tier)[1:],
    "that ends at the last offset there is": lambda tier: segment_record(
        SICK.topic, tier.topics[SICK.topic], 1, (1 << 63) - 1
    ),
    "that names no partition but holds the id": lambda tier: b"\xff" * 20 + tier.topics[SICK.topic].bytes,
}


@pytest.fixture
def tier() -> ScriptedTier:
    return ScriptedTier(*TOPICS)


def locator(
    tier: ScriptedTier, *, falls_back: bool = True, kept: MetadataSnapshots | None = None
) -> MetadataTopicLocator:
    nowhere = cast(RemoteStorageFetcher, None)
    patience_ms = PATIENCE_MS if falls_back else 50
    return MetadataTopicLocator(
        tier.client, nowhere, IsolationLevel.READ_COMMITTED, falls_back=falls_back, patience_ms=patience_ms,
        snapshots=kept,
    )  # fmt: skip


def tiered(tier: ScriptedTier) -> set[TopicPartition]:
    """The partitions of which the locator knows the segment."""
    return {partition for partition, ends in segment_ends(locator(tier), ALL).items() if ends}


def test_all_is_known_when_all_is_well(tier: ScriptedTier) -> None:
    assert len({tier.told_by(topic) for topic in TOPICS}) > 1
    assert any(tier.told_by(each.topic) == tier.told_by(SICK.topic) for each in WELL)
    assert tiered(tier) == set(ALL)


@pytest.mark.parametrize("damage", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_a_record_that_cannot_be_read_costs_its_own_partition_only(
    tier: ScriptedTier, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    tier.tell(SICK.topic, damage(tier))
    tier.tell(SICK.topic, segment_record(SICK.topic, tier.topics[SICK.topic], 2))
    assert tiered(tier) == set(WELL)
    where = tier.told_by(SICK.topic)
    assert f"{where} at offset {len(tier.values[where.partition]) - 2}" in caplog.text
    assert f"{SICK} is read from the broker" in caplog.text


def test_without_a_fallback_it_is_an_error_that_names_the_record(tier: ScriptedTier) -> None:
    tier.tell(SICK.topic, whole(tier)[:-9])
    made = locator(tier, falls_back=False)
    with pytest.raises(CorruptDataError, match="__remote_log_metadata-. at offset"):
        segment_ends(made, {SICK: OffsetRange(0, LOG_END)})
    assert segment_ends(made, dict.fromkeys(WELL, OffsetRange(0, LOG_END)))[WELL[0]] == (10,)


def test_a_record_that_names_nobody_costs_nobody(tier: ScriptedTier) -> None:
    tier.tell(SICK.topic, b"\xff" * 1_000)
    tier.tell(SICK.topic, b"\x01\x00\x00" + compact_string("other") + b"\x05" * 40)
    assert tiered(tier) == set(ALL)


def test_a_partition_without_a_leader_costs_itself_and_nobody_waits_for_it(
    tier: ScriptedTier, caplog: pytest.LogCaptureFixture
) -> None:
    """The time allowed is a minute: to wait for it would fail the test, however slow the machine."""
    tier.leaders[SICK] = -1
    asked = len(tier.client.requests)
    assert tiered(tier) == set(WELL)
    assert len(tier.client.requests) - asked < 40
    assert "no leader" in caplog.text


def test_a_metadata_partition_without_a_leader_costs_the_topics_that_it_tells_of(tier: ScriptedTier) -> None:
    tier.leaders[tier.told_by(SICK.topic)] = -1
    told = {each for each in ALL if tier.told_by(each.topic) == tier.told_by(SICK.topic)}
    assert tiered(tier) == set(ALL) - told


def test_without_a_fallback_a_partition_without_a_leader_is_an_error(tier: ScriptedTier) -> None:
    tier.leaders[SICK] = -1
    with pytest.raises(BrokerUnavailableError, match=r"topic-0-0.*no leader"):
        segment_ends(locator(tier, falls_back=False), ALL)


def test_what_a_leader_gone_costs_comes_back_with_it(tier: ScriptedTier) -> None:
    made = locator(tier)
    tier.leaders[SICK] = -1
    faults = made.views(ALL).faults
    assert set(faults) == {SICK} and isinstance(faults[SICK], TieredStreamError)
    tier.leaders[SICK] = 2
    answer = made.views(ALL)
    assert not answer.faults and answer.found[SICK].topic_id == tier.topics[SICK.topic]


def test_news_is_read_on_and_a_new_topic_does_not_hide_the_others(tier: ScriptedTier) -> None:
    made = locator(tier)
    ours = [each for each in ALL if tier.told_by(each.topic) == tier.told_by(SICK.topic)]
    assert len(made.views(ours[:1]).found) == 1
    tier.tell(SICK.topic, segment_record(SICK.topic, tier.topics[SICK.topic], 1))
    answer = made.views(ours)
    assert {each: len(view.visible) for each, view in answer.found.items()} == {
        each: 2 if each == SICK else 1 for each in ours
    }


def test_what_comes_while_a_part_is_read_is_read_the_next_time(tier: ScriptedTier) -> None:
    made = locator(tier)
    tier.tell(SICK.topic, segment_record(SICK.topic, tier.topics[SICK.topic], 1))
    tier.late = 1
    assert len(made.views([SICK]).found[SICK].visible) == 1
    tier.late = 0
    assert len(made.views([SICK]).found[SICK].visible) == 2


def test_the_compiled_scan_finds_the_same(tier: ScriptedTier, monkeypatch: pytest.MonkeyPatch) -> None:
    for damage in BAD_RECORDS.values():
        tier.tell(SICK.topic, damage(tier))
    expected = locator(tier).views(ALL)
    monkeypatch.setattr(metadata_log, "_MIN_SCAN_RECORDS", 0)
    found = locator(tier).views(ALL)
    assert {each: (view.visible, view.inputs[1:]) for each, view in found.found.items()} == {
        each: (view.visible, view.inputs[1:]) for each, view in expected.found.items()
    }
    assert {each: str(fault) for each, fault in found.faults.items()} == {
        each: str(fault) for each, fault in expected.faults.items()
    }


class Kept:
    """A tier of which a locator has kept what it was told."""

    def __init__(self, tier: ScriptedTier, folder: Path) -> None:
        self.tier = tier
        self.snapshots = MetadataSnapshots(folder)
        self.look(ALL)

    def look(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The segments that a new locator knows, by partition."""
        found = locator(self.tier, kept=self.snapshots).views(partitions).found
        return {partition: len(view.visible) for partition, view in found.items()}

    def read_from(self) -> dict[int, list[int]]:
        """From which offsets on a new locator reads each part of the metadata topic, whether for one batch or all."""
        asked = len(self.tier.client.requests)
        values = [value for part in self.tier.values for value in part]
        told = {each: sum(self.tier.topics[each.topic].bytes in value for value in values) for each in ALL}
        assert self.look(ALL) == told
        offsets: dict[int, list[int]] = {}
        for _, request in self.tier.client.requests[asked:]:
            if isinstance(request, FetchRequest):
                (wanted,) = request.topics[0].partitions
                offsets.setdefault(wanted.partition, []).append(wanted.fetch_offset)
        return offsets


@pytest.fixture
def kept(tier: ScriptedTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setattr(metadata_log, "_MIN_SNAPSHOT_RECORDS", 1)
    return Kept(tier, tmp_path / "kept")


def filled(tier: ScriptedTier) -> dict[int, int]:
    """The parts of the metadata topic that have records, and how many."""
    return {number: len(values) for number, values in enumerate(tier.values) if values}


def test_what_was_kept_is_not_read_again(kept: Kept) -> None:
    assert kept.read_from() == {number: [end - 1] for number, end in filled(kept.tier).items()}


def test_a_query_goes_on_from_what_was_kept(kept: Kept) -> None:
    before = filled(kept.tier)
    for number in (1, 2):
        kept.tier.tell(SICK.topic, segment_record(SICK.topic, kept.tier.topics[SICK.topic], number))
    part = kept.tier.told_by(SICK.topic).partition
    expected = {number: [end - 1] for number, end in before.items()}
    expected[part] += [before[part], before[part] + 1]  # what is new, and its last batch for the next query
    assert kept.read_from() == expected


def test_a_query_of_other_topics_reads_what_tells_of_them(tier: ScriptedTier, tmp_path: Path, kept: Kept) -> None:
    kept.snapshots = MetadataSnapshots(tmp_path / "other")
    assert kept.look([SICK]) == {SICK: 1}
    assert kept.look(ALL) == dict.fromkeys(ALL, 1)
    assert kept.read_from() == {number: [end - 1] for number, end in filled(tier).items()}


@pytest.mark.parametrize("change", ["records", "start", "end", "metadata topic", "cluster"])
def test_where_the_log_is_another_it_is_read_from_its_start(kept: Kept, change: str) -> None:
    tier, before = kept.tier, filled(kept.tier)
    match change:
        case "records":
            for number in before:
                tier.values[number][-1] += b"?"
        case "start":
            for values in tier.values:
                values += [b"\1\0\0"] * 10
            tier.log_start = max(before.values()) + 2
        case "end":
            for values in tier.values:
                del values[1:]
        case "metadata topic":
            tier.metadata_topic_id = UUID(int=99)
        case "cluster":
            tier.cluster_id = "another"
    asked = len(tier.client.requests)
    kept.look(ALL)
    starts = {
        request.topics[0].partitions[0].partition: request.topics[0].partitions[0].fetch_offset
        for _, request in tier.client.requests[asked:]
        if isinstance(request, FetchRequest) and request.topics[0].partitions[0].partition_max_bytes > 1
    }
    assert starts == dict.fromkeys(before, tier.log_start)


def test_a_record_that_cannot_be_read_is_kept_too(kept: Kept) -> None:
    kept.tier.tell(SICK.topic, whole(kept.tier)[:-9])
    first, again = (locator(kept.tier, kept=kept.snapshots).views(ALL).faults for _ in range(2))
    assert set(first) == set(again) == {SICK}
    assert str(first[SICK]) == str(again[SICK])


def test_who_may_not_read_the_metadata_topic_does_not_learn_of_it_from_what_was_kept(kept: Kept) -> None:
    kept.tier.refused = True
    with pytest.raises(TieredStreamError, match="READ on the topic"):
        segment_ends(locator(kept.tier, falls_back=False, kept=kept.snapshots), ALL)

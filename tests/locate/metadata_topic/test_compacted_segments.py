"""A compacted metadata topic (KIP-1266): what an update alone makes known, and what is said where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.golden import NAMES, golden
from tests.locate.golden_locator import golden_table
from tests.locate.metadata_topic.scripted_tier import (
    COMPACTED_AWAY,
    LOG_END,
    OFFSETS,
    ScriptedTier,
    segment_record,
    tiered_segment,
)
from tests.locate.segments import named_partitions
from tests.storage import golden_aiven
from tests.tier.fetchers import IndexesOnly
from tests.tier.metadata import update_record
from tiered_stream.errors import BrokerUnavailableError, StorageObjectNotFoundError, StorageUnavailableError
from tiered_stream.locate.metadata_topic.compacted_segments import CompactedSegments
from tiered_stream.locate.metadata_topic.metadata_snapshots import MetadataSnapshots
from tiered_stream.locate.metadata_topic.metadata_topic_locator import MetadataTopicLocator
from tiered_stream.locate.metadata_topic.remote_log_metadata import (
    SegmentMetadata,
    decode_remote_log_metadata,
)
from tiered_stream.locate.metadata_topic.segment_table import SegmentTable
from tiered_stream.model import OffsetRange, RemoteLogSegment, TopicPartition
from tiered_stream.options.choices import IsolationLevel

PARTITION = TopicPartition("orders", 0)
ALL = {PARTITION: OffsetRange(0, LOG_END)}


class Keeper(IndexesOnly):
    """Keeps the metadata of segments by base offset, and counts what it is asked for."""

    def __init__(self, kept: Mapping[int, RemoteLogSegment]) -> None:
        self.kept = kept
        self.away = False
        self.asked: list[int] = []

    def segment_metadata(self, segment: RemoteLogSegment) -> RemoteLogSegment | None:
        self.asked.append(segment.base_offset)
        if self.away:
            raise StorageUnavailableError("the storage is away")
        if segment.base_offset not in self.kept:
            raise StorageObjectNotFoundError("there is no such object")
        return self.kept[segment.base_offset]


@pytest.fixture
def tier() -> ScriptedTier:
    return ScriptedTier("orders")


def segment_of(tier: ScriptedTier, number: int) -> RemoteLogSegment:
    """As `ScriptedTier` numbers them."""
    return tiered_segment("orders", tier.topics["orders"], number)


def finished(tier: ScriptedTier, number: int, end_offset: int | None = -1) -> bytes:
    """The update that says that a segment's copy is finished; None: as brokers wrote it before KIP-1266."""
    segment = segment_of(tier, number)
    if end_offset is None:
        return update_record(segment)
    return update_record(segment, version=1, end_offset=segment.end_offset if end_offset == -1 else end_offset)


def locator(
    tier: ScriptedTier, keeper: Keeper, *, falls_back: bool = True, kept: MetadataSnapshots | None = None
) -> MetadataTopicLocator:
    return MetadataTopicLocator(
        tier.client,
        keeper,
        IsolationLevel.READ_UNCOMMITTED,
        falls_back=falls_back,
        patience_ms=3_600_000,
        snapshots=kept,
    )


def located(made: MetadataTopicLocator) -> list[int]:
    """Where the segments begin that are located."""
    return [each.segment.base_offset for each in made.locate(ALL)[PARTITION]]


def test_an_update_alone_makes_its_segment_known_by_what_the_storage_keeps(tier: ScriptedTier) -> None:
    keeper = Keeper({number * OFFSETS: segment_of(tier, number) for number in (1, 2)})
    tier.tell("orders", finished(tier, 2))
    tier.tell("orders", finished(tier, 1))
    made = locator(tier, keeper)
    assert located(made) == [0, 10, 20]
    assert located(made) == [0, 10, 20] and sorted(keeper.asked) == [10, 20]


def test_the_first_of_all_segments_begins_where_the_log_does(tier: ScriptedTier) -> None:
    tier.values = [[] for _ in tier.values]
    tier.tell("orders", finished(tier, 0))
    assert located(locator(tier, Keeper({0: segment_of(tier, 0)}))) == [0]


def test_what_is_not_known_is_counted_and_warned_about_once(
    tier: ScriptedTier, caplog: pytest.LogCaptureFixture
) -> None:
    tier.tell("orders", finished(tier, 1))
    tier.tell("orders", finished(tier, 3, None))
    made = locator(tier, Keeper({}))
    assert located(made) == [0] and located(made) == [0]
    (warning,) = (each for each in caplog.messages if "begins" in each)
    assert warning.startswith("orders-0: 2 segments ") and "(end offsets 19, ...)" in warning
    tier.tell("orders", segment_record("orders", tier.topics["orders"], 1))
    assert located(made) == [0, 10]
    assert caplog.messages[-1].startswith("orders-0: 1 segment ")


def test_a_storage_that_is_away_is_asked_again(tier: ScriptedTier) -> None:
    keeper = Keeper({10: segment_of(tier, 1)})
    keeper.away = True
    tier.tell("orders", finished(tier, 1))
    with pytest.raises(StorageUnavailableError):
        located(locator(tier, keeper, falls_back=False))
    made = locator(tier, keeper)
    assert located(made) == [0]
    keeper.away = False
    assert located(made) == [0, 10]


def test_a_storage_that_is_away_is_not_asked_for_every_segment(tier: ScriptedTier) -> None:
    keeper = Keeper({})
    keeper.away = True
    for number in range(1, 101):
        tier.tell("orders", finished(tier, number))
    assert located(locator(tier, keeper)) == [0]
    assert 16 <= len(keeper.asked) <= 2 * 16


def test_a_segment_that_ends_elsewhere_is_not_taken_for_it(tier: ScriptedTier) -> None:
    tier.tell("orders", finished(tier, 1, 25))
    assert located(locator(tier, Keeper({10: segment_of(tier, 1)}))) == [0]


def test_the_metadata_of_a_segment_that_is_gone_is_not_kept(tier: ScriptedTier) -> None:
    first, second = segment_of(tier, 1), segment_of(tier, 2)
    keeper = Keeper({10: first, 20: second})
    with ThreadPoolExecutor(1) as executor:
        compacted = CompactedSegments(keeper, executor, falls_back=False)
        for alone in ([first, second], [second], [first, second]):
            assert compacted.complete({PARTITION: alone}, {}) == {PARTITION: alone}
    assert keeper.asked == [10, 20, 10]


def test_an_update_alone_is_kept_for_the_next_query(
    tier: ScriptedTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered_stream.locate.metadata_topic.metadata_log._MIN_SNAPSHOT_RECORDS", 1)
    folder = tmp_path / "kept"
    folder.mkdir(mode=0o700)
    tier.tell("orders", finished(tier, 1))
    for _ in range(2):
        keeper = Keeper({10: segment_of(tier, 1)})
        assert located(locator(tier, keeper, kept=MetadataSnapshots(folder))) == [0, 10]
    assert any(folder.iterdir())


def test_what_compaction_took_away_at_the_end_is_not_waited_for(tier: ScriptedTier) -> None:
    tier.tell("orders", COMPACTED_AWAY)
    tier.tell("orders", COMPACTED_AWAY)
    made = locator(tier, Keeper({}), falls_back=False)
    assert located(made) == [0]
    asked = len(tier.client.requests)
    assert located(made) == [0] and len(tier.client.requests) - asked < 6


def test_a_client_beyond_its_quota_does_not_take_nothing_for_all_there_is(tier: ScriptedTier) -> None:
    tier.tell("orders", COMPACTED_AWAY)
    tier.throttle_ms = 10
    with pytest.raises(BrokerUnavailableError, match="gives no records"):
        located(locator(tier, Keeper({}), falls_back=False))


@pytest.mark.parametrize("name", NAMES)
def test_manifests_tell_what_a_topic_compacted_to_updates_lacks(name: str) -> None:
    """Of each golden segment only its last record is left, as a broker with KIP-1266 writes it."""
    last: dict[UUID, SegmentMetadata] = {}
    ends: dict[UUID, int] = {}
    for _, _, value in golden(name).remote_log_metadata():
        record = decode_remote_log_metadata(value)
        if not isinstance(record, SegmentMetadata):
            continue
        segment_id = record.segment.segment_id
        if not record.is_update:
            ends[segment_id] = record.segment.end_offset
        elif segment_id in ends:
            last[segment_id] = replace(record, segment=replace(record.segment, end_offset=ends[segment_id]))
    table = SegmentTable()
    for update in last.values():
        table.apply(update)
    expected = {each: set(of) for each, of in golden_table(name).items() if of}
    lone = {each.topic_partition: table.lone_updates(each) for each in named_partitions(table)}
    alone = {partition: segments for partition, segments in lone.items() if partition in expected}
    starts = {each: min(segment.base_offset for segment in of) for each, of in expected.items()}
    fetcher = golden_aiven.fetcher(name)
    with ThreadPoolExecutor(4) as executor:
        found = CompactedSegments(fetcher, executor, falls_back=False).complete(alone, starts)
    assert {each: set(of) for each, of in found.items()} == expected

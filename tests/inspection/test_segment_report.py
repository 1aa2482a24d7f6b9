"""Which segments count, which do not and why, over made-up tiers."""

from __future__ import annotations

import orjson

from tests.locate.segments import PARTITION, segment
from tiered_stream.broker.leader_epochs import Lineage
from tiered_stream.errors import BrokerUnavailableError
from tiered_stream.inspection.segment_report import ListedSegment, NotCounted, SegmentReport, SegmentSums
from tiered_stream.inspection.tier_contents import PartitionTier, TierContents
from tiered_stream.locate.metadata_topic.remote_log_metadata import RemoteLogSegmentState
from tiered_stream.locate.metadata_topic.segment_table import TrackedSegment
from tiered_stream.locate.visible_segments import visible_segments
from tiered_stream.model import OffsetRange, PartialAnswer, RemoteLogSegment, TopicPartition

COPYING = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
EPOCH_0: Lineage = {0: 1000}


def tier(*tracked: TrackedSegment, lineage: Lineage = EPOCH_0, start: int = 0) -> PartitionTier:
    finished = [each for each, state in tracked if state is FINISHED]
    visible = visible_segments(finished, lineage, start)
    return PartitionTier(tracked, tuple(visible), OffsetRange(start, 1000), lineage)


def finished(*segments: RemoteLogSegment, lineage: Lineage = EPOCH_0, start: int = 0) -> PartitionTier:
    return tier(*((each, FINISHED) for each in segments), lineage=lineage, start=start)


def reported(of: PartitionTier) -> SegmentReport:
    return SegmentReport.of(TierContents("metadata-topic", PartialAnswer({PARTITION: of}, {})))


def listed(of: PartitionTier) -> list[ListedSegment]:
    ((partition),) = reported(of).partitions
    return list(partition.segments)


def why(of: PartitionTier) -> list[tuple[NotCounted, ...]]:
    return [each.not_counted for each in listed(of)]


def test_segments_one_after_the_other_count_whole_and_what_follows_is_not_tiered() -> None:
    found = reported(finished(segment(2, 100, 200), segment(1, 0, 100)))
    (partition,) = found.partitions
    assert [each.counts for each in partition.segments] == [(OffsetRange(0, 100),), (OffsetRange(100, 200),)]
    assert partition.not_tiered == (OffsetRange(200, 1000),)
    assert SegmentSums.of(partition.segments) == SegmentSums(2, 2000, 0, 0, 0)


def test_a_gap_between_segments_is_not_tiered() -> None:
    (partition,) = reported(finished(segment(1, 10, 100), segment(2, 150, 1000))).partitions
    assert partition.not_tiered == (OffsetRange(0, 10), OffsetRange(100, 150))


def test_copies_that_are_not_finished_and_segments_that_are_being_deleted_are_orphans() -> None:
    of = tier((segment(1, 0, 100), DELETING), (segment(2, 100, 200), FINISHED), (segment(3, 200, 300), COPYING))
    assert why(of) == [(NotCounted.DELETING,), (), (NotCounted.COPYING,)]
    assert [each.orphan for each in listed(of)] == [True, False, True]


def test_a_segment_of_a_history_that_was_lost_is_an_orphan_and_one_that_was_cut_short_is_not() -> None:
    lineage = {0: 150, 2: 1000}
    cut, lost = segment(1, 100, 200), segment(2, 150, 250, ((1, 150),))
    now = segment(3, 150, 300, ((2, 150),))
    found = listed(finished(cut, lost, now, lineage=lineage))
    assert [each.counts for each in found] == [(OffsetRange(100, 150),), (), (OffsetRange(150, 300),)]
    assert [each.not_counted for each in found] == [(NotCounted.OTHER_EPOCHS,), (NotCounted.OTHER_EPOCHS,), ()]
    assert all(each.overlaps for each in found)


def test_of_two_segments_with_the_same_offsets_one_counts() -> None:
    found = listed(finished(segment(1, 0, 100), segment(2, 0, 200)))
    assert [each.counts for each in found] == [(), (OffsetRange(0, 200),)]
    assert [each.not_counted for each in found] == [(NotCounted.OVERLAPPED,), ()]
    assert [each.overlaps for each in found] == [True, True]


def test_what_lies_below_the_log_start_does_not_count() -> None:
    found = listed(finished(segment(1, 0, 100), segment(2, 100, 200), start=120))
    assert [each.counts for each in found] == [(), (OffsetRange(120, 200),)]
    assert [each.not_counted for each in found] == [(NotCounted.BELOW_LOG_START,), (NotCounted.BELOW_LOG_START,)]


def test_a_partition_that_cannot_be_asked_is_named_beside_the_others() -> None:
    other = TopicPartition("orders", 1)
    faults = {other: BrokerUnavailableError("it has no leader")}
    contents = TierContents("metadata-topic", PartialAnswer({PARTITION: finished(segment(1, 0, 100))}, dict(faults)))
    found = orjson.loads(SegmentReport.of(contents).to_json())
    assert found["faults"] == [{"topic": "orders", "partition": 1, "reason": "it has no leader"}]
    assert [each["partition"] for each in found["partitions"]] == [0]

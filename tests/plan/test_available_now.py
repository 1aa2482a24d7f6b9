from __future__ import annotations

import pytest

from tiered_stream.errors import DataLossError
from tiered_stream.model import TopicPartition
from tiered_stream.plan.stream_bounds import check_target

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Offsets = dict[TopicPartition, int]


@pytest.mark.contract("1.8 AvailableNow checks")
def test_an_end_within_the_target_that_is_still_there_passes() -> None:
    check_target({T0: 5, T1: 3}, {T0: 5, T1: 2}, {T0: 5, T1: 9, TopicPartition("t", 2): 1})


@pytest.mark.contract("1.8 AvailableNow checks", "2.23", "2.24")
@pytest.mark.parametrize(
    ("condition", "target", "end", "latest"),
    [
        ("MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED", {T0: 5}, {T0: 5, T1: 1}, {T0: 5, T1: 1}),
        ("MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED", {T0: 5, T1: 1}, {T0: 5}, {T0: 5, T1: 1}),
        ("END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED", {T0: 5}, {T0: 6}, {T0: 9}),
        ("LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW", {T0: 5, T1: 1}, {T0: 5, T1: 1}, {T0: 5}),
        (
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW",
            {T0: 5},
            {T0: 5},
            {T0: 2},
        ),
    ],
)
def test_each_way_to_miss_the_target_fails_under_spark_s_name(
    condition: str, target: Offsets, end: Offsets, latest: Offsets
) -> None:
    with pytest.raises(DataLossError, match=rf"\[{condition}\].*t-[01].*restart the query"):
        check_target(target, end, latest)

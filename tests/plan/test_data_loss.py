from __future__ import annotations

from uuid import UUID

import pytest

from tiered_stream.errors import DataLossError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.plan.data_loss import DataLossPolicy, check_topic_ids, ends_within, offset_ranges, within_log

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FAIL, GO_ON = DataLossPolicy(fail=True), DataLossPolicy(fail=False)
Offsets = dict[TopicPartition, int]


@pytest.mark.contract("1.6 new partition from 0")
@pytest.mark.parametrize("policy", [FAIL, GO_ON])
def test_a_new_partition_that_begins_at_0_is_read_from_0(policy: DataLossPolicy) -> None:
    assert offset_ranges({T0: 3}, {T0: 5, T1: 7}, {T1: 0}, policy) == {T0: OffsetRange(3, 5), T1: OffsetRange(0, 7)}


@pytest.mark.contract(
    "1.6 new partition above 0",
    "1.6 new partition that is gone",
    "1.6 partition that vanished",
    "1.6 end below the start",
    "1.6 names",
)
@pytest.mark.parametrize(
    ("condition", "start", "end", "earliest", "ranges"),
    [
        ("ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", {}, {T0: 7}, {T0: 4}, {T0: OffsetRange(4, 7)}),
        ("INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", {T0: 0}, {T0: 1, T1: 7}, {}, {T0: OffsetRange(0, 1)}),
        ("PARTITIONS_DELETED", {T0: 3, T1: 3}, {T0: 5}, {}, {T0: OffsetRange(3, 5)}),
        ("PARTITION_OFFSET_CHANGED", {T0: 2}, {T0: 1}, {}, {T0: OffsetRange(1, 1)}),
    ],
)
def test_a_change_that_loses_records_fails_under_spark_s_name_or_the_query_goes_on_with_a_warning(
    condition: str, start: Offsets, end: Offsets, earliest: Offsets, ranges: object, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLossError, match=rf"\[KAFKA_DATA_LOSS\.{condition}\].*t-[01].*failOnDataLoss"):
        offset_ranges(start, end, earliest, FAIL)
    assert offset_ranges(start, end, earliest, GO_ON) == ranges
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"[KAFKA_DATA_LOSS.{condition}]" in caplog.text


@pytest.mark.parametrize("policy", [FAIL, GO_ON])
def test_a_range_that_its_log_holds_stays(policy: DataLossPolicy) -> None:
    ranges = {T0: OffsetRange(3, 5), T1: OffsetRange(9, 9)}
    assert within_log(ranges, {T0: 3}, {T0: 5}, policy) == ranges


@pytest.mark.contract("1.6 range below the log start", "1.6 range beyond the log end")
@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (OffsetRange(1, 5), OffsetRange(3, 5)),
        (OffsetRange(0, 2), OffsetRange(3, 3)),
        (OffsetRange(4, 12), OffsetRange(4, 8)),
        (OffsetRange(9, 12), OffsetRange(9, 9)),
    ],
    ids=["begins below the log start", "all below the log start", "ends beyond the log end", "all beyond the log end"],
)
def test_a_range_out_of_its_log_fails_or_is_cut(
    wanted: OffsetRange, held: OffsetRange, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLossError, match=r"\[KAFKA_DATA_LOSS\.COULD_NOT_READ_OFFSET_RANGE\].*t-0.*3 to 8"):
        within_log({T0: wanted}, {T0: 3}, {T0: 8}, FAIL)
    assert within_log({T0: wanted}, {T0: 3}, {T0: 8}, GO_ON) == {T0: held}
    assert "COULD_NOT_READ_OFFSET_RANGE" in caplog.text


@pytest.mark.contract("1.6 topic made again and longer")
def test_a_topic_made_again_is_data_loss(caplog: pytest.LogCaptureFixture) -> None:
    known, now = {"t": UUID(int=1)}, {"t": UUID(int=2), "u": UUID(int=3)}
    with pytest.raises(DataLossError, match=r"\[KAFKA_DATA_LOSS\.TOPIC_RECREATED\].*topic t "):
        check_topic_ids(known, now, FAIL)
    check_topic_ids(known, now, GO_ON)
    assert "TOPIC_RECREATED" in caplog.text
    check_topic_ids(known, {"t": UUID(int=1)}, FAIL)


def test_ends_that_are_given_are_not_passed() -> None:
    assert ends_within({T0: 9, T1: 4, TopicPartition("t", 2): 3}, {T0: 5, T1: 4}, FAIL) == {T0: 5, T1: 4}


@pytest.mark.parametrize(("latest", "said"), [({T0: 4}, r"t-0 \(5, not 4\)"), ({}, r"t-0 \(5, not there\)")])
def test_a_log_that_ends_before_its_given_end_has_lost_records(latest: dict[TopicPartition, int], said: str) -> None:
    with pytest.raises(DataLossError, match=said):
        ends_within(latest, {T0: 5}, FAIL)
    assert ends_within(latest, {T0: 5}, GO_ON) == latest
    assert ends_within({}, {T0: 0}, FAIL) == {}


def test_an_empty_range_outside_of_its_log_is_no_data_loss(caplog: pytest.LogCaptureFixture) -> None:
    ranges = {T0: OffsetRange(1, 1), T1: OffsetRange(9, 9)}
    for policy in (FAIL, GO_ON):
        held = within_log(ranges, {T0: 3, T1: 3}, {T0: 8, T1: 8}, policy)
        assert held == {T0: OffsetRange(3, 3), T1: OffsetRange(9, 9)}
    assert caplog.records == []


def test_a_micro_batch_without_anything_new_in_a_partition_is_no_data_loss() -> None:
    assert offset_ranges({T0: 5}, {T0: 5}, {}, FAIL) == {T0: OffsetRange(5, 5)}

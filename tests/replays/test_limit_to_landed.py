"""What a replay leaves to the query that lands in the same table."""

from __future__ import annotations

import logging

import pytest

from tests.delta.folder_in_memory import FolderInMemory
from tiered_stream.delta.checkpoint.query_tables import Held, Parked, QueryTables, QueryTablesLog
from tiered_stream.errors import ConfigurationError, CorruptDataError
from tiered_stream.model import OffsetRange, TopicPartition
from tiered_stream.replays.limit_to_landed import landed_offsets, limit_to_landed

ONE, OTHER, NEW = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("orders", 2)
RANGES = {ONE: OffsetRange(2, 9), OTHER: OffsetRange(0, 4), NEW: OffsetRange(0, 1)}


def checkpoint(planned: int = -1, committed: int = -1, parked: QueryTables | None = None) -> FolderInMemory:
    """Make a checkpoint whose batches end at offsets 5 and 4 of the two partitions, plus the number of the batch."""
    folder = FolderInMemory()
    for batch in range(planned + 1):
        folder.write(f"offsets/{batch}", b'v1\n{}\n{"orders":{"0":%d,"1":%d}}' % (5 + batch, 4 + batch))
    for batch in range(committed + 1):
        folder.write(f"commits/{batch}", b"v1\n{}")
    if parked is not None:
        QueryTablesLog(folder).after(committed, parked)
    return folder


def parked(*held: Held) -> QueryTables:
    return QueryTables(parked={"file:///lake/orders": Parked("lake/orders", "no room", *held)})


def test_a_replay_ends_where_the_query_has_come_to_and_a_new_partition_is_the_querys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        kept = limit_to_landed(lambda _: checkpoint(planned=1, committed=0), "lake/checkpoint", RANGES)
    assert kept == {ONE: OffsetRange(2, 5), OTHER: OffsetRange(0, 4), NEW: OffsetRange(0, 0)}
    assert "orders-0 from 5 on, orders-2 from 0 on" in caplog.text and "orders-1" not in caplog.text


def test_a_replay_ends_where_a_parked_table_lacks_rows() -> None:
    held = Held(1, {ONE: OffsetRange(4, 6)}), Held(3, {ONE: OffsetRange(7, 8), OTHER: OffsetRange(3, 7)})
    folder = checkpoint(planned=3, committed=3, parked=parked(*held))
    assert landed_offsets(folder) == {ONE: 4, OTHER: 3}
    assert landed_offsets(checkpoint(planned=3, committed=3)) == {ONE: 8, OTHER: 7}


def test_what_the_query_has_landed_is_replayed_whole(caplog: pytest.LogCaptureFixture) -> None:
    ranges = {ONE: OffsetRange(0, 5), OTHER: OffsetRange(3, 4)}
    assert limit_to_landed(lambda _: checkpoint(planned=0, committed=0), "lake/checkpoint", ranges) == ranges
    assert not caplog.text


def test_a_replay_of_nothing_but_what_the_query_is_still_to_land_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="orders-0 from 2 on.*parked.* --to"):
        limit_to_landed(lambda _: checkpoint(planned=0), "lake/checkpoint", RANGES)


def test_a_query_that_has_not_begun_is_left_nothing() -> None:
    assert limit_to_landed(lambda _: checkpoint(), "lake/checkpoint", RANGES) == RANGES


def test_each_topic_has_a_query_of_its_own_if_the_checkpoints_path_says_so() -> None:
    folders = {"lake/checkpoints/orders": checkpoint(planned=0, committed=0), "lake/checkpoints/new": checkpoint()}
    ranges = {ONE: OffsetRange(2, 9), TopicPartition("new", 0): OffsetRange(0, 8)}
    kept = limit_to_landed(folders.__getitem__, "lake/checkpoints/{topic}", ranges)
    assert kept == {**ranges, ONE: OffsetRange(2, 5)}


def test_a_checkpoint_that_lacks_a_file_is_damaged() -> None:
    folder = checkpoint(planned=0, committed=0)
    folder.delete("offsets/0")
    with pytest.raises(CorruptDataError, match="offsets/0 is missing"):
        landed_offsets(folder)

from __future__ import annotations

import logging
from concurrent.futures import Future

import pytest

from tiered_stream.errors import BrokerError
from tiered_stream.model import PartitionOffsets, TopicPartition
from tiered_stream.plan.group_follower import GroupFollower

T0 = TopicPartition("t", 0)


class Group:
    """A group whose commits end when the test says so."""

    group = "g"

    def __init__(self) -> None:
        self.commits: list[tuple[int, Future[None]]] = []

    def start_commit(self, offsets: PartitionOffsets) -> Future[None]:
        self.commits.append((offsets[T0], Future()))
        return self.commits[-1][1]

    def end(self, error: Exception | None = None) -> None:
        future = self.commits[-1][1]
        future.set_exception(error) if error else future.set_result(None)

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.commits]


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def follower(group: Group) -> GroupFollower:
    return GroupFollower(group)  # type: ignore[arg-type]


def test_what_is_done_is_committed_once_and_the_start_is_not(group: Group, follower: GroupFollower) -> None:
    follower.begin({T0: 3})
    follower.follow({T0: 3})
    assert group.offsets == []
    follower.follow({T0: 5})
    follower.follow({T0: 5})
    assert group.offsets == [5]


def test_a_query_with_a_checkpoint_commits_where_it_is(group: Group, follower: GroupFollower) -> None:
    follower.follow({T0: 3})
    assert group.offsets == [3]


def test_one_commit_is_under_way_at_a_time_and_the_newest_offsets_are_next(
    group: Group, follower: GroupFollower
) -> None:
    for offset in (1, 2, 3):
        follower.follow({T0: offset})
    assert group.offsets == [1]
    group.end()
    follower.follow({T0: 3})
    assert group.offsets == [1, 3]


def test_at_the_end_of_a_run_what_is_under_way_is_waited_for(group: Group, follower: GroupFollower) -> None:
    follower.follow({T0: 1})
    group.end()
    follower.settle()
    follower.settle()
    assert group.offsets == [1]


def test_refused_commits_are_one_warning_until_one_succeeds(
    group: Group, follower: GroupFollower, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for offset in (1, 2):
        follower.follow({T0: offset})
        group.end(BrokerError("the group has members"))
        follower.settle()
    assert [record.message for record in caplog.records] == [
        "the query's offsets are not committed to the consumer group g, and lag tools do not see how far it is; the "
        "query itself goes on: the group has members"
    ]
    for offset, error in ((3, None), (4, BrokerError("again"))):
        follower.follow({T0: offset})
        group.end(error)
        follower.settle()
    assert len(caplog.records) == 2

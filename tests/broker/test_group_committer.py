from __future__ import annotations

from concurrent.futures import Future

import pytest

from tiered_stream.broker.group_offsets import GroupCommitter
from tiered_stream.errors import BrokerError, BrokerUnavailableError
from tiered_stream.model import PartitionOffsets, TopicPartition

T0 = TopicPartition("t", 0)


class Group:
    """A group whose commits end when the test says so."""

    group = "g"

    def __init__(self) -> None:
        self.commits: list[tuple[int, Future[None]]] = []
        self.committer = GroupCommitter(self)  # type: ignore[arg-type]

    def start_commit(self, offsets: PartitionOffsets) -> Future[None]:
        self.commits.append((offsets[T0], Future()))
        return self.commits[-1][1]

    def commit(self, *offsets: int) -> None:
        for offset in offsets:
            self.committer.commit({T0: offset})

    def end(self, error: Exception | None = None) -> None:
        future = self.commits[-1][1]
        future.set_exception(error) if error else future.set_result(None)

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.commits]


@pytest.fixture
def group() -> Group:
    return Group()


def test_what_is_done_is_committed_once_and_the_start_is_not(group: Group) -> None:
    group.committer.begin({T0: 3})
    group.commit(3)
    assert group.offsets == []
    group.commit(5, 5)
    assert group.offsets == [5]


def test_one_commit_is_under_way_at_a_time_and_the_newest_offsets_are_next(group: Group) -> None:
    """A query with a checkpoint has not begun, and commits where it is."""
    group.commit(1, 2, 3)
    assert group.offsets == [1]
    group.end()
    group.commit(3)
    assert group.offsets == [1, 3]


def test_at_the_end_of_a_run_what_is_under_way_is_waited_for(group: Group) -> None:
    group.commit(1)
    group.end()
    group.committer.settle()
    group.committer.settle()
    assert group.offsets == [1]


def test_a_commit_that_reached_no_broker_is_repeated_although_nothing_is_new(group: Group) -> None:
    group.commit(5)
    group.end(BrokerUnavailableError("the coordinator is away"))
    group.commit(5, 5)
    assert group.offsets == [5, 5]
    group.end()
    group.commit(5)
    assert group.offsets == [5, 5]


def test_at_the_end_of_a_run_a_commit_that_reached_no_broker_is_not_repeated(group: Group) -> None:
    group.commit(5)
    group.end(BrokerUnavailableError("the coordinator is away"))
    group.committer.settle()
    assert group.offsets == [5]


def test_refused_commits_are_one_warning_until_one_succeeds(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    errors = (BrokerError("the group has members"), BrokerError("still"), None, BrokerError("again"))
    for offset, error in enumerate(errors):
        group.commit(offset)
        group.end(error)
        group.committer.settle()
    first, second = caplog.messages
    assert "consumer group g" in first and "the group has members" in first and "again" in second

from __future__ import annotations

import logging
from concurrent.futures import Future

import pytest

from tiered_stream.broker.group_offsets import GroupCommitter
from tiered_stream.errors import BrokerError
from tiered_stream.model import PartitionOffsets, TopicPartition

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
def committer(group: Group) -> GroupCommitter:
    return GroupCommitter(group)  # type: ignore[arg-type]


def test_what_is_done_is_committed_once_and_the_start_is_not(group: Group, committer: GroupCommitter) -> None:
    committer.begin({T0: 3})
    committer.commit({T0: 3})
    assert group.offsets == []
    committer.commit({T0: 5})
    committer.commit({T0: 5})
    assert group.offsets == [5]


def test_a_query_with_a_checkpoint_commits_where_it_is(group: Group, committer: GroupCommitter) -> None:
    committer.commit({T0: 3})
    assert group.offsets == [3]


def test_one_commit_is_under_way_at_a_time_and_the_newest_offsets_are_next(
    group: Group, committer: GroupCommitter
) -> None:
    for offset in (1, 2, 3):
        committer.commit({T0: offset})
    assert group.offsets == [1]
    group.end()
    committer.commit({T0: 3})
    assert group.offsets == [1, 3]


def test_at_the_end_of_a_run_what_is_under_way_is_waited_for(group: Group, committer: GroupCommitter) -> None:
    committer.commit({T0: 1})
    group.end()
    committer.settle()
    committer.settle()
    assert group.offsets == [1]


def test_refused_commits_are_one_warning_until_one_succeeds(
    group: Group, committer: GroupCommitter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for offset in (1, 2):
        committer.commit({T0: offset})
        group.end(BrokerError("the group has members"))
        committer.settle()
    assert [record.message for record in caplog.records] == [
        "the query's offsets are not committed to the consumer group g, and lag tools do not see how far it is; the "
        "query itself goes on: the group has members"
    ]
    for offset, error in ((3, None), (4, BrokerError("again"))):
        committer.commit({T0: offset})
        group.end(error)
        committer.settle()
    assert len(caplog.records) == 2
